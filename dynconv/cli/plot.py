"""`dynconv plot`: draw the curves of training runs."""

from pathlib import Path

from dynconv.cli.options import add_command


def add_parser(subparsers) -> None:
    """Add `dynconv plot`."""
    parser = add_command(subparsers, "plot", run)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--output", type=Path, help="PNG, SVG or PDF (default: RUN/curves.png)")


def run(options) -> None:
    """Draw the curves of one or more runs."""
    from dynconv.lab.plot import plot

    output = options.output or options.runs[0] / "curves.png"
    plot(options.runs, output)
    print(f"curves: {output}")
