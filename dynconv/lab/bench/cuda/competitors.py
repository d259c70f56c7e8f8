"""What a kernel competes with: PyTorch's implementations, and the first version in its source."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv import ops
from dynconv.kernels.cuda.call import launch_on_gpu
from dynconv.kernels.cuda.plan import NUMBERS, Launch, array, dropconnect, strides
from dynconv.lab.bench.cases import SEEDED, Case, dtype_name
from dynconv.lab.bench.cuda import floors
from dynconv.lab.bench.cuda.gate import ALLOWED, DROPOUT, error, gate, poisoned
from dynconv.lab.bench.cuda.gpu import first_line
from dynconv.lab.bench.measure import Run
from dynconv.lab.simulate.plans import launch_on_cpu

LOOSE = ALLOWED | {"float32": 1e-4}  # for v1, which adds a kernel's gradient up in one long sum
SLOW = 0.05  # seconds; what takes longer is timed three times

FIRST = {
    "light_conv": ("lightconv.cu", "light_conv_v1"),
    "dynamic_conv": ("dynamicconv.cu", "dynamic_conv_v1"),
    "dynamic_conv_softmax": ("softmaxconv.cu", "softmax_conv_v1"),
    "talk_conv": ("talk.cu", "talk_conv_v1"),
}


def first_versions(
    case: Case, inputs: Sequence[Tensor], g: Tensor, seed: Tensor
) -> dict[str, Callable[[], list[Tensor]]]:
    """Return calls of v1, the first version in each source, by direction if it has all of it."""
    x, *others = inputs
    pad, drawn = case.K // 2, case.operator == SEEDED
    sizes = *case.shape, pad if case.operator == "talk_conv" else case.K, pad

    def start(source: str, name: str, like: Tensor, *arguments) -> None:
        """Launch a thread for each number of `like`."""
        grid = -(-like.numel() // 256), (256, 1), 0
        launch = Launch(source, name, (NUMBERS[x.dtype],), *grid, arguments)
        (launch_on_gpu if x.is_cuda else launch_on_cpu)(launch, list(arguments))

    def steps(*tensors: Tensor) -> list:
        return strides(*map(array, tensors))

    def forward() -> list[Tensor]:
        out, moves = torch.empty_like(x), steps(x, *(z for z in others if z.dim() == 4))
        more, drop = ([seed], dropconnect(DROPOUT)) if drawn else ([], [])
        start(*FIRST[case.operator], x, x, *others, *more, out, *sizes, *drop, *moves)
        return [out]

    def backward() -> list[Tensor]:
        made = [torch.empty_like(z) for z in inputs]
        both = steps(g, x)
        if case.operator == "talk_conv":
            start("talk.cu", "talk_grad_v1", x, g, x, *others, *made, *sizes, *both)
            return made
        flipped = others[0].flip(1)
        start(*FIRST["light_conv"], x, g, flipped, made[0], *sizes, *steps(g))
        start("lightconv.cu", "light_weight_grad_v1", made[1], g, x, made[1], *sizes, *both)
        return made

    # There is a first version of one gradient of dynamic_conv, and of none of the softmax's. Those
    # of light_conv and talk_conv take seconds for long sequences.
    whole = case.operator in ("light_conv", "talk_conv") and case.shape.T <= 1000
    return {"forward": forward} | ({"backward": backward} if whole else {})


@dataclass
class KernelRun(Run):
    """One implementation in one direction on a GPU, and whether its results are right."""

    make: Callable[[], tuple[Callable[[], object], int]] | None = None
    """returns the call to time, and the bytes of an output that the call keeps alive"""
    right: bool | None = None
    """None for implementations that are not checked"""
    error: float | None = None

    @property
    def ms(self) -> float | None:
        """Return the median of its times in milliseconds."""
        return median(self.times) * 1e3 if self.times else None

    def judge(self, errors: Sequence[float], allowed: float) -> None:
        """Keep the largest error, and note it if it is not allowed; NaN never is."""
        self.right = all(one <= allowed for one in errors)
        self.error = torch.tensor(errors).max().item()
        if not self.right:
            self.note = f"WRONG, not timed: error {self.error:.2g}, allowed {allowed:.2g}"


def both_directions(
    impl: str, function: Callable[..., Tensor], inputs: list[Tensor], g: Tensor
) -> list[KernelRun]:
    """Return the runs of forward without autograd, and of backward on a graph recorded before."""

    def backward():
        leaves = [z.detach().requires_grad_() for z in inputs]
        with torch.enable_grad():
            out = function(*leaves)
        return partial(torch.autograd.grad, out, leaves, g, retain_graph=True), out.nbytes

    forward = partial(function, *inputs), 0
    return [
        KernelRun(impl, "forward", make=lambda: forward),
        KernelRun(impl, "backward", make=backward),
    ]


def compiled(function: Callable[..., Tensor], inputs: list[Tensor], g: Tensor) -> list[KernelRun]:
    """Return the runs by torch.compile, compiled once: its forward is that of training."""
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False  # else retain_graph is refused
    torch._dynamo.reset()
    fast = torch.compile(function, dynamic=False)
    leaves = [z.detach().requires_grad_() for z in inputs]

    def forward() -> Tensor:
        with torch.enable_grad():
            return fast(*leaves)

    first = KernelRun("compiled", "forward", make=lambda: (forward, 0))
    return [first, both_directions("compiled", fast, inputs, g)[1]]


def eager(case: Case) -> dict[str, Callable[..., Tensor]]:
    """Return PyTorch's implementations by name.

    For dynamic_conv_softmax both make the weights first; "separate" then takes what `auto` chooses
    for dynamic_conv, "shifted" adds shifted copies.
    """
    operator, sizes = case.operator, case.options()
    sizes |= {"dropout": DROPOUT} if operator == SEEDED else {}
    names = [n for n in ops.implementations(operator) if n not in ("loop", "native", "cuda")]
    found = {name: partial(getattr(ops, operator), **sizes, impl=name) for name in names}

    def shifted(x: Tensor, logits: Tensor) -> Tensor:
        weight = F.dropout(ops.normalize_kernel(logits), DROPOUT)
        return ops.dynamic_conv(x, weight, **case.options(), impl="shifted")

    return found | ({"shifted": shifted} if operator == SEEDED else {})


def kernel_runs(
    kernels, case: Case, inputs: list[Tensor], g: Tensor, seed: Tensor
) -> list[KernelRun]:
    """Return the runs of the kernels in use and of their first versions, checked by the gate."""
    how = (seed, DROPOUT) if case.operator == SEEDED else ()
    errors, expected = gate(kernels, case, inputs, g, seed)
    forward = partial(floors.forward, kernels, case, inputs, *how)
    backward = partial(floors.backward, kernels, case, g, inputs, *how)
    runs = []
    for direction, call in {"forward": forward, "backward": backward}.items():
        runs.append(KernelRun("cuda", direction, make=lambda call=call: (call, 0)))
        runs[-1].judge(errors[direction], ALLOWED[dtype_name(case.dtype)])
    for direction, call in first_versions(case, inputs, g, seed).items():
        runs.append(KernelRun("v1", direction, make=lambda call=call: (call, 0)))
        try:
            with poisoned():
                found = call()
        except Exception as why:  # the others are timed all the same
            runs[-1].note = f"failed: {first_line(why)}"
            continue
        wanted = expected[:1] if direction == "forward" else expected[1:]
        runs[-1].judge(list(map(error, found, wanted)), LOOSE[dtype_name(case.dtype)])
    return runs


def copying(x: Tensor) -> KernelRun:
    """Return the run of a copy of x."""
    return KernelRun("", "forward", make=lambda: (lambda: torch.empty_like(x).copy_(x), 0))


def attention_backend(out: Tensor) -> str:
    """Return which of PyTorch's attentions computed `out`, by the name of its gradient."""
    node = out.grad_fn
    while node is not None:
        if found := re.search("ScaledDotProduct(.*)Attention", node.name()):
            return found[1].lower()
        node = node.next_functions[0][0] if node.next_functions else None
    return "products"
