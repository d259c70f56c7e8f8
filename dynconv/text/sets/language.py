"""The corpora of the language models: already words, so they are copied line by line."""

from pathlib import Path

from dynconv.text.corpus import stream_lines
from dynconv.text.sets.raw import Missing, find
from dynconv.text.sets.splits import write


def billion_word(raw: Path, out: Path) -> dict[str, int]:
    """Chelba et al. 2013: the 99 training shards; of 50 held-out ones the first tests, as in all
    papers since. Which validates is not published; ours is the second."""
    train = sorted(raw.rglob("training-monolingual.tokenized.shuffled/news.en-*-of-00100"))
    if not train:
        raise Missing(f"{raw}: no training-monolingual.tokenized.shuffled/news.en-* there")
    test, valid = (find(raw, f"news.en.heldout-0000{shard}-of-00050") for shard in (0, 1))
    return _copy(out, {"train": train, "valid": [valid], "test": [test]})


def wikitext_103(raw: Path, out: Path) -> dict[str, int]:
    """Merity et al. 2017. Blank lines stay: with an <eos> a line, theirs too, the training text
    has the 103,227,021 tokens that are published."""
    names = {split: f"wiki.{split}.tokens" for split in ("train", "valid", "test")}
    return _copy(out, {split: [find(raw, name)] for split, name in names.items()})


def _copy(out: Path, files: dict[str, list[Path]]) -> dict[str, int]:
    lines = (
        (split, (line.strip(" "),))
        for split, paths in files.items()
        for path in paths
        for line in stream_lines(path)
    )
    return write(out, ("txt",), lines)
