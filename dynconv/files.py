"""Files that are whole or not there, and their checksums."""

import hashlib
import os
from pathlib import Path

from dynconv.errors import UserError


def replace_text(path: Path, text: str) -> None:
    """Write a file under a temporary name, then rename it over the old one.

    Raises UserError when the disk does not take it; the old one stays.
    """
    scratch = path.with_name(path.name + ".part")
    try:
        write_through(scratch, text.encode())
        os.replace(scratch, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def write_through(path: Path, data) -> None:
    """Write bytes that are on the disk, not in its cache, when this returns."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
