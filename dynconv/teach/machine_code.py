"""Records the machine code of the kernels that lessons write.

`python -m dynconv.teach.machine_code` writes data/results/machine-code.json, which has the main
loop of each kernel on sm_90, how long it takes a warp, how many instructions there are in each
innermost loop and in all, and for some how many a warp executes or when it needs what it loads.
Loops are without the slow path of divisions, which ordinary numbers do not take.
So lessons count instructions also where neither NVRTC nor nvdisasm is installed.
"""

import ast
import hashlib
import re

import jupytext

from dynconv.kernels.cuda import build
from dynconv.lab import ledger
from dynconv.lab.nvidia import nvdisasm, nvrtc
from dynconv.lab.nvidia.nvdisasm import Loop
from dynconv.teach.checkout import require_checkout, run_tool
from dynconv.teach.launch import HEADER

LOAD = 30
"""cycles of a load from shared memory, as in lesson 18, and, as we assume, of a constant"""
KERNELS = {
    "18_roofline": ["depthwise_v1<float>", "depthwise_v2<float>"],
    "19_lightconv_kernels": [
        *("light_v1<float>", "light_v2<float>", "light_kept<float, 31>"),
        *("light_v3<float, 1>", "light_v3<float, 4>"),
        "light_weight<float, 2, false>",
        "add_rows<float>",
    ],
    "20_dynamicconv_kernels": [
        *("softmax_warp", "softmax_four", "dynamic_first", "dynamic_tile"),
        *("dynamic_fused", "dynamic_dry", "weight_grad"),
    ],
    "21_talk_kernels": [
        *("column_scan", "column_scan_restrict", "gather", "gather_once"),
        *("walk", "walk_masked", "walk_ahead", "walk_back"),
    ],
    "lightconv.cu": ["light_conv<float, 4, false>", "light_conv_grad<float, 4, 16, true>"],
}
"""kernels, keyed by lesson, or by file of the package"""
HEADERS = {"20_dynamicconv_kernels": "softmaxconv.cu"}
"""the file of the package that stands before a lesson's kernels, instead of HEADER"""
CALLS = {
    "softmax_four": ["softmax_of_four"],
    "dynamic_tile": ["convolve"],
    "dynamic_fused": ["softmax_of_four", "convolve"],
    "dynamic_dry": ["softmax_of_four", "convolve"],
    "weight_grad": ["convolve"],
}
"""functions that kernels call, each in a string of its own"""
REQUESTS = {"walk"}
"""kernels whose entries have the cycles in which a turn issues its loads and needs their results"""
TAKEN = {
    # The first loop takes two of a lane's ten zeros. Two of the 38 words come singly, the others in
    # nine turns. dynamic_tile has eight rows, with a tap per lane; in the others the reciprocal is
    # the fast one, and there are draws.
    "dynamic_tile": {
        **{0x380: 1, 0x450: 1, 0x9E0: 8, 0xA70: 8},
        **{0x1180: 7, 0x1B30: 1, 0x2280: 8},
    },
    "dynamic_dry": {0x360: 1, 0x430: 1, 0x1390: 1, 0x1F90: 1, 0x26E0: 8},
    "dynamic_fused": {0x360: 1, 0x430: 1, 0x1510: 1, 0x16E0: 1, 0x31B0: 1, 0x3900: 8},
    # Two heads, each with a tap per lane, and three turns of eight rows.
    "light_conv<float, 4, false>": {
        **{0x1060: 2, 0x15C0: 2, 0x1650: 2, 0x1CC0: 1},
        **{0x3D20: 2, 0x3D50: 1},
    },
    # The same, 32 zeros in two turns, and four tiles; then four groups of sums in two turns.
    "light_conv_grad<float, 4, 16, true>": {
        **{0x270: 1, 0xE40: 1, 0xF30: 1, 0x1B20: 1, 0x1C10: 1},
        **{0x2960: 1, 0x2980: 1, 0x2AC0: 1, 0x2BB0: 1},
        **{0x2D90: 4, 0x7490: 8, 0x74C0: 4, 0x9F10: 3, 0xA790: 1, 0xA7B0: 1},
    },
}
"""how often a warp takes a branch, given its address, in the middle of a sentence

For K = 31 and R = 64, and for the package 10 sentences of 1,000 tokens in 1,024 channels."""
SLOW_PATH = re.compile(
    r"(BRA `\((\.L_x_\d+)\) ;[^\n]*\n(?:\s*/\* 0x[0-9a-f]{16} \*/\n)?)"  # a branch
    r"(?:(?!\.L_x_\d+:).)*?CALL[^\n]*_slowpath(?:(?!\.L_x_\d+:).)*"  # what it skips
    r"(?=\2:)",  # where it ends
    re.DOTALL,
)
"""the call with which a division deals with tiny and huge numbers, and the branch around it"""


def source_of(lesson: str, kernel: str) -> str:
    """Return the source of a kernel, preceded by the functions it calls; or a whole file.

    If several strings define a function, the first one counts: later ones are faulty on purpose.
    """
    if lesson.endswith(".cu"):
        return build.inline_headers(lesson)
    strings = strings_of(lesson).values()
    found = []
    for name in [*CALLS.get(kernel, []), kernel.partition("<")[0]]:
        defines = re.compile(rf"__(global|device)__ [^;{{]*\b{name}\(")
        found.append(next(text for text in strings if defines.search(text)))
    return "".join(found)


def strings_of(lesson: str) -> dict[str, str]:
    """Return the strings that a lesson assigns to names: "...", NAME, sums, .replace(), +=."""
    strings: dict[str, str] = {}

    def value(node: ast.expr) -> str | None:
        match node:
            case ast.Constant(str(text)):
                return text
            case ast.Name(name):
                return strings.get(name)
            case ast.BinOp(left, ast.Add(), right):
                parts = value(left), value(right)
                return None if None in parts else "".join(map(str, parts))
            case ast.Call(ast.Attribute(of, "replace"), [old, new]):
                parts = value(of), value(old), value(new)
                return None if None in parts else str.replace(*map(str, parts))
        return None

    for cell in jupytext.read(require_checkout() / "lessons" / f"{lesson}.md").cells:
        for node in ast.parse(cell.source).body if cell.cell_type == "code" else ():
            match node:
                case ast.Assign(targets, right) if (text := value(right)) is not None:
                    strings |= {t.id: text for t in targets if isinstance(t, ast.Name)}
                case ast.AugAssign(ast.Name(name), ast.Add(), right) if name in strings:
                    strings[name] += value(right) or ""
    return strings


def hash_source(source: str) -> str:
    """Return the sha256 of a source."""
    return hashlib.sha256(source.encode()).hexdigest()


def leave_out_slow_paths(section: str) -> str:
    """Return a kernel's code without the calls that ordinary numbers skip when they are divided."""
    return SLOW_PATH.sub(r"\1", section)


def measure(lesson: str, kernel: str) -> dict[str, object]:
    """Compile a kernel for sm_90, and return its entry of the record."""
    source = source_of(lesson, kernel)
    header = "" if lesson.endswith(".cu") else build.inline_headers(HEADERS.get(lesson, HEADER))
    compiled = nvrtc.compile_program(header + source, [kernel], "sm_90")
    section = nvdisasm.disassemble(compiled)[kernel]
    usual = leave_out_slow_paths(section)
    loop = nvdisasm.main_loop(usual)
    if loop is None or not loop.count("FFMA", "FADD"):  # straight on, to the exit
        code, control, _ = nvdisasm.read_section(usual)
        end = code.index("EXIT") + 1
        loop = Loop(code[:end], control=control[:end])
    sizes = [each.instructions for each in nvdisasm.innermost_loops(usual)]
    code, _, _ = nvdisasm.read_section(section)
    taken = TAKEN.get(kernel)
    return {
        "source": hash_source(source),
        "registers": compiled.kernels[kernel].registers,
        "spilled": compiled.kernels[kernel].spilled,
        "instructions": loop.instructions,
        "products": loop.multiply_adds,
        "pauses": loop.pauses,
        "path": loop.path(LOAD),
        "loops": [n for n in sizes if n > 1],  # a kernel's code ends with a jump to itself
        "all": sum(line != "NOP" for line in code),  # NOPs fill up the last lines
        **({"executed": nvdisasm.count_executed(section, taken)} if taken else {}),
        **({"requests": [*map(list, loop.requests(LOAD))]} if kernel in REQUESTS else {}),
        "loop": loop.code,
    }


def main() -> None:
    """Write the record."""
    numbers = {k: measure(lesson, k) for lesson, kernels in KERNELS.items() for k in kernels}
    what = (
        "instructions in the main loop of each kernel of the lessons, for sm_90, without the slow "
        "path of divisions, which ordinary numbers do not take; the sum of their stall counts, "
        "and a warp's cycles if it waits for nothing but shared memory and constants, "
        f"{LOAD} per load"
    )
    command = "python -m dynconv.teach.machine_code"
    record = ledger.new_record(what, command, numbers, versions={"nvrtc": nvrtc.version()})
    ledger.write(ledger.output_path("machine-code", None), record)


if __name__ == "__main__":
    run_tool(main)
