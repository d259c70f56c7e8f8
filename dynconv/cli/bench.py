"""`dynconv bench`: measure decoding, operators, CUDA kernels, launches, training and recall."""

import argparse

from dynconv.cli.options import (
    StoreList,
    add_command,
    add_decoding,
    add_output,
    add_recipe,
    keywords_of,
    load_trained,
    number_type,
    parse_path,
    positive_int,
    say,
)


def add_parser(subparsers) -> None:
    """Add `dynconv bench decode`, `ops`, `kernels`, `host`, `train`, `recall` and `first-run`."""
    bench = subparsers.add_parser(
        "bench", help="Measure decoding, operators, CUDA kernels, launches, training or recall."
    )
    commands = bench.add_subparsers(required=True, metavar="WHAT")
    add_decode(commands)
    add_operators(commands)
    add_kernels(commands)
    add_host(commands)
    add_training(commands)
    add_recall(commands)
    add_first(commands)


def add_rounds(parser: argparse.ArgumentParser, default: int) -> None:
    """Add the option --rounds, the number of repetitions."""
    parser.add_argument(
        "--rounds",
        type=number_type("Repeats"),
        default=default,
        help="number of times to measure each",
    )


def add_list(
    parser: argparse.ArgumentParser, name: str, help_text: str, default: list[str] | None = None
) -> None:
    """Add an option that takes one or more names, separated by spaces."""
    parser.add_argument(name, nargs="+", action=StoreList, default=default, help=help_text)


def add_decode(commands) -> None:
    parser = add_command(commands, "decode", run_decode)
    parser.add_argument(
        "--sentences", type=positive_int, help="sentences of the test split (default: all)"
    )
    add_rounds(parser, 3)
    add_output(parser, "data/results/bench-decode.json")
    add_decoding(parser)


def run_decode(options) -> None:
    """Compare decoding with and without incremental state, run alternately."""
    from dynconv.lab.bench.decode import bench_decode
    from dynconv.tasks import Translation

    trained = load_trained(options, Translation)
    bench_decode(
        trained,
        options.run,
        sentences=options.sentences,
        rounds=options.rounds,
        output=options.output,
        say=say,
    )


def add_operators(commands) -> None:
    parser = add_command(commands, "ops", run_operators)
    add_list(
        parser,
        "--shapes",
        "lengths as in Table 6 of the TaLK paper (B = 10 or less, C = 1024, H = 16), iwslt, or "
        "BxTxCxH",
        default=["10", "100", "1000", "10000", "iwslt"],
    )
    add_list(parser, "--operators", "functions of dynconv.ops (default: all)")
    add_list(parser, "--impl", "implementations (default: all but loop)")
    parser.add_argument("--kernel-size", type=number_type("Dimension"), default=31, help="K, odd")
    add_rounds(parser, 5)
    parser.add_argument(
        "--threads", type=number_type("Threads"), default=1, help="threads of PyTorch"
    )
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16", "float16"], default="float32", help="dtype of x"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where to run")
    add_output(parser, "data/results/bench-ops.json")


def run_operators(options) -> None:
    """Compare all implementations of the operators with a copy and attention, run alternately."""
    import torch

    from dynconv.lab.bench.operators import bench_ops

    given = keywords_of(options)
    torch.set_num_threads(given.pop("threads"))
    given["dtype"] = getattr(torch, given["dtype"])
    bench_ops(**given, say=say)


def add_kernels(commands) -> None:
    parser = add_command(commands, "kernels", run_kernels)
    add_list(
        parser,
        "--shapes",
        "as for bench ops; the last default is the size of an update of wmt16-en-de-dynamic",
        default=["10x10x1024x16", "10x100x1024x16", "10x1000x1024x16", "10x10000x1024x16"]
        + ["iwslt", "112x32x1024x16"],
    )
    add_list(parser, "--dtypes", "dtypes of x", default=["float32", "bfloat16"])
    add_list(
        parser,
        "--operators",
        "the operators (default: light_conv, dynamic_conv, softmax_conv, talk_conv)",
    )
    add_list(parser, "--kernel-sizes", "K, odd", default=["3", "31"])
    add_rounds(parser, 30)
    parser.add_argument(
        "--predict",
        action="store_true",
        help="predict lower bounds and resources of the kernels, without a GPU",
    )
    add_output(parser, "data/results/kernels-DEVICE.json, kernels-predicted.json with --predict")


def run_kernels(options) -> int:
    """Check the CUDA kernels, then compare their times with lower bounds, attention and PyTorch."""
    from dynconv.lab.bench.kernels.bench import bench_kernels

    return 1 if bench_kernels(**keywords_of(options), say=say) else 0


def add_host(commands) -> None:
    parser = add_command(commands, "host", run_host)
    add_rounds(parser, 9)
    add_output(parser, "data/results/bench-host.json")


def run_host(options) -> None:
    """Time what the CPU does to launch an operator's CUDA kernels, without a GPU."""
    from dynconv.lab.bench.host import bench_host

    bench_host(**keywords_of(options), say=say)


def add_training(commands) -> None:
    parser = add_command(commands, "train", run_training)
    add_recipe(parser)
    parser.add_argument("--updates", type=positive_int, default=100, help="updates to time")
    parser.add_argument(
        "--synthetic",
        type=number_type("PositiveLength"),
        metavar="LINES",
        help="train on this many lines of random words instead of the corpus",
    )
    add_output(parser, "data/results/bench-train.json")


def run_training(options) -> None:
    """Train for some updates in a scratch directory, and show where the time goes."""
    from dynconv.lab.bench.train import bench_train

    bench_train(
        options.recipe,
        options.overrides,
        updates=options.updates,
        synthetic=options.synthetic,
        output=options.output,
        say=say,
    )


def add_recall(commands) -> None:
    parser = add_command(commands, "recall", run_recall)
    add_list(
        parser,
        "--stacks",
        "mixers from bottom to top",
        default=["attention+attention", "dynamic+dynamic", "dynamic+attention"],
    )
    parser.add_argument(
        "--pairs",
        type=positive_int,
        nargs="+",
        default=[4, 8, 16],
        help="numbers of pairs to look up, up to --keys",
    )
    parser.add_argument(
        "--keys", type=positive_int, default=64, help="different keys, and as many values"
    )
    parser.add_argument(
        "--lr",
        dest="rates",
        type=number_type("Positive"),
        nargs="+",
        default=[1e-3, 3e-3],
        help="learning rates to choose from",
    )
    parser.add_argument("--updates", type=positive_int, default=1000, help="updates of each stack")
    parser.add_argument(
        "--seeds",
        type=number_type("Repeats"),
        default=3,
        metavar="N",
        help="train with seeds 1 to N",
    )
    add_output(parser, "data/results/recall.json")


def run_recall(options) -> None:
    """Train small stacks of mixers to look up keys, and show how many pairs each can remember."""
    from dynconv.lab.recall import bench_recall

    bench_recall(**keywords_of(options), say=say)


def add_first(commands) -> None:
    parser = add_command(commands, "first-run", run_first)
    parser.add_argument("--steps", type=positive_int, help="maximum steps in this call")
    parser.add_argument(
        "--output",
        type=parse_path,
        metavar="FOLDER",
        help="where to write (default: data/results/first-run-DEVICE; outside a checkout, "
        "first-run-DEVICE; without a GPU, a temporary folder)",
    )


def run_first(options) -> int:
    """Run all measurements that need a GPU, in steps of under ten minutes; repeat to continue.

    Without a GPU the same commands run on the CPU with small sizes, to show that they work.
    """
    from dynconv.lab.bench.first_run import first_run

    return 1 if first_run(options.output, options.steps, say) else 0
