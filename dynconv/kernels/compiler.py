"""Finds and runs compilers, and caches the libraries that they build."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from dynconv.machine import cpu_info


def command_in(variable: str) -> list[str]:
    """Return the command in an environment variable, such as CC="ccache gcc", as a list."""
    command = os.environ.get(variable, "")
    try:
        return shlex.split(command)
    except ValueError:  # unclosed quotes
        return [command]


def find_installed(commands: Iterable[Sequence[str]]) -> list[list[str]]:
    """Return the commands whose program exists, with the program's full path."""
    return [[path, *rest] for name, *rest in commands if (path := shutil.which(name))]


def run_compiler(command: list[str]) -> list[str]:
    """Run a compiler, and return the lines of its error message: none if it succeeds."""
    english = {**os.environ, "LC_ALL": "C"}
    try:
        process = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", env=english
        )
    except OSError as error:
        return [str(error)]
    return (process.stderr.strip() or "no message").splitlines() if process.returncode else []


def cached_library(
    name: str, parts: Sequence[str], make: Callable[[Path], None], error: Callable[[str], Exception]
) -> Path:
    """Return the path of the library compiled from `parts`; make(path) compiles a missing one.

    The file's name ends in a checksum of its content. A damaged file is compiled again, because
    loading it could crash the process.

    parts  sources, compiler and flags
    error  turns "PATH: why" into the exception that is raised when the cache cannot be written
    """
    key = hashlib.sha256("\0".join([*parts, processor_features()]).encode()).hexdigest()[:16]
    path = Path(f"{key}-{name}.so")
    try:
        path = cache_directory() / path
        path.parent.mkdir(parents=True, exist_ok=True)
        for cached in path.parent.glob(f"{path.stem}-*.so"):
            if cached == with_checksum(path, cached):
                return cached
            cached.unlink(missing_ok=True)  # another process may have found the damage, too
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            new = Path(folder) / path.name
            make(new)
            cached = with_checksum(path, new)
            os.replace(new, cached)  # atomic: another process may be doing the same
        return cached
    except OSError as reason:
        remedy = "; set XDG_CACHE_HOME to another directory" if reason.errno else ""
        raise error(f"{path}: {reason.strerror or reason}{remedy}") from reason


def load_cached(
    name: str,
    parts: Sequence[str],
    make: Callable[[Path], None],
    error: Callable[[str], Exception],
    load: Callable[[Path], ctypes.CDLL],
) -> ctypes.CDLL:
    """Return load(path) of the library that `cached_library` returns for the other arguments.

    A cached library that cannot be loaded is compiled again. It may link to a library of another
    environment, or come from another machine. Raises the OSError of `load` for a new library.
    """
    new: list[Path] = []

    def make_new(path: Path) -> None:
        make(path)
        new.append(path)

    while True:
        path = cached_library(name, parts, make_new, error)
        try:
            return load(path)
        except OSError as reason:
            if new:
                raise
            fault = reason
        try:
            path.unlink(missing_ok=True)  # another process may have removed it, too
        except OSError as reason:
            remedy = f"remove {path}, or set XDG_CACHE_HOME to another directory"
            raise error(f"{path}, which cannot be loaded ({fault}): {remedy}") from reason


def with_checksum(path: Path, file: Path) -> Path:
    """Return `path` with the checksum of a file's content at the end of its name."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    return path.with_name(f"{path.stem}-{digest}.so")


def cache_directory() -> Path:
    """Return the directory of the libraries: $XDG_CACHE_HOME/dynconv, or ~/.cache/dynconv."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dynconv"
    except RuntimeError:
        raise OSError("this user has no home directory: set HOME or XDG_CACHE_HOME") from None


def processor_features() -> str:
    """Return the processor's model and features, on which -march=native depends."""
    return "".join(sorted(cpu_info("model name", "flags"))) or platform.machine()
