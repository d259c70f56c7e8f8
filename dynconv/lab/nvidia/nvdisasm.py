"""Reads the instructions of a kernel's innermost loop, in the code that NVRTC compiled.

NVIDIA's disassembler, nvdisasm, needs neither a GPU nor a driver.
"""

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from dynconv.errors import UserError
from dynconv.lab.nvidia.nvrtc import Compiled

PACKAGE = "nvidia-cuda-nvdisasm"

SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+),.*$", re.MULTILINE)
LABEL = re.compile(r"^\s*(\.L_x_\d+):", re.MULTILINE)
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
UPPER_HALF = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/$")
PREDICATE = re.compile(r"^@!?U?P\w+ ")
BRANCH = re.compile(r"\bBRA\b.*`\((\.L_x_\d+)\)")


class ControlBits(NamedTuple):
    """What an instruction of 128 bits tells the scheduler (Jia et al., arXiv:1804.06826, 2.1)."""

    stall: int
    """cycles that the warp pauses before its next instruction"""
    sets: int
    """the scoreboard that is released when the result is there; 7 if none"""
    waits: int
    """a mask of the scoreboards that must be released first"""


class Loop(NamedTuple):
    """The instructions that a warp executes in one turn of a loop."""

    code: list[str]
    around: int = 0
    """instructions of the kernel that are not in the loop"""
    control: Sequence[ControlBits] = ()

    @property
    def instructions(self) -> int:
        return len(self.code)

    @property
    def multiply_adds(self) -> int:
        return self.count("FFMA", "DFMA", "HMMA")  # the last one of matrices

    def count(self, *opcodes: str) -> int:
        """Count the instructions with one of these opcodes, whatever their modifiers."""
        return sum(map(Counter(map(opcode_of, self.code)).get, opcodes, [0] * len(opcodes)))

    @property
    def pauses(self) -> int:
        """The sum of the stall counts, in cycles."""
        return sum(control.stall for control in self.control)

    def path(self, load: int) -> int:
        """Return the cycles that the turn takes a warp if global memory never delays it.

        A load from shared memory or of a constant takes `load` cycles. All other results are
        there when the warp needs them.
        """
        return self.cycles(load)[-1]

    def requests(self, load: int) -> list[tuple[int, int]]:
        """Return when each load from global memory is issued and when its result is first needed.

        Both are cycles of a turn, as `path` counts them. A result that the turn does not wait for
        is needed when it ends.
        """
        cycles, found = self.cycles(load), []
        for i, (line, control) in enumerate(zip(self.code, self.control, strict=True)):
            if opcode_of(line) == "LDG":
                later = enumerate(self.control[i + 1 :], i + 1)
                waiting = (j for j, other in later if other.waits >> control.sets & 1)
                found.append((cycles[i], cycles[next(waiting, -1)]))
        return found

    def cycles(self, load: int) -> list[int]:
        """Return the cycle in which each instruction is issued, and the one after the turn."""
        now, ready, issued = 0, [0] * 8, []  # cycles: now, per scoreboard, per instruction
        for line, control in zip(self.code, self.control, strict=True):
            waits = [ready[i] for i in range(6) if control.waits >> i & 1]
            now = max([now, *waits])
            issued.append(now)
            if opcode_of(line) in ("LDS", "LDC"):
                ready[control.sets] = now + load
            now += control.stall
        return [*issued, now]


def opcode_of(instruction: str) -> str:
    """Return the opcode of an instruction: "FADD" for "@P0 FADD.FTZ R0, R1, R2"."""
    return PREDICATE.sub("", instruction).split()[0].split(".")[0]


def why_unavailable() -> str | None:
    """Return why there is no nvdisasm and what to install, or None if there is one."""
    return None if find_nvdisasm() else f"no nvdisasm: 'pip install {PACKAGE}' brings it, on Linux"


@cache
def find_nvdisasm() -> str | None:
    """Return the path of nvdisasm, from its package or a CUDA toolkit."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    paths = [str(file.locate()) for file in files if file.name == "nvdisasm"]
    return next(filter(None, map(shutil.which, [*paths, "nvdisasm"])), None)


def main_loops(compiled: Compiled) -> dict[str, Loop]:
    """Return the main loop of each kernel that has one: see `main_loop`."""
    loops = {name: main_loop(code) for name, code in disassemble(compiled).items()}
    return {name: loop for name, loop in loops.items() if loop}


def disassemble(compiled: Compiled) -> dict[str, str]:
    """Return each kernel's code as nvdisasm writes it. Raises UserError if there is no nvdisasm."""
    if reason := why_unavailable():
        raise UserError(reason)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.cubin")
        path.write_bytes(compiled.cubin)
        command = [str(find_nvdisasm()), "-c", "-hex", str(path)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    _, *parts = SECTION.split(text)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    return {name: sections[mangled] for name, mangled in compiled.mangled.items()}


def main_loop(section: str) -> Loop | None:
    """Return the innermost loop with the most multiply-adds, or additions if none multiplies."""

    def arithmetic(loop: Loop) -> tuple[int, int]:
        return loop.multiply_adds, loop.count("FADD", "DADD")

    return max(innermost_loops(section), key=arithmetic, default=None)


def innermost_loops(section: str) -> list[Loop]:
    """Return the innermost loops of a kernel, in the order of the code."""
    code, control, labels = read_section(section)
    spans = []
    for end, instruction in enumerate(code):
        match = BRANCH.search(instruction)
        if match and labels[match[1]] <= end:
            spans.append(range(labels[match[1]], end + 1))
    return [
        Loop(
            code[span.start : span.stop],
            len(code) - len(span),
            control[span.start : span.stop],
        )
        for span in spans
        if not any(inner != span and inner[0] in span and inner[-1] in span for inner in spans)
    ]


def count_executed(section: str, taken: dict[int, int]) -> int:
    """Count the instructions that a warp executes until it exits, without NOPs.

    `taken` says how often the warp takes a branch with a predicate, given its address; the others
    it never takes. If only some lanes take one, the warp executes both ways: leave it out.
    """
    code, _, labels = read_section(section)
    left, at, count = dict(taken), 0, 0
    while code[at] != "EXIT":
        count += code[at] != "NOP"
        branch, address = BRANCH.search(code[at]), 16 * at
        always = branch and not PREDICATE.match(code[at])
        if branch and (always or left.get(address)):
            left[address] = 0 if always else left[address] - 1
            at = labels[branch[1]]
        else:
            at += 1
    if any(left.values()):
        raise ValueError(f"no branch, or not reached as often: {left}")
    return count + 1


def read_section(section: str) -> tuple[list[str], list[ControlBits], dict[str, int]]:
    """Return a kernel's instructions, their controls, and the number of the one after each label.

    There are no controls in a listing without hexadecimal code.
    """
    code: list[str] = []
    control: list[ControlBits] = []
    labels = {}
    for line in section.splitlines():
        if match := LABEL.match(line):
            labels[match[1]] = len(code)
        elif match := INSTRUCTION.match(line):
            code.append(" ".join(match[1].split()))
        elif match := UPPER_HALF.match(line):
            bits = int(match[1], 16)  # 64 to 127
            control.append(ControlBits(bits >> 41 & 15, bits >> 46 & 7, bits >> 52 & 63))
    return code, control, labels
