"""Describes this machine and this checkout, for the records of measurements and runs."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import torch


def default_device() -> torch.device:
    """Return the first GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name(device: torch.device | None = None) -> str:
    """Return the GPU's name, or the processor's with its vector instructions and core count.

    device  by default the GPU if there is one
    """
    on_gpu = device.type == "cuda" if device else torch.cuda.is_available()
    if on_gpu:
        return torch.cuda.get_device_name(device)
    return f"{processor_name()} ({torch.backends.cpu.get_cpu_capability()}), {os.cpu_count()} cores"


def processor_name() -> str:
    """Return the processor's model name."""
    names = [line.split(":", 1)[1].strip() for line in cpu_info("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cpu_info(*fields: str) -> list[str]:
    """Return the distinct lines of /proc/cpuinfo with these fields; none where it is missing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return []
    return list(dict.fromkeys(line for line in lines if line.startswith(fields)))


def load_average() -> str:
    """Return the load averages over 1, 5 and 15 minutes."""
    if not hasattr(os, "getloadavg"):  # Windows
        return "unknown"
    return ", ".join(f"{x:.1f}" for x in os.getloadavg())


def peak_memory(device: torch.device) -> int:
    """Return the peak memory in bytes: of tensors on a GPU, or of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource  # not on Windows, where training stops earlier, at its lock

    unit = 1 if sys.platform == "darwin" else 1024  # Linux counts in kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def current_commit() -> str | None:
    """Return the commit of dynconv's working tree, perhaps with `+changes`; None outside of git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()

    try:
        # Fails in the repository of another project.
        git("ls-files", "--error-unmatch", Path(__file__).name)
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
