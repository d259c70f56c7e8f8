"""`dynconv data`: list, fetch and prepare corpora."""

import argparse
from typing import get_args

from dynconv.choices import VocabularyKind
from dynconv.cli.options import add_command, keywords_of, number_type, parse_path, say
from dynconv.text.vocabulary import DEFAULT_KIND, DEFAULT_SIZE


def add_parser(subparsers) -> None:
    """Add `dynconv data list`, `fetch` and `prepare`."""
    data = subparsers.add_parser("data", help="List, fetch or prepare corpora.")
    commands = data.add_subparsers(required=True, metavar="COMMAND")
    add_command(commands, "list", run_list)
    add_fetch(commands)
    add_prepare(commands)


def run_list(options) -> None:
    """List the corpora, both shipped and downloadable."""
    print(corpus_table())


def corpus_table() -> str:
    """Return the table of all corpora, one per line."""
    from dynconv.table import align
    from dynconv.text.corpus import SPLITS
    from dynconv.text.manifest import read_manifest

    rows = [("name", "kind", "suffixes", "train / valid / test lines", "licence", "status")]
    for entry in read_manifest().values():
        lines = entry.sentences
        each = (f"{lines[split]:,}" if split in lines else "-" for split in SPLITS)
        counts = " / ".join(each) if lines else "not counted"
        suffixes = "-".join(entry.suffixes)
        rows.append((entry.name, entry.kind, suffixes, counts, entry.licence, entry.status))
    return "\n".join(align(rows))


def add_fetch(commands) -> None:
    parser = add_command(commands, "fetch", run_fetch)
    parser.add_argument("name")
    parser.add_argument(
        "--out", type=parse_path, metavar="DIR", help="where to keep it (default: data/raw/NAME)"
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=parse_path,
        metavar="DIR",
        help="use the files of this directory instead of downloading them",
    )


def run_fetch(options) -> None:
    """Download a corpus and verify its checksums."""
    from dynconv.text.fetch import fetch

    fetch(**keywords_of(options), say=say)


def add_prepare(commands) -> None:
    parser = add_command(commands, "prepare", run_prepare)
    parser.add_argument(
        "corpus", metavar="NAME", help="a corpus of data list, or a directory of text"
    )
    sides = parser.add_mutually_exclusive_group()
    sides.add_argument(
        "--suffixes",
        nargs="+",
        metavar="SUFFIX",
        help="suffixes of the text files: source and target, or one for a language model "
        "(default: as data list shows them)",
    )
    sides.add_argument(  # the name in version 0.1
        "--languages",
        dest="suffixes",
        nargs="+",
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
    )
    parser.add_argument(
        "--vocab-size",
        type=number_type("VocabSize"),
        nargs="+",
        metavar="N",
        help="number of types in the joint vocabulary, or in the vocabularies of source and target "
        f"(default: {DEFAULT_SIZE}, or the size of --reuse)",
    )
    parser.add_argument(
        "--vocabulary",
        dest="kind",
        choices=get_args(VocabularyKind),
        help="byte-pair encoding of any text (bytes) or of tokenised words (bpe), or "
        f"whole words (default: the kind of --reuse, else {DEFAULT_KIND})",
    )
    parser.add_argument(
        "--raw", type=parse_path, metavar="DIR", help="where data fetch --out put it"
    )
    parser.add_argument(
        "--reuse",
        type=parse_path,
        metavar="FILE",
        help="use this vocabulary.json instead of learning one",
    )
    parser.add_argument(
        "--out", type=parse_path, metavar="DIR", help="where to write it (default: prepared/NAME)"
    )


def run_prepare(options) -> None:
    """Encode a corpus once into files that training maps into memory."""
    from dynconv.text.prepare import prepare_corpus

    say(prepare_corpus(**keywords_of(options), say=say))
