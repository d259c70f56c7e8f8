"""What corpora there are, which of them are here, and how to get the others."""

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dynconv.errors import UserError, nearest
from dynconv.files import sha256
from dynconv.text.corpus import data_dir


@dataclass(frozen=True)
class CorpusFile:
    """One file of a corpus; `url` is None when it is shipped."""

    name: str
    url: str | None
    sha256: str | None
    """None while nobody has recorded it"""


@dataclass(frozen=True)
class Entry:
    """One corpus of data/manifest.yaml."""

    name: str
    kind: str
    """translation | language-model | summarisation"""
    languages: tuple[str, ...]
    sentences: dict[str, int] | None
    """lines of each split; None where they have not been counted"""
    licence: str
    description: str
    citation: str
    files: tuple[CorpusFile, ...]

    @property
    def shipped(self) -> bool:
        return all(file.url is None for file in self.files)

    @property
    def directory(self) -> Path:
        """Where its files are, or will be once fetched."""
        return data_dir() / self.name if self.shipped else data_dir() / "raw" / self.name

    @property
    def status(self) -> str:
        """shipped | fetched | to fetch"""
        if self.shipped:
            return "shipped"
        here = all((self.directory / file.name).is_file() for file in self.files)
        return "fetched" if here else "to fetch"


def entries() -> list[Entry]:
    """The corpora of the manifest, in its order."""
    try:
        import yaml
    except ImportError:
        raise UserError("the list of corpora needs PyYAML: pip install pyyaml") from None

    manifest = yaml.safe_load((data_dir() / "manifest.yaml").read_text(encoding="utf-8"))
    return [_entry(fields) for fields in manifest["corpora"]]


def _entry(fields: dict) -> Entry:
    files = tuple(
        CorpusFile(
            name=file["path"] if "path" in file else file["url"].rsplit("/", 1)[1],
            url=file.get("url"),
            sha256=file["sha256"],
        )
        for file in fields["files"]
    )
    return Entry(**{**fields, "languages": tuple(fields["languages"]), "files": files})


def listing() -> str:
    """The table of all corpora, one a line under a heading."""
    rows = [("name", "kind", "languages", "train / valid / test lines", "licence", "status")]
    for entry in entries():
        counts = " / ".join(f"{n:,}" for n in (entry.sentences or {}).values()) or "not counted"
        languages = "-".join(entry.languages)
        rows.append((entry.name, entry.kind, languages, counts, entry.licence, entry.status))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


def fetch(name: str, out: Path | None) -> list[Path]:
    """Download a corpus into `out` (default: data/raw/NAME) and verify its recorded checksums.

    Files that are already there are verified and not downloaded again. A download appears under
    its name only when it is complete and verified.
    """
    entry = _find(name)
    if entry.shipped:
        print(f"{name} is shipped with dynconv and needs no fetching: {entry.directory}")
        return [entry.directory / file.name for file in entry.files]
    return [_download(file, out or entry.directory) for file in entry.files]


def languages(corpus: str) -> tuple[str, str]:
    """Source and target of a corpus of the manifest, as it lists them."""
    for entry in entries():
        if entry.name == corpus and len(entry.languages) == 2:
            return entry.languages
    raise UserError(f"{corpus}: of which languages? give --languages SOURCE TARGET")


def _find(name: str) -> Entry:
    known = {entry.name: entry for entry in entries()}
    if name in known:
        return known[name]
    hint = nearest(name, known, "there are")
    raise UserError(f"no corpus {name!r} in the manifest; {hint}")


def _download(file: CorpusFile, directory: Path) -> Path:
    try:
        import pooch
        import requests
    except ImportError:
        raise UserError("fetching a corpus needs pooch: pip install pooch") from None

    pooch.get_logger().setLevel("WARNING")  # its hints on hashes are for programmers
    bar = sys.stderr.isatty() and find_spec("tqdm") is not None
    known = file.sha256 and f"sha256:{file.sha256}"
    try:
        path = Path(pooch.retrieve(file.url, known, file.name, directory, progressbar=bar))
    except requests.RequestException as error:  # first, since it is an OSError too
        raise UserError(f"could not fetch {file.url}: {_one_line(error)}") from None
    except OSError as error:
        raise UserError(f"cannot save {file.url} in {directory}: {_one_line(error)}") from None
    except ValueError as error:  # pooch's word for a wrong checksum; it kept nothing
        raise UserError(f"wrong checksum of {file.url}: {_one_line(error)}") from None
    if file.sha256 is None:
        print(f"{path}: sha256 {sha256(path)}, not verified: the manifest records none")
    else:
        print(f"{path}: sha256 verified")
    return path


def check() -> None:
    """Verify the checksum of every shipped file, without a network."""
    for entry in filter(lambda entry: entry.shipped, entries()):
        for file in entry.files:
            path = entry.directory / file.name
            if not path.is_file():
                raise UserError(f"{path}: no such file, but the manifest lists it as shipped")
            if (found := sha256(path)) != file.sha256:
                raise UserError(f"{path}: sha256 is {found}, the manifest says {file.sha256}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
