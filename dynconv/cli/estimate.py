"""`dynconv estimate`: say what a recipe will cost."""

import sys
import threading

from dynconv.cli.options import add_command, add_recipe, number_type, positive_int

PATIENCE = 5.0
"""seconds without a result before the command says what it is doing"""
WAITING = "counting the memory and the FLOPs of one batch, which takes longer for a large model ..."


def add_parser(subparsers) -> None:
    """Add `dynconv estimate`."""
    parser = add_command(subparsers, "estimate", run)
    add_recipe(parser)
    parser.add_argument("--gpus", type=positive_int, default=1, help="GPUs that train together")
    parser.add_argument(
        "--memory",
        type=number_type("Positive"),
        default=80,
        metavar="GB",
        help="memory of one GPU; an A100 or H100 has 80",
    )
    parser.add_argument(
        "--tokens-per-s",
        type=number_type("Positive"),
        metavar="X",
        help="target tokens per second of one GPU, as bench train measures it",
    )


def run(options) -> None:
    """Estimate what a recipe needs: parameters, memory, updates and hours."""
    from dynconv.config import load_recipe
    from dynconv.lab.estimate import estimate_costs

    recipe = load_recipe(options.recipe, options.overrides)
    patience = threading.Timer(PATIENCE, print, [WAITING], {"file": sys.stderr, "flush": True})
    patience.daemon = True
    patience.start()
    try:
        costs = estimate_costs(recipe, options.gpus, options.memory, options.tokens_per_s)
    finally:
        patience.cancel()
    print(costs)
