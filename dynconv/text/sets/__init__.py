"""The papers' data sets: from unpacked raw archives to plain files of tokenised text.

A corpus of the manifest names the function here that builds it, `build: NAME.FUNCTION`. It takes
(raw, out), writes out/SPLIT.SUFFIX, and returns the number of lines of each split.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from dynconv.config.schema import Count, validate
from dynconv.errors import UserError, shown
from dynconv.files import MARK, claim, locked, refusal
from dynconv.text.fetch import unpack_corpus
from dynconv.text.manifest import Entry, find_corpus
from dynconv.text.sets.steps import Missing


def corpus_text(name: str, raw: Path | None, out: Path) -> dict[str, int]:
    """Unpack a fetched corpus and build it as `build_corpus` does, unless its text is there.

    raw  where its archives were fetched to; None means data/raw/NAME
    """
    if not (out / "counts.json").is_file():
        if name == "wmt17-zh-en" and find_spec("jieba") is None:
            raise UserError(
                "Chinese has no spaces between words; to find them: pip install 'dynconv[chinese]'"
            )
        raw = unpack_corpus(name, raw)
    return build_corpus(name, raw, out)


def build_corpus(name: str, raw: Path, out: Path) -> dict[str, int]:
    """Build the text of a corpus of the manifest and return how many lines each split has.

    raw  the directory of its unpacked archives
    out  the new directory. Until it is complete it is named OUT.part, from which the same command
         continues after an interruption

    Raises UserError when a raw file is missing, is in another language, or has another number of
    lines than its other side, and when the disk cannot be written. Prints a warning when a split
    has another number of lines than published.
    """
    entry = find_corpus(name)
    record, part = out / "counts.json", out.with_name(out.name + ".part")
    if record.is_file():
        print(f"{out}: text of an earlier preparation")
    elif out.exists():
        raise UserError(f"{out}: something else is there: remove it, or give another directory")
    else:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            with locked(out.with_name(out.name + ".lock"), f"{out}: another preparation makes it"):
                if not record.is_file():  # else it was made a moment ago
                    _write(entry, raw, part)
                    os.replace(part, out)
                    (out / MARK).unlink()
        except Missing as error:
            raise UserError(f"{error}: {_remedy(entry, raw)}") from None
        except OSError as error:
            why = refusal(error, "give another --out DIR")
            raise UserError(f"{part}: cannot write there: {why}") from None
    counts = json.loads(record.read_text(encoding="utf-8"))
    for split, expected in entry.sentences.items():
        if (lines := counts.get(split, 0)) != expected:
            print(
                f"dynconv: {name}: {lines:,} lines in split {split}, {expected:,} are known: are "
                f"the raw files the same? remove {out} to make it again",
                file=sys.stderr,
            )
    return counts


def _write(entry: Entry, raw: Path, part: Path) -> None:
    build = find_builder(entry)
    claim(part, "move it elsewhere, or give another --out")
    counts = validate(dict[str, Count], build(raw, part), f"{entry.build} must return line counts")
    if not any(counts.values()):
        raise Missing(f"{raw}: its files hold no usable line")
    shutil.rmtree(part / "stages", ignore_errors=True)
    (part / "counts.json").write_text(json.dumps(counts), encoding="utf-8")


def find_builder(entry: Entry) -> Callable[[Path, Path], dict[str, int]]:
    """Return the function that the entry `build` names; UserError if there is none."""
    name, _, function = entry.build.partition(".")
    module = f"dynconv.text.sets.{name}"
    build = getattr(import_module(module), function, None) if name and find_spec(module) else None
    if build is None:
        raise UserError(
            f"manifest.yaml: corpus {entry.name}: build {shown(entry.build)} is no NAME.FUNCTION "
            "of dynconv/text/sets"
        )
    return build


def _remedy(entry: Entry, raw: Path) -> str:
    """Say how to get raw files again; `fetch` takes an existing folder for an unpacked archive."""
    archives = {file.stem: file for file in entry.files if (raw / file.stem).is_dir()}
    where = "" if raw == entry.directory else f" --out {raw}"
    again = f"dynconv data fetch {entry.name}{where}, or the same with --from DIR for your own copy"
    if not archives:
        return again
    doubtful = ", ".join(file.name for file in archives.values() if not file.checksums)
    more = f"; should that not help, remove {doubtful}, too" if doubtful else ""
    return f"in {raw} remove the folder {' or '.join(archives)}; then {again}{more}"
