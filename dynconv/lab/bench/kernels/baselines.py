"""Lists what a kernel is compared with: PyTorch's implementations, and its own first version."""

import re
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv import ops
from dynconv.dtypes import dtype_name
from dynconv.kernels.cuda.call import convert, launch_on_gpu
from dynconv.kernels.cuda.launches import dropconnect_arguments
from dynconv.kernels.cuda.plan import CUDA_TYPES, Launch, describe_tensor, outer_strides
from dynconv.lab.bench.cases import SOFTMAX_CONV, Case
from dynconv.lab.bench.kernels.calls import call_backward, call_forward
from dynconv.lab.bench.kernels.correctness import (
    DROPOUT,
    TOLERANCE,
    fill_with_nan,
    record_error,
    relative_error,
    relative_errors,
)
from dynconv.lab.bench.measure import Measurement
from dynconv.lab.simulate.launch import launch_on_cpu

LOOSE_TOLERANCE = TOLERANCE | {"float32": 1e-4}
"""the tolerance for v1, which adds up the gradient of a kernel in one long sum"""

FIRST_VERSIONS = {
    "light_conv": ("lightconv.cu", "light_conv_v1"),
    "dynamic_conv": ("dynamicconv.cu", "dynamic_conv_v1"),
    "softmax_conv": ("softmaxconv.cu", "softmax_conv_v1"),
    "talk_conv": ("talk.cu", "talk_conv_v1"),
}
"""source and kernel of each operator's first version"""


def first_versions(
    case: Case, inputs: Sequence[Tensor], g: Tensor, seed: Tensor
) -> dict[str, Callable[[], list[Tensor]]]:
    """Return calls of v1, the first version in each source: forward, and backward if it exists."""
    x, *others = inputs
    pad = case.K // 2
    sizes = *case.shape, pad if case.operator == "talk_conv" else case.K, pad

    def start(source: str, name: str, like: Tensor, *arguments) -> None:
        """Launch one thread per element of `like`."""
        grid = -(-like.numel() // 256), (256, 1), 0
        launch = Launch(source, name, (CUDA_TYPES[x.dtype],), *grid, arguments)
        tensors = [z for z in arguments if isinstance(z, Tensor)]
        run = launch_on_gpu if x.is_cuda else launch_on_cpu
        run(launch, [convert(z) for z in arguments], tensors)

    def steps(*tensors: Tensor) -> list:
        return outer_strides(*map(describe_tensor, tensors))

    def forward() -> list[Tensor]:
        out = torch.empty_like(x)
        moves = steps(x, *(z for z in others if z.dim() == 4))
        seeds, drop = (
            ([seed], dropconnect_arguments(DROPOUT)) if case.operator == SOFTMAX_CONV else ([], [])
        )
        start(*FIRST_VERSIONS[case.operator], x, x, *others, *seeds, out, *sizes, *drop, *moves)
        return [out]

    def backward() -> list[Tensor]:
        gradients = [torch.empty_like(z) for z in inputs]
        moves = steps(g, x)
        if case.operator == "talk_conv":
            start("talk.cu", "talk_grad_v1", x, g, x, *others, *gradients, *sizes, *moves)
            return gradients
        dx, dweight = gradients
        start(*FIRST_VERSIONS["light_conv"], x, g, others[0].flip(1), dx, *sizes, *steps(g))
        start("lightconv.cu", "light_weight_grad_v1", dweight, g, x, dweight, *sizes, *moves)
        return gradients

    # There is a first version of one gradient of dynamic_conv, and of none of the softmax's. Those
    # of light_conv and talk_conv take seconds for long sequences.
    whole = case.operator in ("light_conv", "talk_conv") and case.shape.T <= 1000
    return {"forward": forward} | ({"backward": backward} if whole else {})


def torch_compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compile a function with torch.compile, with gradients enabled as in training."""
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False  # else retain_graph is refused
    torch._dynamo.reset()
    return torch.enable_grad()(torch.compile(function, dynamic=False))


def eager_implementations(case: Case) -> dict[str, Callable[..., Tensor]]:
    """Return PyTorch's implementations by name.

    For softmax_conv both make the weights first; "separate" then takes what `auto` chooses for
    dynamic_conv, "shifted" adds shifted copies.
    """
    operator = case.operator
    sizes = case.options()
    sizes |= {"dropout": DROPOUT} if operator == SOFTMAX_CONV else {}
    names = [n for n in ops.implementations(operator) if n not in ("loop", "cpu", "cuda")]
    functions = {name: partial(getattr(ops, operator), **sizes, impl=name) for name in names}

    def shifted(x: Tensor, logits: Tensor) -> Tensor:
        weight = F.dropout(ops.normalize_kernel(logits), DROPOUT)
        return ops.dynamic_conv(x, weight, **case.options(), impl="shifted")

    return functions | ({"shifted": shifted} if operator == SOFTMAX_CONV else {})


def kernel_runs(
    kernels, case: Case, inputs: list[Tensor], g: Tensor, seed: Tensor
) -> list[Measurement]:
    """Check the kernels in use and their first versions; return them, ready to be timed."""
    dropconnect = (seed, DROPOUT) if case.operator == SOFTMAX_CONV else ()
    errors, expected = relative_errors(kernels, case, inputs, g, seed)

    def make_forward(tensors: Sequence[Tensor]) -> Callable[[], object]:
        return partial(call_forward, kernels, case, tensors, *dropconnect)

    def make_backward(tensors: Sequence[Tensor]) -> Callable[[], object]:
        g, *inputs = tensors
        return partial(call_backward, kernels, case, g, inputs, *dropconnect)

    reads = {"forward": inputs, "backward": [g, *inputs]}
    dtype = dtype_name(case.dtype)
    runs = []
    for direction, make in {"forward": make_forward, "backward": make_backward}.items():
        runs.append(Measurement(case.operator, "cuda", direction, make, reads[direction]))
        record_error(runs[-1], errors[direction], TOLERANCE[dtype])
    for direction, call in first_versions(case, inputs, g, seed).items():

        def make(tensors: Sequence[Tensor], direction: str = direction) -> Callable[[], object]:
            g, *inputs = tensors
            return first_versions(case, inputs, g, seed)[direction]

        runs.append(Measurement(case.operator, "v1", direction, make, [g, *inputs]))
        wanted = expected[:1] if direction == "forward" else expected[1:]
        with runs[-1].note_failure():
            with fill_with_nan():
                results = call()
            record_error(
                runs[-1], list(map(relative_error, results, wanted)), LOOSE_TOLERANCE[dtype]
            )
    return runs


def attention_backend(out: Tensor) -> str:
    """Return which of PyTorch's attentions computed `out`, by the name of its gradient."""
    node = out.grad_fn
    while node is not None:
        if match := re.search("ScaledDotProduct(.*)Attention", node.name()):
            return match[1].lower()
        node = node.next_functions[0][0] if node.next_functions else None
    return "products"
