"""What is installed here, what it is good for, and how to get what is missing."""

import platform
from importlib import metadata
from importlib.util import find_spec

import torch

from dynconv import ops
from dynconv.kernels import native
from dynconv.ops.auto import RULES
from dynconv.ops.registry import OPERATORS

WANTED = {
    "torch": "everything",
    "tokenizers": "byte-pair encoding",
    "sacrebleu": "scores",
    "safetensors": "checkpoints",
    "pydantic": "recipes",
    "matplotlib": "figures",
    "tensorboard": "curves in TensorBoard",
    "pooch": "data fetch",
    "jupyterlab": "the lessons: pip install 'dynconv[lessons]'",
    "nbval": "the tests: pip install 'dynconv[test]'",
    "cupy": "CUDA kernels: pip install 'dynconv[gpu]'",
}


def doctor() -> str:
    """The report, a line for each thing."""
    lines = [
        f"dynconv {metadata.version('dynconv')}, Python {platform.python_version()}, "
        f"{torch.get_num_threads()} threads",
        "",
        "packages",
    ]
    for name, use in WANTED.items():
        version = _version(name) or "MISSING"
        lines.append(f"  {name:<12} {version:<16} {use}")
    lines += ["", "devices", "  cpu"]
    lines += [
        f"  cuda:{i}  {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())
    ]
    lines += ["", 'operators (dynconv.ops) and what impl="auto" takes', *native_kernels()]
    for name in OPERATORS:
        rules = ", else ".join(str(rule) for rule in RULES[name])
        lines += [f"  {name:<16} {rules}", f"  {'':<16} of {', '.join(ops.implementations(name))}"]
    return "\n".join(lines)


def native_kernels() -> list[str]:
    """What the C kernels are good for here, or what is missed without them."""
    reason = native.missing()
    if reason is None:
        return [
            "  On the CPU in float32, float64 and bfloat16: native, the C kernels, compiled by",
            f"  {native.find_compiler()} and kept in {native.cache_directory()}.",
            "  For other dtypes and devices, by the number T of positions and K of taps:",
        ]
    return [
        f"  The C kernels (impl='native') cannot run: {reason}.",
        "  Everything works without them, in PyTorch alone, but more slowly: at 1,000 positions",
        "  forward and backward take two (LightConv) to six (TaLK) times as long. By the number",
        "  T of positions and K of taps:",
    ]


def _version(name: str) -> str | None:
    """The version of an importable package, None when it is not there."""
    if find_spec(name) is None:
        return None
    distribution = metadata.packages_distributions().get(name, [name])[0]
    return metadata.version(distribution)
