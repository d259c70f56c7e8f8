"""The manifest of corpora: their files, checksums and licences, and which of them are here."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dynconv.errors import UserError, nearest
from dynconv.text.corpus import data_dir, raw_dir

SPLITS = ("train", "valid", "test")
ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip", ".gz")


@dataclass(frozen=True)
class CorpusFile:
    """One file of a corpus, as the manifest describes it."""

    name: str
    urls: tuple[str, ...] = ()
    """mirrors in the order in which they are tried; none if it is shipped or for licensees only"""
    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None
    """bytes, sha256 and md5 are None where no public source states them"""

    @property
    def stem(self) -> str:
        """The name without the suffix of an archive; the name itself for another file."""
        ends = (end for end in ARCHIVES if self.name.endswith(end))
        return self.name.removesuffix(next(ends, ""))

    @property
    def known_hash(self) -> str | None:
        """The checksum as pooch expects it, "sha256:..." or "md5:..."; None where none is known."""
        if self.sha256:
            return f"sha256:{self.sha256}"
        return f"md5:{self.md5}" if self.md5 else None

    def is_packed(self, directory: Path) -> bool:
        """Whether it is an archive that is not unpacked in a directory."""
        return self.stem != self.name and not (directory / self.stem).is_dir()

    def mismatch(self, path: Path) -> str | None:
        """Say how the file at `path` differs from this description; None if it does not."""
        size = path.stat().st_size
        if self.bytes not in (None, size):
            return f"it has {size:,} bytes, the manifest says {self.bytes:,}"
        for kind in ("sha256", "md5"):
            wanted = getattr(self, kind)
            if wanted and (found := checksum(path, kind)) != wanted:
                return f"{kind} is {found}, the manifest says {wanted}"
        return None

    def verified(self, path: Path) -> str:
        """Say how the file at `path`, which has no mismatch, was verified."""
        if self.known_hash:
            return f"{self.known_hash.partition(':')[0]} verified"
        return f"sha256 {checksum(path, 'sha256')}, not verified: the manifest records none"


@dataclass(frozen=True)
class Entry:
    """One corpus of data/manifest.yaml."""

    name: str
    kind: str
    """translation | language-model | summarisation"""
    languages: tuple[str, ...]
    sentences: dict[str, int] | None
    """lines of each split, as far as they are known"""
    licence: str
    description: str
    citation: str
    files: tuple[CorpusFile, ...]
    shipped: bool
    sides: tuple[str, ...] = ()
    """endings of the files of source and target, or of the one text, if not the languages"""
    note: str = ""
    """what to know before fetching it"""

    @property
    def directory(self) -> Path:
        """The directory of its files, which may not have been fetched yet."""
        return (data_dir() if self.shipped else raw_dir()) / self.name

    @property
    def status(self) -> str:
        """shipped | fetched | partly fetched | to fetch | by licence"""
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
        return [
            file
            for file in self.files
            if not (directory / file.name).is_file() and not (directory / file.stem).is_dir()
        ]


def read_manifest() -> list[Entry]:
    """Return the corpora of data/manifest.yaml, in its order."""
    import yaml

    manifest = yaml.safe_load((data_dir() / "manifest.yaml").read_text(encoding="utf-8"))
    return [_entry(fields) for fields in manifest["corpora"]]


def _entry(fields: dict) -> Entry:
    files = [
        CorpusFile(
            name=file.get("path") or file["name"],
            urls=tuple(file.get("urls", ())),
            **{key: file[key] for key in ("bytes", "sha256", "md5") if key in file},
        )
        for file in fields["files"]
    ]
    shipped = all("path" in file for file in fields["files"])
    changed = {key: tuple(fields.get(key, ())) for key in ("languages", "sides")}
    return Entry(**{**fields, **changed, "files": tuple(files), "shipped": shipped})


def corpus_table() -> str:
    """Return the table of all corpora that `dynconv data list` prints, one per line."""
    rows = [("name", "kind", "languages", "train / valid / test lines", "licence", "status")]
    for entry in read_manifest():
        lines = entry.sentences or {}
        counts = [f"{lines[split]:,}" if split in lines else "-" for split in SPLITS]
        counts = " / ".join(counts) if lines else "not counted"
        languages = "-".join(entry.languages)
        rows.append((entry.name, entry.kind, languages, counts, entry.licence, entry.status))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


def corpus_sides(corpus: str, asked: Sequence[str] | None = None) -> Sequence[str]:
    """Return the sides of a corpus, the endings of its files: those asked for, else all of them.

    They are source and target, or the one side of a language model's text. Raises UserError when a
    corpus of the manifest lacks a side, or when none is asked for and the corpus is a directory.
    """
    known = {entry.name: entry.sides or entry.languages for entry in read_manifest()}
    if corpus in known:
        if absent := " or ".join(side for side in asked or () if side not in known[corpus]):
            raise UserError(f"{corpus} has no side {absent}: it has {', '.join(known[corpus])}")
        return asked or known[corpus]
    if not asked:
        if not Path(corpus).is_dir():
            find_corpus(corpus)
        raise UserError(f"{corpus}: of which languages? give --languages SOURCE TARGET")
    return asked


def find_corpus(name: str) -> Entry:
    """Return a corpus of the manifest by its name; UserError with the nearest name if unknown."""
    known = {entry.name: entry for entry in read_manifest()}
    if name in known:
        return known[name]
    hint = nearest(name, known, "there are")
    raise UserError(f"no corpus {name!r} in the manifest; {hint}")


def checksum(path: Path, kind: str) -> str:
    """Return the "sha256" or "md5" of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()
