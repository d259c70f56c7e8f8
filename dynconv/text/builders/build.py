"""Builds a corpus by the function that its manifest entry names, `build: NAME.FUNCTION`.

FUNCTION(raw, out) of builders/NAME.py writes out/SPLIT.SUFFIX, and returns the number of lines of
each split.
"""

import json
import os
import shutil
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from dynconv.errors import UserError, quoted, warn
from dynconv.files import MARK, claim, disk_errors, locked
from dynconv.schema import Count, validated
from dynconv.text.builders.steps import MissingRawFileError
from dynconv.text.fetch import Say, fetch_command, say_nothing, unpack_corpus
from dynconv.text.manifest import CorpusEntry, require_corpus


def unpack_and_build(
    name: str, raw: Path | None, out: Path, say: Say = say_nothing
) -> dict[str, int]:
    """Unpack the archives of a corpus and build its text, unless `out` contains it already.

    raw  the directory of the fetched archives; None: data/raw/NAME
    """
    if not (out / "counts.json").is_file():
        if needed := require_corpus(name).needs:
            import_module(needed)  # if it is missing, the command says how to install it
        raw = unpack_corpus(name, raw, say=say)
    return build_corpus(name, raw or out, out, say)  # what was built before needs no raw files


def build_corpus(name: str, raw: Path, out: Path, say: Say = say_nothing) -> dict[str, int]:
    """Build the text of a corpus in the manifest and return the number of lines per split.

    raw  the directory of the unpacked archives
    out  the new directory, called OUT.part until it is complete; an interrupted build resumes there

    Raises UserError if a raw file is missing, is in the wrong language, or has fewer lines than its
    translation, and if the disk cannot be written. Prints a warning if a split does not have the
    published number of lines.
    """
    entry = require_corpus(name)
    record = out / "counts.json"
    part = out.with_name(out.name + ".part")
    if record.is_file():
        say(f"{out}: using the text that was built before")
    elif out.exists():
        raise UserError(f"{out} is not a built corpus: remove it, or give another directory")
    else:
        try:
            with disk_errors(part, "name another directory"):
                out.parent.mkdir(parents=True, exist_ok=True)
                lock = out.with_name(out.name + ".lock")
                with locked(lock, f"{out}: another process is building it"):
                    if not record.is_file():  # else another process has just finished it
                        write_corpus(entry, raw, part)
                        os.replace(part, out)
                        (out / MARK).unlink()
        except MissingRawFileError as error:
            raise UserError(f"{error}: {how_to_fetch_again(entry, raw)}") from None
    counts = json.loads(record.read_text(encoding="utf-8"))
    for split, expected in entry.sentences.items():
        if (lines := counts.get(split, 0)) != expected:
            warn(
                f"{name}: {lines:,} lines in split {split} instead of {expected:,}: are the raw "
                f"files complete? remove {out} to build it again"
            )
    return counts


def write_corpus(entry: CorpusEntry, raw: Path, part: Path) -> None:
    build = require_builder(entry)
    claim(part, "move it elsewhere, or name another directory")
    counts = validated(dict[str, Count], build(raw, part), f"{entry.build} must return line counts")
    if not any(counts.values()):
        raise MissingRawFileError(f"{raw}: its files contain no usable line")
    shutil.rmtree(part / "stages", ignore_errors=True)
    (part / "counts.json").write_text(json.dumps(counts), encoding="utf-8")


def require_builder(entry: CorpusEntry) -> Callable[[Path, Path], dict[str, int]]:
    """Return the function that the entry `build` names. Raises UserError if there is none."""
    name, _, function = entry.build.partition(".")
    module = f"dynconv.text.builders.{name}"
    build = getattr(import_module(module), function, None) if name and find_spec(module) else None
    if build is None:
        raise UserError(
            f"manifest.yaml: corpus {entry.name}: build {quoted(entry.build)} does not name a "
            "function in dynconv/text/builders as NAME.FUNCTION"
        )
    return build


def how_to_fetch_again(entry: CorpusEntry, raw: Path) -> str:
    """Return how to get raw files again: `fetch` skips an archive whose folder exists."""
    archives = {file.stem: file for file in entry.files if (raw / file.stem).is_dir()}
    again = f"{fetch_command(entry, raw)}, or dynconv data fetch with --from DIR for your own copy"
    if not archives:
        return again
    doubtful = ", ".join(file.name for file in archives.values() if not file.checksums)
    more = f"; if that does not help, also remove {doubtful}" if doubtful else ""
    return f"in {raw} remove the folder {' or '.join(archives)}; then {again}{more}"
