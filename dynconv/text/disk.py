"""What a disk refuses, told with what to do about it, and locks between processes."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dynconv.errors import UserError

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
FULL = (errno.ENOSPC, errno.EDQUOT)


def refusal(error: OSError, elsewhere: str) -> str:
    """What the disk says; where it can be mended, the remedy, `elsewhere` for one that is
    read-only."""
    says = error.strerror or str(error)
    if error.errno in READ_ONLY:
        return f"{says}; {elsewhere}"
    return f"{says}; make room, then the same command" if error.errno in FULL else says


@contextmanager
def locked(path: Path, told: str) -> Iterator[None]:
    """Hold a lock file, which is gone afterwards. Nobody holds that of a killed process.

    Raises UserError `told` where another process holds it.
    """
    import fcntl

    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(file.fileno()), path.stat())
        except (BlockingIOError, FileNotFoundError):
            ours = False
        if not ours:  # also where its holder has just removed the file
            raise UserError(f"{told}: wait for it to end, then the same command")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
