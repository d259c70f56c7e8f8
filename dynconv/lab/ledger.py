"""The ledger: each file of data/results says what one command measured, where and when.

what      in a sentence
command   that measured it; of several, one a line
commit    of the code that ran, with `+changes`; null outside its repository
date      of the measurement
device    processor or GPU
versions  of what the numbers depend on
load      processes that wanted a core, on average over 1, 5 and 15 minutes, "before" and "after"
seeds     one a run; empty where nothing depends on one
numbers   what was found, as the command has it
"""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

from dynconv.config.files import replace_text
from dynconv.errors import UserError
from dynconv.text.corpus import data_dir


def entry(
    what: str,
    command: str,
    numbers: dict[str, Any],
    *,
    seeds: Sequence[int] = (),
    device: str | None = None,
    versions: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A file of the ledger, for `write`. Make it before measuring: it has the load from then.

    device    None: the GPU if there is one, else the processor
    versions  beside those of Python and PyTorch
    """
    return {
        "what": what,
        "command": command,
        "commit": commit(),
        "date": date.today().isoformat(),
        "device": device or this_device(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            **(versions or {}),
        },
        "load": {"before": load()},
        "seeds": list(seeds),
        "numbers": numbers,
    }


def path(name: str, output: Path | None) -> Path:
    """The file to write: `output`, or data/results/NAME.json, outside the repository NAME.json.

    Raises UserError when its directory is not there.
    """
    if output is None:
        folder = data_dir() / "results"
        output = (folder if folder.is_dir() else Path()) / f"{name}.json"
    if not output.parent.is_dir():
        raise UserError(f"{output}: there is no directory {output.parent}")
    return output


def write(output: Path, found: dict[str, Any]) -> None:
    """Write an entry, whole or not at all, with the load by now."""
    found["load"]["after"] = load()
    replace_text(output, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def read(name: str) -> dict[str, Any]:
    """data/results/NAME.json."""
    return json.loads((data_dir() / f"results/{name}.json").read_text(encoding="utf-8"))


def source(found: dict[str, Any]) -> str:
    """Device, versions and date of an entry in a line."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return f"{found['device']}, {versions}, {found['date']}"


def this_device() -> str:
    """The GPU; or the processor, the vector instructions that PyTorch uses, and the cores."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{processor()} ({torch.backends.cpu.get_cpu_capability()}), {os.cpu_count()} cores"


def processor() -> str:
    """The model that the processor says it is."""
    cpuinfo = Path("/proc/cpuinfo")  # Linux
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def load() -> str:
    """How many processes wanted a core, on average over 1, 5 and 15 minutes."""
    return ", ".join(f"{x:.1f}" for x in os.getloadavg())


def commit() -> str | None:
    """The commit of dynconv's working tree, with `+changes`; None when git does not track it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # fails inside another's repository
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
