"""What a measurement says about where it was made."""

import os
import platform
from pathlib import Path

import torch


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
