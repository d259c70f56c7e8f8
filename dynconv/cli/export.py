"""`dynconv export`: write a translator for a web page."""

from dynconv.cli.options import add_command, add_run, load_trained, parse_path


def add_parser(subparsers) -> None:
    """Add `dynconv export`."""
    parser = add_command(subparsers, "export", run)
    add_run(parser)
    parser.add_argument(
        "--web",
        type=parse_path,
        required=True,
        metavar="FILE",
        help="a JavaScript file, or a directory in which it is named translator-MIXER.js; the "
        "book's page reads the files in book/_static",
    )


def run(options) -> None:
    """Write a translator, rounded to 8 bits, as a file that a web page runs without a server."""
    from dynconv.lab.export import export_web
    from dynconv.tasks import Translation

    print(export_web(load_trained(options, Translation), options.web))
