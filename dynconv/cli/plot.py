"""`dynconv plot`: draw the curves of training runs."""

from dynconv.cli.options import add_command, parse_path


def add_parser(subparsers) -> None:
    """Add `dynconv plot`."""
    parser = add_command(subparsers, "plot", run)
    parser.add_argument("runs", nargs="+", type=parse_path, metavar="RUN")
    parser.add_argument(
        "--output", type=parse_path, help="PNG, SVG or PDF (default: RUN/curves.png)"
    )


def run(options) -> None:
    """Draw the curves of one or more runs."""
    from dynconv.errors import UserError
    from dynconv.files import check_writable, path_inside
    from dynconv.lab.plot import plot_curves
    from dynconv.train.run_directory import CURVES, is_run

    first, output = options.runs[0], options.output
    if output is None:
        if not is_run(first):
            raise UserError(f"{first}: no run directory; for a log elsewhere, give --output FILE")
        output = path_inside(first, CURVES)
    check_writable(output)
    plot_curves(options.runs, output)
    print(f"curves: {output}")
