"""What is installed here, what it is good for, and how to get what is missing."""

import platform
from importlib import metadata
from importlib.util import find_spec

import torch

from dynconv import ops
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
    lines += ["", "operators and their implementations here (dynconv.ops, impl=...)"]
    lines += [f"  {name:<16} {', '.join(ops.implementations(name))}" for name in OPERATORS]
    return "\n".join(lines)


def _version(name: str) -> str | None:
    """The version of an importable package, None when it is not there."""
    if find_spec(name) is None:
        return None
    distribution = metadata.packages_distributions().get(name, [name])[0]
    return metadata.version(distribution)
