"""The corpora of the language models: they are tokenised already, so their lines are copied."""

from pathlib import Path

from dynconv.text.builders.steps import MissingRawFileError, require_raw, write_splits
from dynconv.text.corpus import SPLITS
from dynconv.text.lines import stream_lines


def billion_word(raw: Path, out: Path) -> dict[str, int]:
    """Copy the 99 training shards of Chelba et al. 2013 and two of their 50 held-out shards.

    The first held-out shard is the test, as in all papers since. Which one they validate on is not
    published; we take the second.
    """
    train = sorted(raw.rglob("training-monolingual.tokenized.shuffled/news.en-*-of-00100"))
    if not train:
        raise MissingRawFileError(
            f"{raw}: no training-monolingual.tokenized.shuffled/news.en-* there"
        )
    test, valid = (require_raw(raw, f"news.en.heldout-0000{shard}-of-00050") for shard in (0, 1))
    return copy_splits(out, {"train": train, "valid": [valid], "test": [test]})


def wikitext_103(raw: Path, out: Path) -> dict[str, int]:
    """Copy the data of Merity et al. 2017, blank lines included.

    With one <eos> per line, blank or not, the training text has the published 103,227,021 tokens.
    """
    names = {split: f"wiki.{split}.tokens" for split in SPLITS}
    return copy_splits(out, {split: [require_raw(raw, name)] for split, name in names.items()})


def copy_splits(out: Path, files: dict[str, list[Path]]) -> dict[str, int]:
    lines = (
        (split, (line.strip(" "),))
        for split, paths in files.items()
        for path in paths
        for line in stream_lines(path)
    )
    return write_splits(out, ("txt",), lines)
