"""Files that are replaced atomically, checksums, YAML, locks between processes, disk errors."""

import errno
import hashlib
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from dynconv.errors import UserError

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
FULL = (errno.ENOSPC, errno.EDQUOT)


def replace_text(path: Path, text: str) -> None:
    """Write text as `replace_bytes` does, in UTF-8."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, data: bytes) -> None:
    """Write a file under a temporary name, then rename it over the old one.

    A link stays a link: the file it names is replaced. /dev/null or a named pipe cannot be
    replaced and is written to. Raises UserError when writing fails; the old file stays.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        target = path.resolve()
        scratch = target.with_name(target.name + ".part")
        write_through(scratch, data)
        os.replace(scratch, target)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def write_through(path: Path, data) -> None:
    """Write bytes and wait until they are on the disk, not in its cache."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, would survive a loss of power."""
    if path.is_dir():
        if os.name == "nt":
            return  # Windows opens no directories
        descriptor = os.open(path, os.O_RDONLY)
    else:
        descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file. Raises UserError when it cannot be read."""
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not readable YAML: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def parse_yaml(text: str, where: str) -> Any:
    """Return the content of YAML text; `where` begins the UserError for text that is no YAML."""
    import yaml

    try:
        return deepcopy(_parse_once(text))  # callers may change it
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{where}: not readable YAML: {' '.join(str(error).split())}") from None


@lru_cache(maxsize=256)
def _parse_once(text: str) -> Any:
    """Parse YAML, each text once: recipes share bases, and the rows of a table share its file.

    5e-4 is a number, as in YAML 1.2 and Python; YAML 1.1, which PyYAML reads, has it as text.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    number = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    return yaml.load(text, Loader)


def sha256(path: Path) -> str:
    """Return the SHA-256 checksum of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refusal(error: OSError, elsewhere: str) -> str:
    """Return the reason of a disk error and its remedy, which is `elsewhere` if it is read-only."""
    reason = error.strerror or str(error)
    if error.errno in READ_ONLY:
        return f"{reason}; {elsewhere}"
    return f"{reason}; make room, then the same command" if error.errno in FULL else reason


@contextmanager
def locked(
    path: Path, message: str, remedy: str = "wait for it to end, then the same command"
) -> Iterator[None]:
    """Hold a lock file and delete it afterwards. A killed process no longer holds its lock.

    Raises UserError `message (process): remedy` where another process holds it.
    """
    import fcntl

    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            acquired = os.path.samestat(os.fstat(file.fileno()), path.stat())
        except (BlockingIOError, FileNotFoundError):
            acquired = False
        if not acquired:  # also where its holder has just removed the file
            file.seek(0)
            raise UserError(f"{message} ({file.read()}): {remedy}")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
