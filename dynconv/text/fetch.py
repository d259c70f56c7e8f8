"""Downloads the raw files of a corpus, or copies them from a directory, and unpacks them.

pooch downloads from one address; mirrors, checksums and a lock against a second process are handled
here. An interrupted download starts again. `say` gets a line for each step.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dynconv.errors import UserError
from dynconv.files import LOCK, disk_errors, locked, scratch_folder, set_aside, sha256
from dynconv.text.archive import unpack
from dynconv.text.manifest import CorpusEntry, CorpusFile, require_corpus

TIMEOUT = (10, 60)
"""seconds to connect, and to wait for the next bytes"""

Say = Callable[[str], None]


def say_nothing(text: str) -> None:
    """Say nothing."""


def fetch(
    name: str, out: Path | None = None, source: Path | None = None, *, say: Say = say_nothing
) -> None:
    """Fetch the files of a corpus into `out` (default: data/raw/NAME).

    Existing files that match the manifest are kept. The others are downloaded from the first mirror
    that works or, with `source`, copied from that directory, where a directory STEM may replace the
    archive STEM.tgz.

    Raises UserError, which says what to do next, if a file is not available; the others are kept.
    """
    entry = require_corpus(name)
    if entry.shipped:
        say(f"{name} is shipped with dynconv and needs no fetching: {entry.directory}")
        return
    if source and not source.is_dir():
        raise UserError(f"{source}: no such directory; name the one with your copies")
    directory = out or entry.directory
    wanted = [file for file in entry.files if not verify_existing(file, directory, say)]
    if wanted:
        without_mirror = not source and not all(file.urls for file in wanted)
        note = "" if without_mirror else entry.note  # the error that follows has it
        say(f"{name}: licence: {entry.licence}. {note}".rstrip())
        say(f"{name}: please cite {entry.citation}")
        new = not directory.exists()
        try:
            with locked_scratch(directory) as scratch:
                fetch_files(entry, wanted, source, scratch, say)
        except UserError:
            if new and directory.is_dir() and not any(directory.iterdir()):
                directory.rmdir()
            raise


def unpack_corpus(name: str, out: Path | None = None, *, say: Say = say_nothing) -> Path:
    """Unpack each archive STEM.tgz of a fetched corpus into STEM/ and return their directory.

    `out` is the directory given to `fetch`. Raises UserError if a file is missing.
    """
    entry = require_corpus(name)
    directory = out or entry.directory
    if missing := ", ".join(file.name for file in entry.missing_files(directory)):
        raise UserError(f"{directory} has no {missing}: {fetch_command(entry, directory)} first")
    archives = [file for file in entry.files if file.stem != file.name]
    packed = [file for file in archives if not (directory / file.stem).is_dir()]
    if packed:
        with locked_scratch(directory) as scratch:
            for file in packed:
                say(f"{directory / file.name}: unpacking")
                unpack(directory / file.name, scratch / file.stem)
                (scratch / file.stem).replace(directory / file.stem)
    return directory


def fetch_command(entry: CorpusEntry, directory: Path) -> str:
    """Return the command that fetches the files of a corpus into a directory."""
    if directory == entry.directory:
        return f"dynconv data fetch {entry.name}"
    return f"dynconv data fetch {entry.name} --out {directory}"


@contextmanager
def locked_scratch(directory: Path) -> Iterator[Path]:
    """Lock a directory and yield a folder in it for files that are not whole yet."""
    elsewhere = "fetch into another directory, and prepare from there"
    with disk_errors(directory, elsewhere, kept="the rest is kept"):
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory / LOCK, f"{directory}: another process fetches or unpacks there"):
            with scratch_folder(directory / ".part") as scratch:
                yield scratch


def verify_existing(file: CorpusFile, directory: Path, say: Say) -> bool:
    """Return whether a directory contains the file intact, and say what was found."""
    path = file.find(directory)
    if path is None:
        return False
    fault = file.mismatch(path)
    say(f"{path}: {f'{fault}; it will be fetched again' if fault else how_verified(file, path)}")
    return not fault


def how_verified(file: CorpusFile, path: Path) -> str:
    """Return how the file at `path`, which has no mismatch, was verified."""
    if path.is_dir():
        return "unpacked already, not verified"
    if file.checksums:
        return f"{' and '.join(file.checksums)} verified"
    return f"sha256 {sha256(path)}, not verified: the manifest records none"


def fetch_files(
    entry: CorpusEntry, files: list[CorpusFile], source: Path | None, scratch: Path, say: Say
) -> None:
    """Copy or download files, via `scratch`, into the directory above it."""
    from tqdm import tqdm

    if (size := sum(file.bytes or 0 for file in files)) and not source:
        more = "" if all(file.bytes for file in files) else ", and files of unknown size"
        say(f"{entry.name}: {tqdm.format_sizeof(size, 'B')} to fetch{more}")
    failures = {}
    for file in files:
        try:
            other = None if source else another_corpus_with(file, entry)
            local = source or other
            part = copy_file(file, local, scratch) if local else download_file(file, scratch, say)
        except UserError as error:
            failures[file.name] = str(error)
        else:
            path = scratch.parent / part.name
            if path.exists():  # and does not match: perhaps another file of that name
                say(f"{path}: kept as {set_aside(path)}")
            part.replace(path)
            say(f"{path}: {how_verified(file, path)}{f', from {other}' if other else ''}")
    if failures:
        own = f"run dynconv data fetch with --from DIR, a directory with {', '.join(failures)}"
        if not all(file.urls for file in files if file.name in failures):
            remedy = f"{entry.note} Then {own}"
        elif source:
            remedy = f"dynconv data fetch {entry.name} downloads the rest"
        else:
            remedy = f"the same command tries again; or {own}"
        raise UserError(f"{'; '.join(failures.values())}; {remedy}")


def another_corpus_with(file: CorpusFile, entry: CorpusEntry) -> Path | None:
    """Return the directory of another corpus that contains the same file."""
    others = entry.directory.parent.glob(f"*/{file.name}") if file.checksums else ()
    return next((path.parent for path in others if not file.mismatch(path)), None)


def copy_file(file: CorpusFile, source: Path, scratch: Path) -> Path:
    """Copy a file from a directory, or its content if the directory has it unpacked."""
    original = file.find(source)
    if original is None:
        raise UserError(f"{source} has no {file.name}")
    if fault := file.mismatch(original):
        raise UserError(f"{original}: {fault}; it is damaged, or another file of that name")
    copy = shutil.copytree if original.is_dir() else shutil.copyfile
    return copy(original, scratch / original.name)


def download_file(file: CorpusFile, scratch: Path, say: Say) -> Path:
    """Download a file from the first mirror that serves it intact."""
    from pooch import HTTPDownloader
    from requests import RequestException

    download = HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=1 << 16,
        timeout=TIMEOUT,
        headers={"User-Agent": "dynconv"},
        hooks={"response": lambda response, **_: check_response(response, file)},
    )
    path = scratch / file.name
    reasons = []
    for url in file.urls:
        say(f"{file.name}: downloading from {url}")
        try:
            download(url, path, None)
        except RequestException as error:
            reasons.append(f"{url}: {innermost_reason(error)}")
        else:
            if not (fault := file.mismatch(path)):
                return path
            reasons.append(f"{url}: {fault}")
    raise UserError(f"could not fetch {file.name}: {'; '.join(reasons) or 'it has no mirror'}")


def check_response(response, file: CorpusFile) -> None:
    """Raise RequestException when what follows the headers cannot be the file."""
    from requests import RequestException

    if not response.ok:
        raise RequestException(f"{response.status_code} {response.reason}")
    if response.is_redirect:
        return
    if response.headers.get("Content-Type", "").startswith("text/html"):
        raise RequestException("it sent a page, such as a warning or a log-in, not the file")
    size = int(response.headers.get("Content-Length", file.bytes or 0))
    if size != (file.bytes or size):
        raise RequestException(f"it has {size:,} bytes, the manifest says {file.bytes:,}")
    # Some servers declare a .tgz as a .tar in the encoding gzip, which requests would undo.
    response.raw.headers.pop("Content-Encoding", None)


def innermost_reason(error: Exception) -> str:
    """Return the words that requests and urllib3 wrap: "[Errno 111] Connection refused"."""
    reason = getattr(error.args[0] if error.args else error, "reason", error)
    return " ".join(str(reason).rpartition(": ")[2].split())
