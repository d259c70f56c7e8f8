"""`dynconv translate`: translate lines of text."""

import sys
from pathlib import Path

from dynconv.cli.options import add_command, add_decoding, load_trained
from dynconv.cli.stdout import write_utf8
from dynconv.errors import UserError


def add_parser(subparsers) -> None:
    """Add `dynconv translate`."""
    parser = add_command(subparsers, "translate", run)
    parser.add_argument(
        "--input", default="-", metavar="FILE", help="the lines to translate (default: stdin)"
    )
    parser.add_argument(
        "--output", default="-", metavar="FILE", help="where to write them (default: stdout)"
    )
    add_decoding(parser)


def run(options) -> None:
    """Translate text: one line out for each line in, in order; no input gives no output."""
    from dynconv.files import check_output, replace_text
    from dynconv.tasks import Translation
    from dynconv.text import read_lines
    from dynconv.text.lines import decode_utf8

    if options.output != "-":
        output = Path(options.output)
        check_output(output)
        if options.input != "-" and output.resolve() == Path(options.input).resolve():
            raise UserError(f"{output}: is also the input: name another --output")
    trained = load_trained(options, Translation)
    if options.input == "-":
        if sys.stdin is None:
            raise UserError("standard input is closed: give --input FILE")
        lines = list(decode_utf8(sys.stdin.buffer, "standard input"))
    else:
        lines = read_lines(Path(options.input), may_be_empty=True)
    translations = trained.translate(lines)
    text = "".join(f"{line}\n" for line in translations)
    if options.output == "-":
        write_utf8()
        print(text, end="", flush=True)
    else:
        replace_text(output, text)
