"""Unpacks archives safely: no links, and nothing outside the directory."""

import gzip
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from dynconv.errors import UserError

CORRUPT = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError)
"""errors that the three libraries raise for a truncated or altered archive"""


def unpack(archive: Path, into: Path) -> None:
    """Unpack a .tar, .tar.gz, .tgz, .zip or .gz into a new directory.

    Raises UserError if an entry is a link or a device or leads out of the directory, or if the
    archive is corrupt. What was unpacked before an error stays.
    """
    into.mkdir()
    try:
        if archive.name.endswith(".zip"):
            unpack_zip(archive, into)
        elif archive.name.endswith((".tar", ".tar.gz", ".tgz")):
            unpack_tar(archive, into)
        else:
            with gzip.open(archive) as packed, (into / into.name).open("wb") as plain:
                shutil.copyfileobj(packed, plain, 1 << 20)
    except tarfile.FilterError as error:
        raise UserError(
            f"{archive}: not unpacked: its entry {error.tarinfo.name!r} leads out of the directory "
            "or is a link or a device"
        ) from None
    except CORRUPT as error:
        raise UserError(
            f"{archive}: truncated or corrupt ({error}); remove it and fetch it again"
        ) from None


def unpack_tar(archive: Path, into: Path) -> None:
    opener = open if archive.suffix == ".tar" else gzip.open
    with opener(archive, "rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
        tar.extractall(into, filter=refuse_links)
        if not file.read(512):  # tarfile accepts an archive that was cut between two entries
            raise EOFError("it has no end mark")
        while file.read(1 << 20):  # gzip compares its checksum at the end of the file
            pass


def refuse_links(member: tarfile.TarInfo, into: str) -> tarfile.TarInfo | None:
    """Refuse a link before tarfile's filter looks at it.

    Without the fix of CVE-2025-4517, Python's filter believes that a link with a long name stays
    inside. No archive of the manifest has a link.
    """
    if not (member.isreg() or member.isdir()):
        raise tarfile.SpecialFileError(member)
    return tarfile.data_filter(member, into)


def unpack_zip(archive: Path, into: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            path = PurePosixPath(name.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts:
                raise tarfile.OutsideDestinationError(tarfile.TarInfo(name), name)
        packed.extractall(into)  # a link becomes a file with the name of its target
