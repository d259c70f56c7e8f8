"""Builds the text of a corpus, and encodes it, for `dynconv data prepare`."""

import os
from collections.abc import Sequence
from pathlib import Path

from dynconv.choices import VocabularyKind
from dynconv.errors import UserError
from dynconv.text.builders.build import unpack_and_build
from dynconv.text.corpus import PREPARED, corpus_dir
from dynconv.text.encode import encode_corpus
from dynconv.text.fetch import Say, say_nothing
from dynconv.text.manifest import corpus_sides, read_manifest
from dynconv.text.vocabulary import DEFAULT_KIND, DEFAULT_SIZE, Vocabularies
from dynconv.yaml12 import as_override


def prepare_corpus(
    corpus: str,
    suffixes: Sequence[str] | None,
    vocab_size: Sequence[int] | None,
    kind: VocabularyKind | None,
    *,
    raw: Path | None,
    reuse: Path | None,
    out: Path | None,
    say: Say = say_nothing,
) -> str:
    """Prepare a corpus of the manifest, or a directory of text; return a line on how to train.

    corpus      the name of the corpus, or a directory of text
    suffixes    the suffixes of source and target, or one for a language model
    vocab_size  vocabulary sizes of source and target, or one size for both together
    kind        the kind of vocabulary (default: the kind of `reuse`, or bytes)
    raw         the directory of the fetched archives (default: data/raw/NAME)
    reuse       a vocabulary.json to use instead of learning one
    out         the directory to write (default: prepared/NAME)

    Raises UserError for an argument that has no effect.
    """
    check_arguments(suffixes, vocab_size)
    sides = corpus_sides(corpus, suffixes)
    source, target = as_pair(sides)
    if vocab_size and len(vocab_size) > len(sides):
        sizes = " ".join(map(str, vocab_size))
        raise UserError(f"vocab_size {sizes}: a language model has one vocabulary: give one size")
    out = out or Path(PREPARED) / os.path.basename(os.path.realpath(corpus))
    kind, size = choose_vocabulary(kind, vocab_size, reuse)
    entry = read_manifest().get(corpus)
    downloaded = entry is not None and not entry.shipped
    if raw and not downloaded:
        raise UserError(
            f"raw directory {raw} has no effect: {corpus} is text already; leave it out"
        )
    text: str | Path = corpus
    if downloaded:
        text = out.with_name(f"{corpus}-text")
        if "train" not in unpack_and_build(corpus, raw, text, say):
            return f"{text}: no training split; dynconv evaluate RUN --corpus {text} uses its test"
    prepared = encode_corpus(str(text), source, target, size, out, kind, reuse)
    tokens = f"{prepared.source_tokens:,} {source} and " if source else ""
    named = out if corpus_dir(str(out)) == out else out.absolute()  # not a shipped one of this name
    return (
        f"{out}: {prepared.lines:,} lines, {tokens}{prepared.target_tokens:,} {target} tokens; "
        f"train with data.corpus={named} data.source={as_override(source)} data.target={target} "
        f"data.vocabulary={prepared.vocabulary_kind} model.vocab_size={as_override(size)}"
    )


def check_arguments(suffixes: Sequence[str] | None, vocab_size: Sequence[int] | None) -> None:
    """Raise UserError if there are more values than a corpus has sides, or a suffix twice."""
    for name, values in {"suffixes": suffixes, "vocab_size": vocab_size}.items():
        if values and len(values) > 2:
            given = " ".join(map(str, values))
            raise UserError(f"{name} {given}: one value, or two, not more")
    if suffixes and len({*suffixes}) < len(suffixes):
        given = " ".join(suffixes)
        raise UserError(f"suffixes {given}: name two different ones, or one for a language model")


def choose_vocabulary(
    kind: VocabularyKind | None, vocab_size: Sequence[int] | None, reuse: Path | None
) -> tuple[VocabularyKind, int | tuple[int, int]]:
    """Return kind and size of the vocabulary: requested, of `reuse`, or the defaults."""
    reused = Vocabularies.load(reuse) if reuse else None
    if reused and kind not in (None, reused.target.kind):
        raise UserError(f"vocabulary {kind} has no effect: {reuse} is not of {kind}; leave it out")
    chosen = reused.target.kind if reused else kind or DEFAULT_KIND
    if vocab_size is None:
        return chosen, reused.vocab_size if reused else DEFAULT_SIZE
    of_source, of_target = as_pair(vocab_size)
    return chosen, (of_source, of_target) if of_source else of_target


def as_pair(values: Sequence) -> tuple:
    """Return the values for source and target; None for the source if there is only one."""
    return (None, *values) if len(values) == 1 else tuple(values)
