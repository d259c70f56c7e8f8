"""`dynconv doctor`: what is installed here, what it is for, and how to get what is missing."""

import platform
import time
from importlib import metadata
from importlib.util import find_spec

from dynconv.cli.options import add_command

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


def add_parser(subparsers) -> None:
    """Add `dynconv doctor`."""
    add_command(subparsers, "doctor", run)


def run(options) -> None:
    """Show what is installed, and what is missing and how to get it."""
    print(report())


def report() -> str:
    """Return the report, one line per thing."""
    import torch

    from dynconv import ops
    from dynconv.ops.auto import RULES
    from dynconv.ops.registry import OPERATORS

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
    lines += ["", 'operators (dynconv.ops) and what impl="auto" takes']
    lines += [*native_kernels(), *cuda_kernels()]
    for name in OPERATORS:
        rules = ", else ".join(str(rule) for rule in RULES[name])
        lines += [f"  {name:<21}{rules}", f"  {'':<21}of {', '.join(ops.implementations(name))}"]
    return "\n".join(lines)


def native_kernels() -> list[str]:
    """What the C kernels are good for here, or what is missed without them."""
    from dynconv.kernels.cpu import build as native

    reason = native.missing()
    if reason is None:
        return [
            "  On the CPU in float32, float64 and bfloat16: native, the C kernels, compiled by",
            f"  {native.find_compiler()} and kept in {native.cache_directory()}.",
        ]
    return [
        f"  The C kernels (impl='native') cannot run: {reason}.",
        "  Everything works without them, in PyTorch alone, but more slowly: at 1,000 positions",
        "  forward and backward take two (LightConv) to six (TaLK) times as long.",
    ]


def cuda_kernels() -> list[str]:
    """What the CUDA kernels are good for here, and how long one takes to compile."""
    import torch

    from dynconv import ops
    from dynconv.kernels.cuda import build as cuda

    elsewhere = "  For the rest, by the number T of positions and K of taps:"
    if reason := cuda.missing():
        return [f"  The CUDA kernels (impl='cuda') cannot run: {reason}.", elsewhere]
    start = time.perf_counter()
    try:
        x = torch.ones(1, 1, 4, device="cuda")
        ops.light_conv(x, torch.ones(1, 1, device="cuda"), pad_left=0, impl="cuda").sum().item()
    except RuntimeError as error:
        return [f"  The CUDA kernels (impl='cuda') fail: {error}.", elsewhere]
    return [
        "  The CUDA kernels (impl='cuda') run here in float32, float64, float16 and bfloat16. The",
        f"  first kernel was there after {time.perf_counter() - start:.1f} s; CuPy keeps them in",
        "  ~/.cupy/kernel_cache.",
        f"  auto {'takes' if cuda.verified(x) else 'leaves'} them: this GPU is "
        f"{cuda.architecture(x.device.index)}, and their tests have passed on "
        f"{', '.join(cuda.verified_architectures()) or 'no GPU yet'}.",
        elsewhere,
    ]


def _version(name: str) -> str | None:
    """The version of an importable package, None when it is not there."""
    if find_spec(name) is None:
        return None
    distribution = metadata.packages_distributions().get(name, [name])[0]
    return metadata.version(distribution)
