"""`dynconv doctor`: what is installed here, what impl="auto" chooses, and what is missing."""

import platform
import shlex
import textwrap
import time
from typing import Any

from dynconv import __version__
from dynconv.cli.missing_package import installed_version, list_requirements
from dynconv.cli.options import add_command
from dynconv.paths import find_checkout

EXTRAS = {
    "gpu": "the CUDA kernels",
    "nvrtc": "dynconv bench kernels --predict",
    "tune": "dynconv tune",
    "chinese": "dynconv data prepare wmt17-zh-en",
    "lessons": "the lessons",
    "book": "the book",
    "test": "the tests",
}
"""extras of the package and what they are needed for"""
CHECKOUT = "lessons", "book", "test"
"""extras for what an installed package does not contain"""


def add_parser(subparsers) -> None:
    """Add `dynconv doctor`."""
    add_command(subparsers, "doctor", run)


def run(options) -> None:
    """Show what is installed, which kernels can run, and how to get what is missing."""
    print(describe_machine())


def describe_machine() -> str:
    """Describe this machine and installation: versions, devices, and kernels that can run."""
    import torch

    from dynconv import ops
    from dynconv.ops.registry import OPERATORS

    threads = torch.get_num_threads()
    lines = [
        f"dynconv {__version__}, Python {platform.python_version()}, "
        f"{threads} thread{'s' * (threads != 1)}",
        "",
        "Packages",
        *describe_packages(),
        "",
        "Devices",
        "  cpu",
        *describe_gpus(),
    ]
    lines += ["", 'What impl="auto", the default of every operator in dynconv.ops, chooses']
    rest = (
        "Otherwise it chooses a PyTorch implementation, by the number T of positions and K of taps:"
    )
    layout: dict[str, Any] = {"width": 99, "initial_indent": "  ", "subsequent_indent": "    "}
    layout |= {"break_on_hyphens": False, "break_long_words": False}  # paths stay whole
    for text in (describe_c_kernels(), describe_cuda_kernels(), rest):
        lines += textwrap.wrap(text, **layout)
    for name, operator in OPERATORS.items():
        rules = ", else ".join(map(str, operator.rules))
        lines.append(f"    {name:<21}{rules}")
    lines += ["", "What impl=... accepts here besides auto"]
    lines += [f"    {name:<21}{', '.join(ops.implementations(name))}" for name in OPERATORS]
    return "\n".join(lines)


def describe_packages() -> list[str]:
    """Return a line for each package that dynconv requires, and for each of its extras."""
    required = list_requirements()
    lines = [
        f"  {name:<18} {installed_version(name) or f'MISSING: pip install {name}'}"
        for name, extra in required
        if extra is None
    ]
    for extra, use in EXTRAS.items():
        if extra in CHECKOUT and find_checkout() is None:
            continue
        missing = [n for n, group in required if group == extra and not installed_version(n)]
        status = f"MISSING {', '.join(missing)}: pip install 'dynconv[{extra}]'"
        lines.append(f"  {f'dynconv[{extra}]':<18} for {use}: {status if missing else 'complete'}")
    return lines


def describe_gpus() -> list[str]:
    """Return a line for each GPU that PyTorch sees, with its architecture."""
    import torch

    from dynconv.kernels.cuda import build as cuda

    return [
        f"  cuda:{i}  {torch.cuda.get_device_name(i)}, {cuda.architecture_name(i)}"
        for i in range(torch.cuda.device_count())
    ]


def describe_c_kernels() -> str:
    """Say when auto chooses the C kernels and why, or what their absence costs."""
    import torch

    from dynconv.kernels.compiler import cache_directory
    from dynconv.kernels.cpu import build as cpu

    if reason := cpu.why_unavailable():
        return (
            f"The C kernels (impl='cpu') cannot run: {reason}. Everything works without them, "
            "in PyTorch, but more slowly: at 1,000 positions forward and backward take two "
            "(LightConv) to six (TaLK) times as long."
        )
    compiler = cpu.require_compiler()
    notes = [cpu.describe_substitution(compiler)]
    if not cpu.load_library(torch.float32).threaded():
        notes.append("This compiler's OpenMP does not fit PyTorch's, so they run on one thread")
    return (
        "On a CPU, in float32, float64 and bfloat16, it chooses the C kernels (cpu), because "
        "they were the fastest at nearly every length that we measured. They are compiled by "
        f"{shlex.join(compiler)} and kept in {cache_directory()}."
        f"{''.join(f' {note}.' for note in notes if note)}"
    )


def describe_cuda_kernels() -> str:
    """Say when auto chooses the CUDA kernels and why, or what prevents them here."""
    import torch

    from dynconv import ops
    from dynconv.kernels.cuda import build as cuda

    tested = cuda.tested_architectures()
    passed = ", ".join(name for name, current in tested.items() if current)
    stale = ", ".join(name for name, current in tested.items() if not current)
    status = (
        "On a GPU it chooses the CUDA kernels (cuda) only on architectures where their tests have "
        f"passed: {passed or 'none so far; `pytest -m gpu` in a clone runs them'}."
    )
    if stale:
        status += f" On {stale} they passed for older sources: run `pytest -m gpu` in a clone."
    if reason := cuda.why_unavailable():
        return f"{status} The CUDA kernels (impl='cuda') cannot run here: {reason}."
    start = time.perf_counter()
    try:
        x = torch.ones(1, 1, 4, device="cuda")
        ops.light_conv(x, torch.ones(1, 1, device="cuda"), pad_left=0, impl="cuda").sum().item()
    except RuntimeError as error:
        return f"{status} The CUDA kernels (impl='cuda') fail here: {error}."
    seconds = time.perf_counter() - start
    chosen = "so it chooses them" if cuda.is_trusted_on(x) else "so ask for them with impl='cuda'"
    return (
        f"{status} This GPU is {cuda.architecture_name(x.device.index)}, {chosen}. They can run "
        f"here in float32, float64, float16 and bfloat16. CuPy compiled the first one in "
        f"{seconds:.1f} s; it keeps them in ~/.cupy/kernel_cache."
    )
