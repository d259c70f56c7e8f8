"""data/results/machine-code.json: how many instructions the loops of the lessons' kernels take.

NVRTC compiles without a GPU, and nvdisasm (pip install nvidia-cuda-nvdisasm) prints the code. With
NVDISASM=path/to/nvdisasm, test_the_record_is_what_nvrtc_makes writes the record anew.
"""

import ast
import ctypes
import hashlib
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from conftest import ROOT
from test_lessons_lint import cells

from dynconv.kernels.cuda import build
from dynconv.lab import ledger
from dynconv.lab.simulate import nvrtc

LESSONS = {
    "18_roofline": ["depthwise_v1<float>", "depthwise_v2<float>"],
    "21_talk_kernels": ["column_scan", "gather", "walk", "walk_ahead", "walk_back"],
}
"""the kernels whose main loop a lesson quotes"""
COMMAND = "pytest tests/test_machine_code.py -k what_nvrtc_makes"


def source_of(lesson: str, kernel: str) -> str:
    """The text with a kernel that a lesson's cells assign: A = "...", or B = A and B += "..."."""
    name, texts = kernel.partition("<")[0], {}
    for cell in cells(ROOT / f"lessons/{lesson}.md", "code"):
        for node in ast.parse(cell.source).body:
            match node:
                case ast.Assign(targets=[ast.Name(target)], value=ast.Constant(str(text))):
                    texts[target] = text
                case ast.Assign(value=ast.Name(other)) if other in texts:
                    texts |= {target.id: texts[other] for target in node.targets}
                case ast.AugAssign(ast.Name(target), ast.Add(), ast.Constant(str(text))):
                    texts[target] += text
    (source,) = [text for text in texts.values() if re.search(rf"__global__ void {name}\(", text)]
    return source


def machine_code(source: str, kernel: str, file: Path) -> tuple[nvrtc.Resources, str]:
    """What a kernel takes on sm_90, and its code as nvdisasm prints it."""
    code = build.code("number.cuh") + source
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.call_nvrtc(
        "nvrtcCreateProgram", ctypes.byref(program), code.encode(), b"kernel.cu", 0, None, None
    )
    nvrtc.call_nvrtc("nvrtcAddNameExpression", program, kernel.encode())
    (resources,) = nvrtc.parse(nvrtc.run(program, "sm_90")).values()
    nvrtc.call_nvrtc("nvrtcGetCUBINSize", program, ctypes.byref(size))
    binary = ctypes.create_string_buffer(size.value)
    nvrtc.call_nvrtc("nvrtcGetCUBIN", program, binary)
    nvrtc.call_nvrtc("nvrtcDestroyProgram", ctypes.byref(program))
    file.write_bytes(binary.raw)
    command = [os.environ["NVDISASM"], "-c", file]
    return resources, subprocess.run(command, capture_output=True, check=True, text=True).stdout


def main_loop(text: str) -> list[str]:
    """The instructions of the innermost loop with the most FMAs, then additions.

    All up to the exit, if no loop adds anything.
    """
    code, labels, loops = [], {}, []
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(code)
        elif instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            code.append(" ".join(instruction[1].split()))
            back = re.search(r"\bBRA.*`\((\.L_x_\d+)\)", code[-1])
            if back and back[1] in labels:
                loops.append(code[labels[back[1]] :])
    inner = [a for a in loops if not any(b is not a and holds(a, b) for b in loops)]
    most = max(inner, key=additions)
    return most if any(additions(most)) else code[: code.index("EXIT") + 1]


def additions(loop: list[str]) -> tuple[int, int]:
    return count(loop)["FFMA"], count(loop)["FADD"]


def holds(outer: list[str], inner: list[str]) -> bool:
    """Whether a loop contains another one: that which ends it is among its instructions."""
    return len(inner) < len(outer) and inner[-1] in outer


def count(loop: list[str]) -> Counter:
    """How often each opcode occurs."""
    return Counter(re.sub(r"^@!?U?P\w+ ", "", line).split()[0].split(".")[0] for line in loop)


def digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def test_the_loop_with_the_most_products_is_found():
    text = """
.L_x_1:
        /*0000*/  LDG.E R1, desc[UR4][R2.64] ;
.L_x_2:
        /*0010*/  @!P0 FFMA.FTZ R0, R1, R1, R0 ;
        /*0020*/  FFMA R0, R1, R1, R0 ;
        /*0030*/  @P1 BRA `(.L_x_2) ;
        /*0040*/  @P2 BRA `(.L_x_1) ;
.L_x_3:
        /*0050*/  FFMA R0, R1, R1, R0 ;
        /*0060*/  BRA `(.L_x_3) ;
"""
    loop = main_loop(text)
    assert len(loop) == 3 and count(loop) == {"FFMA": 2, "BRA": 1}


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_lesson_still_has_the_kernels_of_the_record(lesson):
    found = ledger.read("machine-code")["numbers"]
    for kernel in LESSONS[lesson]:
        assert found[kernel]["source"] == digest(source_of(lesson, kernel)), kernel


@pytest.mark.skipif("NVDISASM" not in os.environ, reason="NVDISASM names no nvdisasm")
def test_the_record_is_what_nvrtc_makes(tmp_path):
    if reason := nvrtc.why_unavailable():
        pytest.skip(reason)
    numbers = {}
    for lesson, kernels in LESSONS.items():
        for kernel in kernels:
            source = source_of(lesson, kernel)
            resources, text = machine_code(source, kernel, tmp_path / "kernel.cubin")
            loop = main_loop(text)
            numbers[kernel] = {
                "source": digest(source),
                "registers": resources.registers,
                "spilled": resources.spilled,
                "instructions": len(loop),
                "products": count(loop)["FFMA"],
                "loop": loop,
            }
    what = "instructions in the main loop of each kernel of the lessons, for sm_90"
    entry = ledger.entry(what, COMMAND, numbers, versions={"nvrtc": nvrtc.version()})
    ledger.write(ROOT / "data/results/machine-code.json", entry)
