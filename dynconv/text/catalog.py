"""What corpora there are, which of them are here, and what their files must be."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dynconv.errors import UserError, nearest
from dynconv.text.archive import stem
from dynconv.text.corpus import data_dir, raw_dir

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class CorpusFile:
    """One file of a corpus, as the manifest describes it."""

    name: str
    urls: tuple[str, ...] = ()
    """mirrors, in the order they are tried; none where it is shipped or given to licensees alone"""
    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None
    """of the three, None where no public source states it"""

    @property
    def verifiable(self) -> bool:
        return bool(self.sha256 or self.md5)

    def fault(self, path: Path) -> str | None:
        """How the file at `path` differs from the description; None where it does not."""
        size = path.stat().st_size
        if self.bytes not in (None, size):
            return f"it has {size:,} bytes, the manifest says {self.bytes:,}"
        for kind in ("sha256", "md5"):
            wanted = getattr(self, kind)
            if wanted and (found := checksum(path, kind)) != wanted:
                return f"{kind} is {found}, the manifest says {wanted}"
        return None

    def verified(self, path: Path) -> str:
        """What is known of a file without fault, for the user."""
        if self.verifiable:
            return f"{'sha256' if self.sha256 else 'md5'} verified"
        return f"sha256 {checksum(path, 'sha256')}, not verified: the manifest records none"


@dataclass(frozen=True)
class Entry:
    """One corpus of data/manifest.yaml."""

    name: str
    kind: str
    """translation | language-model | summarisation"""
    languages: tuple[str, ...]
    sentences: dict[str, int] | None
    """lines of each split, of those that are known"""
    licence: str
    description: str
    citation: str
    files: tuple[CorpusFile, ...]
    shipped: bool
    sides: tuple[str, ...] = ()
    """endings of source and target, or of a language model's text, where not the languages"""
    note: str = ""
    """what there is to know before it is fetched"""

    @property
    def directory(self) -> Path:
        """Where its files are, or will be once fetched."""
        return (data_dir() if self.shipped else raw_dir()) / self.name

    @property
    def status(self) -> str:
        """shipped | fetched | partly fetched | to fetch | by licence"""
        if self.shipped:
            return "shipped"
        missing = self.missing(self.directory)
        if not missing:
            return "fetched"
        if len(missing) < len(self.files):
            return "partly fetched"
        return "to fetch" if all(file.urls for file in missing) else "by licence"

    def missing(self, directory: Path) -> list[CorpusFile]:
        """The files that are neither in a directory nor, as archives, unpacked there."""
        return [
            file
            for file in self.files
            if not (directory / file.name).is_file() and not (directory / stem(file.name)).is_dir()
        ]


def entries() -> list[Entry]:
    """The corpora of the manifest, in its order."""
    try:
        import yaml
    except ImportError:
        raise UserError("the list of corpora needs PyYAML: pip install pyyaml") from None

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


def listing() -> str:
    """The table of all corpora, one a line under a heading."""
    rows = [("name", "kind", "languages", "train / valid / test lines", "licence", "status")]
    for entry in entries():
        lines = entry.sentences or {}
        counts = [f"{lines[split]:,}" if split in lines else "-" for split in SPLITS]
        counts = " / ".join(counts) if lines else "not counted"
        languages = "-".join(entry.languages)
        rows.append((entry.name, entry.kind, languages, counts, entry.licence, entry.status))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


def sides(corpus: str, asked: Sequence[str] | None = None) -> Sequence[str]:
    """The endings of a corpus's files, source and target, or a language model's text: those asked
    for, else all of them.

    Raises UserError where a known corpus lacks one, or they are to be known of another's directory.
    """
    known = {entry.name: entry.sides or entry.languages for entry in entries()}
    if corpus in known:
        if lacking := " or ".join(side for side in asked or () if side not in known[corpus]):
            raise UserError(f"{corpus} has no side {lacking}: it has {', '.join(known[corpus])}")
        return asked or known[corpus]
    if not asked:
        if not Path(corpus).is_dir():
            find(corpus)
        raise UserError(f"{corpus}: of which languages? give --languages SOURCE TARGET")
    return asked


def find(name: str) -> Entry:
    known = {entry.name: entry for entry in entries()}
    if name in known:
        return known[name]
    hint = nearest(name, known, "there are")
    raise UserError(f"no corpus {name!r} in the manifest; {hint}")


def check() -> None:
    """Verify the checksum of every shipped file, without a network."""
    for entry in filter(lambda entry: entry.shipped, entries()):
        for file in entry.files:
            path = entry.directory / file.name
            if not path.is_file():
                raise UserError(f"{path}: no such file, but the manifest lists it as shipped")
            if fault := file.fault(path):
                raise UserError(f"{path}: {fault}")


def checksum(path: Path, kind: str) -> str:
    """The "sha256" or "md5" of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()
