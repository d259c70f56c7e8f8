"""Records measurements: each file in data/results says what a command measured, where and when.

what      what was measured, in a sentence
command   the command that measured it; if there are several, one per line
commit    of the code that ran, with `+changes` if files were modified; null if not known
date      the day of the measurement
device    processor or GPU
versions  of Python, PyTorch, and what else the results depend on
load      load averages over 1, 5 and 15 minutes, "before" and "after" the measurement
seeds     one per run; empty if nothing depends on a seed
numbers   the results
"""

import json
import platform
import re
import shlex
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

from dynconv.errors import UserError
from dynconv.files import check_writable, replace_text
from dynconv.machine import current_commit, device_name, load_average
from dynconv.paths import data_dir, find_checkout


def command_line(*words: object) -> str:
    """Return the `dynconv` command of these words, quoted for a shell, for a record's `command`.

    It repeats the measurement: names of recipes, experiments and files are among its words as the
    user gave them, and so are the overrides.
    """
    return shlex.join(["dynconv", *map(str, words)])


def new_record(
    what: str,
    command: str,
    numbers: dict[str, Any],
    *,
    seeds: Sequence[int] = (),
    device: str | None = None,
    versions: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return a new record for `write`. Call it before measuring, because it records the load.

    device    by default the GPU if there is one, else the processor
    versions  to record in addition to the versions of Python and PyTorch
    """
    return {
        "what": what,
        "command": command,
        "commit": current_commit(),
        "date": date.today().isoformat(),
        "device": device or device_name(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            **(versions or {}),
        },
        "load": {"before": load_average()},
        "seeds": list(seeds),
        "numbers": numbers,
    }


def results_folder() -> Path:
    """Return data/results of the repository, or the working directory if there is no checkout."""
    return data_dir() / "results" if find_checkout() else Path()


def output_path(name: str, output: Path | None) -> Path:
    """Return `output`, by default data/results/NAME.json, or NAME.json outside the repository.

    Raises UserError if no file can be written there, or if the file there is not a record: it may
    belong to a run.
    """
    output = results_folder() / f"{name}.json" if output is None else output
    check_writable(output)
    if output.is_file() and output.stat().st_size and not is_record(output):
        raise UserError(f"{output}: already exists and is not a record: name a new file")
    return output


def is_record(path: Path) -> bool:
    """Return whether a file is a record, which a repeated command replaces."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"what", "command", "numbers"} <= content.keys()


def slug(device: str) -> str:
    """Return a device's name in the form that names of files use: nvidia-h200."""
    return re.sub("[^a-z0-9]+", "-", device.lower()).strip("-")


def write(output: Path, record: dict[str, Any]) -> None:
    """Write a record atomically, with the load after the measurement."""
    record["load"]["after"] = load_average()
    replace_text(output, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def read(name: str) -> dict[str, Any]:
    """Return the record in data/results/NAME.json."""
    return read_file(data_dir() / f"results/{name}.json")


def read_file(path: Path) -> dict[str, Any]:
    """Return the record in a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def describe_origin(record: dict[str, Any]) -> str:
    """Return the device, versions and date of a record, in one line."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return f"{record['device']}, {versions}, {record['date']}"
