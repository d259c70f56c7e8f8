"""Files from mirrors: continued where they broke off, verified, and there only when whole."""

import os
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from dynconv.errors import UserError
from dynconv.text.catalog import CorpusFile

TRIES = 4  # of a mirror whose connection dies
WAIT = 1.0  # seconds before its second try, doubled before each further one
PAGES = (b"<!doctype html", b"<html", b"<?xml")
TIMEOUT = (10, 60)  # seconds to connect, and between two pieces
PIECE = 1 << 16  # bytes; of the piece in which a connection dies nothing is kept


class Refused(Exception):
    """A mirror does not give the file."""


class Died(Exception):
    """A connection broke; what came is kept."""


def download(file: CorpusFile, directory: Path) -> Path:
    """Fetch a file into a directory from the first mirror that gives it whole and without fault.

    What came of it waits in NAME.part, with the mirror it came from in NAME.part.of; the next try,
    mirror or command goes on from there. Raises UserError when no mirror gives it, OSError as it
    comes from the disk. For one process at a time.
    """
    target = directory / file.name
    part = directory / f"{file.name}.part"
    reasons = []
    for url in file.urls:
        try:
            _from_mirror(url, file, part)
        except Refused as error:
            reasons.append(f"{url}: {error}")
        else:
            os.replace(part, target)
            _origin(part).unlink(missing_ok=True)
            return target
    kept = f" ({part.stat().st_size:,} bytes of it are kept)" if part.exists() else ""
    raise UserError(f"could not fetch {file.name}: {'; '.join(reasons)}{kept}")


def _from_mirror(url: str, file: CorpusFile, part: Path) -> None:
    """Let `part` become the whole file, without fault; raises Refused."""
    for turn in range(TRIES):
        if turn:
            time.sleep(WAIT * 2 ** (turn - 1))
        continued = part.exists()
        try:
            _receive(url, file, part)
        except Died as error:
            cause = str(error)
            continue
        cause = file.fault(part)
        if cause is None:
            return
        discard(part)
        if not continued:  # else its pieces may not have been of one file: once more from the start
            break
    raise Refused(cause)


def _receive(url: str, file: CorpusFile, part: Path) -> None:
    """Receive what `part` lacks; raises Refused or Died."""
    import requests
    from tqdm import tqdm

    held = part.stat().st_size if part.exists() else 0
    if held and held == file.bytes:
        return
    try:
        headers = {"User-Agent": "dynconv", "Accept-Encoding": "identity", **_rest(url, file, part)}
        response = requests.get(url, headers=headers, stream=True, timeout=TIMEOUT)
    except requests.RequestException as error:
        raise Refused(_cause(error)) from None
    with response:
        if not response.ok and response.status_code != 416:
            raise Refused(f"{response.status_code} {response.reason}")
        given = response.headers.get("Content-Range", "")  # "bytes 7-9/10", or "bytes */10" of none
        length = given.rpartition("/")[2] or response.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        if None not in (total, file.bytes) and total != file.bytes:
            raise Refused(f"it has {total:,} bytes, the manifest says {file.bytes:,}")
        if response.status_code == 416 and total == held:
            return
        if response.status_code == 200:
            held = 0
        elif not given.startswith(f"bytes {held}-"):
            discard(part)
            raise Died("it has not the rest of what was begun")
        pieces = _pieces(response)
        if not held:
            pieces = _start(url, response, pieces, part)
        bar = tqdm(
            total=total, initial=held, desc=file.name, unit="B", unit_scale=True, disable=None
        )
        with bar, part.open("ab") as out:
            for piece in pieces:
                out.write(piece)
                bar.update(len(piece))
            came = out.tell()
        if total not in (None, came):
            if came > total:
                discard(part)
            raise Died(f"{came:,} of {total:,} bytes came")


def _rest(url: str, file: CorpusFile, part: Path) -> dict[str, str]:
    """The headers that ask for what `part` lacks; none where nothing would tell a wrong rest."""
    if not (part.exists() and _origin(part).exists()):
        return {}
    origin, _, version = _origin(part).read_text(encoding="utf-8").partition("\n")
    asked = {"Range": f"bytes={part.stat().st_size}-"}
    if origin == url and version:
        return {**asked, "If-Range": version}
    return asked if file.verifiable else {}


def _pieces(response) -> Iterator[bytes]:
    """The body as it lies there: some servers declare a .tgz as a gzipped something."""
    import urllib3

    try:
        yield from response.raw.stream(PIECE, decode_content=False)
    except urllib3.exceptions.HTTPError as error:
        raise Died(f"the connection broke: {_cause(error)}") from None


def _start(url: str, response, pieces: Iterator[bytes], part: Path) -> Iterator[bytes]:
    """The same pieces, for a part that begins with them."""
    first = next(pieces, b"")
    if first.lstrip()[:15].lower().startswith(PAGES):
        raise Refused("it sent a page, such as a warning or a log-in, not the file")
    discard(part)
    tag = response.headers.get("ETag", "W/")
    version = response.headers.get("Last-Modified", "") if tag.startswith("W/") else tag
    _origin(part).write_text(f"{url}\n{version}", encoding="utf-8")
    return chain([first], pieces)


def _origin(part: Path) -> Path:
    """Where the mirror of a part is written, and in the next line the version it gave."""
    return part.with_name(part.name + ".of")


def discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _origin(part).unlink(missing_ok=True)


def _cause(error: Exception) -> str:
    """The innermost words of an exception of requests or urllib3, in one line."""
    reason = getattr(error.args[0] if error.args else error, "reason", error)
    return " ".join(str(reason).rpartition(": ")[2].split())
