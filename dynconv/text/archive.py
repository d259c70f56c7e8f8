"""Archives, unpacked so that nothing leaves the directory and nothing half stays in it."""

import gzip
import os
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from dynconv.config.files import refusal
from dynconv.errors import UserError

SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip", ".gz")
ELSEWHERE = "give data fetch --out DIR, and data prepare --raw DIR"
CORRUPT = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError)


def stem(name: str) -> str:
    """The name without its suffix; the name itself where it is not that of an archive."""
    return next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)


def unpack(archive: Path, into: Path) -> None:
    """Unpack a .tar, .tar.gz, .tgz, .zip or .gz into a new directory, which appears when whole.

    One process at a time: what another has begun is removed.

    Raises UserError where an entry leads out of the directory or is a device, where the archive is
    truncated or corrupt, and where the disk does not take it.
    """
    if into.is_dir():  # another process was first
        return
    part = into.with_name(into.name + ".part")
    shutil.rmtree(part, ignore_errors=True)  # of a run that was killed
    try:
        part.mkdir(parents=True)
        if archive.name.endswith(".zip"):
            _unpack_zip(archive, part)
        elif archive.name.endswith((".tar", ".tar.gz", ".tgz")):
            _unpack_tar(archive, part)
        else:
            with gzip.open(archive) as packed, (part / into.name).open("wb") as plain:
                shutil.copyfileobj(packed, plain, 1 << 20)
        os.replace(part, into)
    except tarfile.FilterError as error:
        raise _unsafe(archive, error.tarinfo.name) from None
    except CORRUPT as error:
        raise UserError(
            f"{archive}: truncated or corrupt ({error}); remove it and fetch it again"
        ) from None
    except OSError as error:
        why = refusal(error, ELSEWHERE)
        raise UserError(f"{archive}: cannot be unpacked into {into}: {why}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _unpack_tar(archive: Path, into: Path) -> None:
    opener = open if archive.suffix == ".tar" else gzip.open
    with opener(archive, "rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
        tar.extractall(into, filter="data")
        if not file.read(512):  # tarfile takes one that was cut between two entries for whole
            raise EOFError("it has no end mark")
        while file.read(1 << 20):  # up to the checksum of a .gz
            pass


def _unpack_zip(archive: Path, into: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            path = PurePosixPath(name.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts:
                raise _unsafe(archive, name)
        packed.extractall(into)  # a link becomes a file that holds its target's name


def _unsafe(archive: Path, name: str) -> UserError:
    return UserError(
        f"{archive}: not unpacked: its entry {name!r} leads out of the directory or is a device"
    )
