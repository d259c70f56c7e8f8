"""The papers' data sets: from raw archives, unpacked, to clean words in plain files."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from dynconv.errors import UserError, nearest
from dynconv.text.catalog import find
from dynconv.text.fetch import fetched
from dynconv.text.sets import iwslt, language, summaries, wmt
from dynconv.text.sets.raw import Missing

SETS: dict[str, Callable[[Path, Path], dict[str, int]]] = {
    "iwslt14-de-en": iwslt.iwslt14_de_en,
    "wmt16-en-de": wmt.wmt16_en_de,
    "wmt14-en-de": wmt.wmt14_en_de,
    "wmt14-en-fr": wmt.wmt14_en_fr,
    "wmt17-zh-en": wmt.wmt17_zh_en,
    "wmt16-en-ro": wmt.wmt16_en_ro,
    "billion-word": language.billion_word,
    "wikitext-103": language.wikitext_103,
    "cnn-dailymail": summaries.cnn_dailymail,
    "gigaword": summaries.gigaword,
    "duc-2004": summaries.duc_2004,
}
"""(raw, out) writes out/SPLIT.SUFFIX and returns the lines of each split"""


def text_of(name: str, raw: Path | None, out: Path) -> tuple[Path, dict[str, int]]:
    """The directory of one of the SETS as text, built if need be, and the lines of each split.

    raw  where its archives were fetched to; None: data/raw/NAME
    """
    whole = (out / "counts.json").is_file()
    return out, build(name, out if whole else fetched(name, raw), out)


def build(name: str, raw: Path, out: Path) -> dict[str, int]:
    """Prepare one of the SETS; returns how many lines each split has.

    raw  the directory of its unpacked archives
    out  it appears under this name only when it is whole. Until then it is OUT.part, and the same
         command goes on from the raw files that were finished there

    Raises UserError when a raw file is missing, is of other languages, or has more lines than its
    other side; or when the disk does not take it. Other numbers of lines than published: a warning.
    """
    if name not in SETS:
        raise UserError(f"no data set {name!r} to prepare; {nearest(name, SETS, 'there are')}")
    record = out / "counts.json"
    if record.is_file():
        return json.loads(record.read_text(encoding="utf-8"))
    if out.exists():
        raise UserError(f"{out}: something else is there: remove it, or give another directory")
    part = out.with_name(out.name + ".part")
    try:
        part.mkdir(parents=True, exist_ok=True)
        found = SETS[name](raw, part)
        if not found:
            raise Missing(f"{raw}: its files hold no usable line")
        shutil.rmtree(part / "stages", ignore_errors=True)
        (part / record.name).write_text(json.dumps(found), encoding="utf-8")
        os.replace(part, out)
    except Missing as error:
        remedy = f"dynconv data fetch {name}, or the same with --from DIR for a copy of yours"
        raise UserError(f"{error}: {remedy}") from None
    except OSError as error:
        raise UserError(f"{part}: cannot write there: {error.strerror or error}") from None
    compare(name, found)
    return found


def compare(name: str, found: dict[str, int]) -> None:
    """A warning on stderr for each split whose number of lines is known to be another."""
    for split, known in (find(name).sentences or {}).items():
        if found.get(split, 0) != known:
            print(
                f"dynconv: {name}: {found.get(split, 0):,} lines in split {split}, {known:,} are "
                "known: are the raw files the same?",
                file=sys.stderr,
            )
