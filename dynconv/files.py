"""Files that are whole or not there, and their checksums."""

import hashlib
import os
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write a file under a temporary name, then rename it over the old one."""
    scratch = path.with_name(path.name + ".part")
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, path)


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
