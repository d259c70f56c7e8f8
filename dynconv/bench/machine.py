"""What a measurement says about where it was made."""

import os
import platform
from pathlib import Path

import torch

from dynconv.errors import UserError
from dynconv.text.corpus import data_dir


def device() -> str:
    """The processor, the vector instructions that PyTorch uses, and the number of cores."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():  # Linux
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        name = (models or [name])[0]
    return f"{name} ({torch.backends.cpu.get_cpu_capability()}), {os.cpu_count()} cores"


def versions() -> dict[str, str]:
    """The versions that a running time depends on."""
    return {"python": platform.python_version(), "torch": torch.__version__}


def load() -> str:
    """How many processes wanted a core, on average over 1, 5 and 15 minutes."""
    return ", ".join(f"{x:.1f}" for x in os.getloadavg())


def results(name: str, output: Path | None) -> Path:
    """The JSON to write: `output`, or data/results/NAME.json, outside the repository NAME.json.

    Raises UserError when its directory is not there.
    """
    if output is None:
        folder = data_dir() / "results"
        output = (folder if folder.is_dir() else Path()) / f"{name}.json"
    if not output.parent.is_dir():
        raise UserError(f"{output}: there is no directory {output.parent}")
    return output
