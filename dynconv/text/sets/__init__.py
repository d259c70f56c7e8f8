"""The papers' data sets: from unpacked raw archives to plain files of tokenised text."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from dynconv.config.files import locked, refusal
from dynconv.errors import UserError, nearest
from dynconv.text.catalog import find_corpus
from dynconv.text.fetch import unpack_corpus
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
"""each takes (raw, out), writes out/SPLIT.SUFFIX and returns the number of lines per split"""


def corpus_text(name: str, raw: Path | None, out: Path) -> tuple[Path, dict[str, int]]:
    """Build one of the SETS as text unless it is there; return its directory and line counts.

    raw: where its archives were fetched to; None means data/raw/NAME
    """
    if (out / "counts.json").is_file():
        return out, build_corpus(name, out, out)
    if name == "wmt17-zh-en" and find_spec("jieba") is None:
        raise UserError(
            "Chinese has no spaces between words; to find them: pip install 'dynconv[chinese]'"
        )
    return out, build_corpus(name, unpack_corpus(name, raw), out)


def build_corpus(name: str, raw: Path, out: Path) -> dict[str, int]:
    """Build one of the SETS as text and return how many lines each split has.

    raw  the directory of its unpacked archives
    out  the new directory. Until it is complete it is named OUT.part, from which the same command
         continues after an interruption

    Raises UserError when a raw file is missing, is in another language, or has another number of
    lines than its other side, and when the disk cannot be written. Prints a warning when a split
    has another number of lines than published.
    """
    if name not in SETS:
        raise UserError(f"no data set {name!r} to prepare; {nearest(name, SETS, 'there are')}")
    record = out / "counts.json"
    part = out.with_name(out.name + ".part")
    if record.is_file():
        print(f"{out}: text of an earlier preparation")
    elif out.exists():
        raise UserError(f"{out}: something else is there: remove it, or give another directory")
    else:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            with locked(out.with_name(out.name + ".lock"), f"{out}: another preparation makes it"):
                if not record.is_file():  # else it was made a moment ago
                    _write(name, raw, part)
                    os.replace(part, out)
        except Missing as error:
            raise UserError(f"{error}: {_remedy(name, raw)}") from None
        except OSError as error:
            why = refusal(error, "give another --out DIR")
            raise UserError(f"{part}: cannot write there: {why}") from None
    found = json.loads(record.read_text(encoding="utf-8"))
    warn_of_counts(name, found, out)
    return found


def _write(name: str, raw: Path, part: Path) -> None:
    part.mkdir(exist_ok=True)
    found = SETS[name](raw, part)
    if not found:
        raise Missing(f"{raw}: its files hold no usable line")
    shutil.rmtree(part / "stages", ignore_errors=True)
    (part / "counts.json").write_text(json.dumps(found), encoding="utf-8")


def _remedy(name: str, raw: Path) -> str:
    """Say how to get raw files again; `fetch` takes an existing folder for an unpacked archive."""
    entry = find_corpus(name)
    archives = {file.stem: file for file in entry.files if (raw / file.stem).is_dir()}
    where = "" if raw == entry.directory else f" --out {raw}"
    again = f"dynconv data fetch {name}{where}, or the same with --from DIR for a copy of yours"
    if not archives:
        return again
    doubtful = [file.name for file in archives.values() if not file.known_hash]
    more = f"; should that not help, remove {', '.join(doubtful)}, too" if doubtful else ""
    return f"in {raw} remove the folder {' or '.join(archives)}; then {again}{more}"


def warn_of_counts(name: str, found: dict[str, int], out: Path) -> None:
    """Warn on stderr about each split that has another number of lines than the manifest says."""
    for split, known in (find_corpus(name).sentences or {}).items():
        if found.get(split, 0) != known:
            print(
                f"dynconv: {name}: {found.get(split, 0):,} lines in split {split}, {known:,} are "
                f"known: are the raw files the same? remove {out} to make it again",
                file=sys.stderr,
            )
