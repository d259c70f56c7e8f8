"""`dynconv data`: list, fetch and prepare corpora."""

from collections.abc import Sequence
from pathlib import Path

from dynconv.cli.options import add_command, number


def add_parser(subparsers) -> None:
    """Add `dynconv data list`, `fetch` and `prepare`."""
    data = subparsers.add_parser("data", help="List, fetch or prepare corpora.")
    commands = data.add_subparsers(required=True, metavar="COMMAND")
    add_command(commands, "list", run_list)

    parser = add_command(commands, "fetch", run_fetch)
    parser.add_argument("name")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to keep it (default: data/raw/NAME)"
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="use the files of this directory instead of downloading them",
    )

    parser = add_command(commands, "prepare", run_prepare)
    parser.add_argument(
        "corpus", metavar="NAME", help="a corpus of data list, or a directory of text"
    )
    parser.add_argument(
        "--languages",
        nargs="+",
        metavar="SUFFIX",
        help="suffixes of the text files: source and target, or one for a language model "
        "(default: as the manifest lists them)",
    )
    parser.add_argument(
        "--vocab-size",
        type=number("VocabSize"),
        nargs="+",
        metavar="N",
        help="number of types in the joint vocabulary, or in those of source and target (default: "
        "32768, or that of --reuse)",
    )
    parser.add_argument(
        "--vocabulary",
        choices=("bytes", "bpe", "words"),
        help="byte-pair encoding of any text (bytes) or of tokenised words (bpe), or "
        "whole words (default: that of --reuse, else bytes)",
    )
    parser.add_argument("--raw", type=Path, metavar="DIR", help="where data fetch --out put it")
    parser.add_argument(
        "--reuse",
        type=Path,
        metavar="FILE",
        help="use this vocabulary.json instead of learning one",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: prepared/NAME")


def run_list(options) -> None:
    """List the corpora, both shipped and downloadable."""
    from dynconv.text.manifest import corpus_table

    print(corpus_table())


def run_fetch(options) -> None:
    """Download a corpus and verify its checksums."""
    from dynconv.text.fetch import fetch

    fetch(options.name, options.out, options.source)


def run_prepare(options) -> None:
    """Encode a corpus once into files that training maps into memory."""
    from dynconv.config import ModelConfig
    from dynconv.errors import UserError
    from dynconv.text import Vocabularies, prepare
    from dynconv.text.manifest import corpus_sides, read_manifest
    from dynconv.text.sets import corpus_text

    source, target = pair(corpus_sides(options.corpus, options.languages), "--languages")
    out = options.out or Path("prepared") / Path(options.corpus).resolve().name
    text, kind = options.corpus, options.vocabulary or "bytes"
    if options.reuse:
        reused = Vocabularies.load(options.reuse)
        kind = options.vocabulary or reused.target.kind
        if kind != reused.target.kind:
            raise UserError(f"--vocabulary {kind} has no effect: {options.reuse} is not of {kind}")
    if source is None and len(options.vocab_size or ()) > 1:
        sizes = " ".join(map(str, options.vocab_size))
        raise UserError(f"--vocab-size {sizes}: a language model has one vocabulary: give one size")
    downloaded = text in read_manifest() and not read_manifest()[text].shipped
    if options.raw and not downloaded:
        raise UserError(f"--raw {options.raw} has no effect: {text} is text already; leave it out")
    if downloaded:
        text = out.with_name(f"{options.corpus}-text")
        if "train" not in corpus_text(options.corpus, options.raw, text):
            print(f"{text}: no training split; dynconv evaluate RUN --corpus {text} uses its test")
            return
    if options.vocab_size:
        of_source, of_target = pair(options.vocab_size, "--vocab-size")
        size = (of_source, of_target) if of_source else of_target
    elif options.reuse:
        size = reused.sizes
    else:
        size = ModelConfig.vocab_size
    corpus = prepare(str(text), source, target, size, out, kind, options.reuse)
    sizes = str(list(size)).replace(" ", "") if isinstance(size, tuple) else size
    tokens = f"{corpus.source_tokens:,} {source} and " if source else ""
    print(
        f"{out}: {corpus.pairs:,} lines, {tokens}{corpus.target_tokens:,} {target} tokens; train "
        f"with data.corpus={out} data.source={source or 'null'} data.target={target} "
        f"data.vocabulary={corpus.kind} model.vocab_size={sizes}"
    )


def pair(values: Sequence, option: str) -> tuple:
    """Return the values for source and target; None for the source if there is only one."""
    from dynconv.errors import UserError

    if len(values) > 2:
        raise UserError(f"{option} {' '.join(map(str, values))}: one value, or two, not more")
    return (None, *values) if len(values) == 1 else tuple(values)
