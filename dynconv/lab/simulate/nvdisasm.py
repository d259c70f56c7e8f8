"""Counts the instructions of a kernel's innermost loop, in the code that NVRTC compiled.

NVIDIA's disassembler, nvdisasm, needs neither a GPU nor a driver.
"""

import re
import shutil
import subprocess
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from dynconv.errors import UserError
from dynconv.lab.simulate.nvrtc import Compiled

PACKAGE = "nvidia-cuda-nvdisasm"

SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+),.*$", re.MULTILINE)
LABEL = re.compile(r"^\s*(\.L_x_\d+):", re.MULTILINE)
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(.*?)\s*;")
BRANCH = re.compile(r"BRA\b.*`\((\.L_x_\d+)\)")
MULTIPLY_ADD = "FFMA", "DFMA", "HMMA"  # the last one of matrices


class Loop(NamedTuple):
    """Counts what a warp is given to do in one turn of a loop."""

    instructions: int
    multiply_adds: int
    around: int
    """instructions of the kernel that are not in the loop"""


def why_unavailable() -> str | None:
    """Return why there is no nvdisasm and what to install, or None if there is one."""
    return None if find() else f"no nvdisasm: 'pip install {PACKAGE}' brings it, on Linux"


@cache
def find() -> str | None:
    """Return the path of nvdisasm: of the package, or of a CUDA toolkit."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    paths = [str(file.locate()) for file in files if file.name == "nvdisasm"]
    return next(filter(None, map(shutil.which, [*paths, "nvdisasm"])), None)


def main_loops(compiled: Compiled) -> dict[str, Loop]:
    """Return for each kernel the loop without a loop inside that has the most multiply-adds.

    Kernels without a loop are left out.
    """
    if reason := why_unavailable():
        raise UserError(reason)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.cubin")
        path.write_bytes(compiled.cubin)
        command = [find(), "-c", str(path)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    _, *parts = SECTION.split(text)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    loops = {name: innermost(sections[mangled]) for name, mangled in compiled.mangled.items()}
    return {
        name: max(found, key=lambda loop: loop.multiply_adds)
        for name, found in loops.items()
        if found
    }


def innermost(section: str) -> list[Loop]:
    """Return the loops of a kernel that have no loop inside, in the order of the code."""
    code, labels = [], {}
    for line in section.splitlines():
        if match := LABEL.match(line):
            labels[match[1]] = len(code)
        elif match := INSTRUCTION.match(line):
            code.append(match[1])
    spans = []
    for end, instruction in enumerate(code):
        match = BRANCH.match(instruction)
        if match and labels[match[1]] <= end:
            spans.append(range(labels[match[1]], end + 1))
    loops = []
    for span in spans:
        if not any(inner != span and inner[0] in span and inner[-1] in span for inner in spans):
            body = code[span.start : span.stop]
            products = sum(one.startswith(MULTIPLY_ADD) for one in body)
            loops.append(Loop(len(body), products, len(code) - len(body)))
    return loops
