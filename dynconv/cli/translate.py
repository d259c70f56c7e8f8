"""`dynconv translate`: translate lines of text."""

import os
import sys
from pathlib import Path

from dynconv.cli.options import add_command, add_decoding, load_trained, parse_path
from dynconv.cli.stdout import write_utf8
from dynconv.errors import UserError


def add_parser(subparsers) -> None:
    """Add `dynconv translate`."""
    parser = add_command(subparsers, "translate", run)
    parser.add_argument(
        "--input",
        type=parse_path_or_dash,
        metavar="FILE",
        help="the lines to translate (default: stdin)",
    )
    parser.add_argument(
        "--output",
        type=parse_path_or_dash,
        metavar="FILE",
        help="where to write them (default: stdout)",
    )
    add_decoding(parser)


def parse_path_or_dash(text: str) -> Path | None:
    """Parse a path; a dash is stdin or stdout."""
    return None if text == "-" else parse_path(text)


def run(options) -> None:
    """Translate text: one line out for each line in, in order; no input gives no output."""
    from dynconv.files import check_output, replace_text
    from dynconv.tasks import Translation
    from dynconv.text import read_lines
    from dynconv.text.lines import decode_utf8

    source, output = options.input, options.output
    if output is not None:
        check_output(output)
        if source is not None and os.path.realpath(output) == os.path.realpath(source):
            raise UserError(f"{output}: is also the input: name another --output")
    trained = load_trained(options, Translation)
    if source is not None:
        lines = read_lines(source, may_be_empty=True)
    elif sys.stdin is None:
        raise UserError("standard input is closed: give --input FILE")
    else:
        lines = list(decode_utf8(sys.stdin.buffer, "standard input"))
    translations = trained.translate(lines)
    text = "".join(f"{line}\n" for line in translations)
    if output is None:
        write_utf8()
        print(text, end="", flush=True)
    else:
        replace_text(output, text)
