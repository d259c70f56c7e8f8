"""Reads data/manifest.yaml: the corpora with their files, checksums and licences."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dynconv.errors import UserError, name_hint, quoted
from dynconv.paths import data_dir, raw_dir
from dynconv.yaml12 import read_yaml

ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip", ".gz")
"""suffixes of files that are unpacked; .tar.gz must be tried before .gz"""


@dataclass(frozen=True)
class CorpusFile:
    """A file of a corpus; bytes, sha256 and md5 are None if no public source states them."""

    name: str
    urls: Sequence[str] = ()
    """mirrors in the order to try; none if the file is shipped or only for licensees"""
    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None

    @property
    def stem(self) -> str:
        """The name without the suffix of an archive; for other files, the name itself."""
        ends = (end for end in ARCHIVES if self.name.endswith(end))
        return self.name.removesuffix(next(ends, ""))

    @property
    def checksums(self) -> dict[str, str]:
        """The known checksums in hexadecimal digits, by algorithm."""
        return {kind: digits for kind in ("sha256", "md5") if (digits := getattr(self, kind))}

    def find(self, directory: Path) -> Path | None:
        """Return the path of the file in a directory, or of its folder once unpacked, or None."""
        path, unpacked = directory / self.name, directory / self.stem
        return path if path.is_file() else unpacked if unpacked.is_dir() else None

    def mismatch(self, path: Path) -> str | None:
        """Return how the file at `path` differs from this description, or None.

        A folder that it was unpacked to cannot be compared, so it has no mismatch.
        """
        if path.is_dir():
            return None
        size = path.stat().st_size
        if self.bytes not in (None, size):
            return f"it has {size:,} bytes, the manifest says {self.bytes:,}"
        for kind, expected in self.checksums.items():
            with path.open("rb") as file:
                digits = hashlib.file_digest(file, kind).hexdigest()
            if digits != expected:
                return f"{kind} is {digits}, the manifest says {expected}"
        return None


@dataclass(frozen=True)
class CorpusEntry:
    """A corpus of data/manifest.yaml, which describes the fields."""

    name: str
    kind: str
    languages: Sequence[str]
    licence: str
    description: str
    citation: str
    files: Sequence[CorpusFile]
    sentences: dict[str, int] = field(default_factory=dict)
    sides: Sequence[str] = ()
    note: str = ""
    build: str = ""
    needs: str = ""

    @property
    def suffixes(self) -> Sequence[str]:
        """The suffixes of its text files: of source and target, or of a language model's text."""
        return self.sides or self.languages

    @property
    def shipped(self) -> bool:
        """Whether its text comes with dynconv, in `data/NAME/SPLIT.SUFFIX.xz`, ready to use."""
        return not self.build

    @property
    def directory(self) -> Path:
        """The directory of its files, which may not have been fetched yet."""
        return (data_dir() if self.shipped else raw_dir()) / self.name

    @property
    def status(self) -> str:
        """One of "shipped", "fetched", "partly fetched", "to fetch" and "by licence"."""
        if self.shipped:
            return "shipped"
        missing = self.missing_files(self.directory)
        if not missing:
            return "fetched"
        if len(missing) < len(self.files):
            return "partly fetched"
        return "to fetch" if all(file.urls for file in missing) else "by licence"

    def missing_files(self, directory: Path) -> list[CorpusFile]:
        """Return the files that are neither in a directory nor, as archives, unpacked there."""
        return [file for file in self.files if not file.find(directory)]


def read_manifest() -> dict[str, CorpusEntry]:
    """Return the corpora of data/manifest.yaml by name, in its order."""
    path = data_dir() / "manifest.yaml"
    entries = {}
    for fields in read_yaml(path)["corpora"]:
        try:
            files = [CorpusFile(**file) for file in fields["files"]]
            entries[fields["name"]] = CorpusEntry(**fields | {"files": files})
        except (KeyError, TypeError) as error:
            raise UserError(f"{path}: corpus {fields.get('name')}: {error}") from None
    return entries


def require_corpus(name: str) -> CorpusEntry:
    """Return a corpus of the manifest by its name.

    Raises UserError with the nearest name if it is unknown.
    """
    known = read_manifest()
    if name not in known:
        hint = name_hint(name, known, "there are")
        raise UserError(f"no corpus {quoted(name)} in the manifest; {hint}")
    return known[name]


def corpus_sides(corpus: str, requested: Sequence[str] | None = None) -> Sequence[str]:
    """Return the suffixes of a corpus's files: the requested ones, else all.

    They are source and target, or the one side of a language model's text. Raises UserError when a
    corpus of the manifest lacks a suffix, or when none is requested of a directory.
    """
    known = read_manifest()
    if corpus not in known and requested:
        return requested
    if corpus and corpus not in known and Path(corpus).is_dir():
        raise UserError(
            f"{corpus}: its suffixes are not known: name the suffixes of source and target"
        )
    entry = require_corpus(corpus)
    if absent := " or ".join(side for side in requested or () if side not in entry.suffixes):
        raise UserError(f"{corpus} has no suffix {absent}: it has {', '.join(entry.suffixes)}")
    return requested or entry.suffixes
