"""Reads and writes files: atomic replacement, checksums, locks, and disk errors.

Nothing that a user wrote is deleted or overwritten: dynconv replaces and deletes files only in
directories that were new or empty when it marked them (`claim`). No link there can redirect a write
to another place (`path_inside`), and unfinished files have their own folder (`scratch_folder`).
"""

import errno
import hashlib
import json
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dynconv.errors import UserError

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
"""error numbers of a place where we may not write"""
MISPLACED = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""error numbers of a path that cannot be what is needed, such as a folder below a file"""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""error numbers of a full disk or an exhausted quota"""
MARK = ".dynconv"
"""the file that marks a directory as made by dynconv"""
LOCK = ".lock"
"""the file that a process holds while it works in a directory"""
HOLDER = "process "
"""beginning of a lock's content"""
TEMPORARY = ".dynconv-"
"""beginning of the names of unfinished files"""


def read_json(path: Path, remedy: str) -> Any:
    """Return the content of a JSON file.

    Raises FileNotFoundError if it is missing, and UserError ending with `remedy` if it cannot be
    read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable_error(path, error) from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not readable as JSON ({error}): {remedy}") from None


def directory_error(path: Path) -> UserError:
    """Return the UserError for a directory where a file is expected."""
    return UserError(f"{path}: is a directory; name a file")


def unreadable_error(path: Path, error: OSError) -> UserError:
    """Return the UserError `PATH: cannot be read (REASON): REMEDY` for a file."""
    if path.is_dir():
        return directory_error(path)
    remedy = ": allow it by chmod u+r, or name another file" if error.errno in READ_ONLY else ""
    return UserError(f"{path}: cannot be read ({error.strerror or error}){remedy}")


def replace_text(path: Path, text: str) -> None:
    """Write text as `replace_bytes` does, in UTF-8."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, data: bytes) -> None:
    """Write a file under a temporary name, then rename it over the old one, with its permissions.

    If the path is a link, the file that it points to is replaced. /dev/null and named pipes cannot
    be replaced, so they are written to. Raises UserError if writing fails; the old file stays.
    """
    target = Path(os.path.realpath(path))
    scratch = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    kept = "the old file is untouched" if os.path.isfile(path) else ""
    with disk_errors(path, kept=kept):
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        try:
            write_through(scratch, data)
            if target.exists():
                shutil.copymode(target, scratch)
            os.replace(scratch, target)
        finally:
            with suppress(OSError):  # it has been renamed, or was never created
                scratch.unlink()


def check_writable(path: Path, elsewhere: str = "name another file") -> None:
    """Raise UserError if no file can be written at `path`; for use before computing its content.

    elsewhere  the remedy if writing is not allowed there
    """
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no directory {path.parent}")
    if path.is_dir():
        raise directory_error(path)
    if os.path.islink(os.path.realpath(path)):
        raise UserError(f"{path}: is a link that leads back to itself; name a file")
    replaced = not path.exists() or path.is_file()
    if not os.access(Path(os.path.realpath(path)).parent if replaced else path, os.W_OK):
        raise UserError(f"{path}: no permission to write there; {elsewhere}")


def is_claimed(directory: Path) -> bool:
    """Return whether dynconv has marked a directory as its own."""
    return (directory / MARK).is_file() and not (directory / MARK).is_symlink()


def check_output(path: Path) -> None:
    """Raise UserError like `check_writable`, or if a file in a marked directory would be replaced.

    Used for outputs that the user names, because one slip could overwrite a run's recipe.
    """
    check_writable(path)
    folders = Path(os.path.realpath(path)).parents
    if path.exists() and (ours := next(filter(is_claimed, folders), None)):
        raise UserError(f"{path}: already exists in {ours}, which dynconv made: name a new file")


def make_folder(directory: Path, remedy: str) -> None:
    """Make a directory unless it exists; raise UserError with the remedy if a file has its name."""
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory}: is a file, not a directory: {remedy}")
    with disk_errors(directory, remedy):
        directory.mkdir(parents=True, exist_ok=True)


def claim(directory: Path, remedy: str) -> None:
    """Mark a directory that dynconv may write to: a new, empty or already marked one.

    Raises UserError with the remedy for any other, because its content is the user's.
    """
    make_folder(directory, remedy)
    entries = sorted(set(os.listdir(directory)) - {LOCK})
    if is_claimed(directory):  # checked after listing, because another process may claim it now
        return
    if entries:
        raise UserError(f"{directory}: has {entries[0]}, and dynconv did not make it: {remedy}")
    (directory / MARK).write_text("dynconv made this directory.\n", encoding="utf-8")


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder for unfinished files, and delete it afterwards.

    First deletes what a killed process left in it. Raises UserError if the user has something of
    that name, or another process has this folder.
    """
    if path.is_symlink():
        raise UserError(f"{path}: is a link, but dynconv needs a folder there: remove the link")
    if not path.exists():
        path.mkdir(parents=True)  # the caller handles its OSError, because it knows the remedy
    claim(path, "move it elsewhere")
    with locked(path / LOCK, f"{path}: another process writes there"):
        delete_content(path)
        try:
            yield path
        finally:
            with suppress(OSError):
                delete_content(path)
                (path / MARK).unlink()  # last: a killed process leaves a marked folder
                (path / LOCK).unlink()
                path.rmdir()


def delete_content(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name not in (MARK, LOCK):
            entry.unlink()


def path_inside(directory: Path, *parts: str) -> Path:
    """Return the path of a file to write in a directory.

    Raises UserError as `check_inside` does.
    """
    path = directory.joinpath(*parts)
    check_inside(directory, path)
    return path


def check_inside(directory: Path, path: Path) -> None:
    """Raise UserError if a link, or a part such as "..", leads out of a directory."""
    end = os.path.realpath(path)
    if not Path(end).is_relative_to(os.path.realpath(directory)):
        raise UserError(
            f"{path}: leads out of {directory}, to {end}, where dynconv writes nothing: put a file "
            "or directory in place of the link"
        )


def set_aside(path: Path) -> Path:
    """Rename a file or directory to the first of PATH.damaged, PATH.damaged-2, ... that is free."""
    free = path.with_name(f"{path.name}.damaged")
    number = 1
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}.damaged-{number}")
    return path.rename(free)


def write_through(path: Path, data) -> None:
    """Write bytes into a new file and wait until they are on the disk, not in its cache."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Flush a file, or the entries of a directory, to disk, so it survives a power failure."""
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


def sha256(path: Path) -> str:
    """Return the SHA-256 checksum of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def disk_errors(path: Path, elsewhere: str = "", kept: str = "") -> Iterator[None]:
    """Turn an OSError into UserError `PATH: cannot be written (REASON); REMEDY; KEPT`.

    elsewhere  the remedy if writing is not possible there
    kept       what the error leaves as it was
    """
    try:
        yield
    except OSError as error:
        remedies: dict[int | None, str] = dict.fromkeys(READ_ONLY + MISPLACED, elsewhere)
        remedies |= dict.fromkeys(FULL, "free some space and try again")
        reason = f"{path}: cannot be written ({error.strerror or error})"
        notes = filter(None, (remedies.get(error.errno), kept))
        raise UserError("; ".join([reason, *notes])) from None


@contextmanager
def locked(
    path: Path, message: str, remedy: str = "wait for it to end and repeat the command"
) -> Iterator[None]:
    """Hold a lock file, and delete it afterwards. When a process is killed, its lock is released.

    Raises UserError `message (process): remedy` if another process holds it, or a UserError if the
    file is not a lock of dynconv.
    """
    import fcntl

    if path.is_symlink():
        raise UserError(f"{path}: is a link, but dynconv needs a lock file there: remove the link")
    with path.open("a+", encoding="utf-8", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            acquired = os.path.samestat(os.fstat(file.fileno()), path.stat())
        except (BlockingIOError, FileNotFoundError):
            acquired = False
        if not acquired:  # also if its holder has just removed the file
            file.seek(0)
            raise UserError(f"{message} ({file.read()}): {remedy}")
        file.seek(0)
        if file.read(len(HOLDER)) not in ("", HOLDER):
            raise UserError(
                f"{path}: is not a lock of dynconv, which uses this name: rename the file"
            )
        file.truncate(0)
        file.write(f"{HOLDER}{os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
