"""What `dynconv bench ops` compares: a copy, attention, implementations of each operator."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import torch
from torch import Tensor

from dynconv import ops
from dynconv.errors import UserError
from dynconv.lab.bench.cases import Case, Shape, attention, draw
from dynconv.lab.bench.measure import Run, peak
from dynconv.ops.registry import OPERATORS

PROBES = 256, 512, 768  # lengths from which `predict_peaks` extrapolates to longer ones


@dataclass(frozen=True)
class Competitor:
    """An implementation with its inputs and, if it has a backward pass, the output's gradient."""

    operator: str
    impl: str
    function: Callable[..., Tensor]
    inputs: Sequence[Tensor]
    gradient: Tensor | None

    def forward(self) -> Tensor:
        return self.function(*self.inputs)

    def forward_backward(self) -> Sequence[Tensor]:
        """Return the gradients of all inputs, without adding them to `.grad`."""
        with torch.enable_grad():
            return torch.autograd.grad(self.forward(), self.inputs, self.gradient)

    def record(self) -> Callable[[], Sequence[Tensor]]:
        """Run forward, and return a call that runs backward alone and can be repeated."""
        with torch.enable_grad():
            out = self.forward()
        grad = torch.autograd.grad
        return partial(grad, out, self.inputs, self.gradient, retain_graph=True)

    def run(self, direction: str) -> Run:
        """Return what is measured in one direction."""
        if direction == "backward":  # the graph keeps the output alive, as large as its gradient
            kept = self.gradient.nbytes
            return Run(self.operator, self.impl, direction, self.record, self.inputs, kept)
        call = getattr(self, direction)
        return Run(self.operator, self.impl, direction, lambda: call, self.inputs)


def competitors(shape: Shape, K: int, chosen: dict[str, list[str]]) -> Iterator[Competitor]:
    """Yield a copy, attention, and the chosen implementations of each operator, all on the same x.

    chosen: names of implementations by operator, as `choose` returns them
    """
    cpu = torch.device("cpu")
    (x, *_), gradient, _ = draw(Case("cumulative_mean", K, torch.float32, shape), cpu)
    yield Competitor("copy", "", torch.empty_like(x).copy_, [x], None)
    k, v = torch.randn(2, *x.shape, generator=torch.Generator().manual_seed(2))
    inputs = [z.requires_grad_() for z in (x.clone(), k, v)]
    yield Competitor("attention", "", partial(attention, heads=shape.H), inputs, gradient)
    for operator, impls in chosen.items():
        case = Case(operator, K, torch.float32, shape)
        inputs = [z.requires_grad_() for z in draw(case, cpu)[0]]
        for impl in impls:
            function = partial(getattr(ops, operator), **case.options(), impl=impl)
            yield Competitor(operator, impl, function, inputs, gradient)


def choose(operators: Sequence[str], impls: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the implementations to measure, by operator; if none are named, all but the oracle.

    Raises UserError for an operator or an implementation that does not exist here.
    """
    chosen = {}
    for operator in operators:
        if operator not in OPERATORS:
            raise UserError(f"no operator {operator!r}: there are {', '.join(OPERATORS)}")
        known = ["auto", *ops.implementations(operator)]
        chosen[operator] = [impl for impl in known if (impl in impls if impls else impl != "loop")]
    for impl in impls or ():
        if not any(impl in names for names in chosen.values()):
            known = sorted({impl for name in operators for impl in ops.implementations(name)})
            raise UserError(f"no implementation {impl!r} here: there are auto, {', '.join(known)}")
    return chosen


def predict_peaks(shape: Shape, K: int, chosen: dict[str, list[str]]) -> list[float]:
    """Return about how many bytes each competitor needs at its peak, in the order of `competitors`.

    The prediction extrapolates from one sentence of three short lengths. A parabola through their
    peaks is enough, because memory grows at most with T x T matrices.
    """
    lengths = PROBES if shape.T > max(PROBES) else (shape.T,)
    shares = [prod((shape.T - b) / (a - b) for b in lengths if b != a) for a in lengths]  # Lagrange
    peaks = [
        [
            0 if short.gradient is None else peak(short.forward_backward)
            for short in competitors(shape._replace(B=1, T=T), K, chosen)
        ]
        for T in lengths
    ]
    return [
        shape.B * sum(share * measured for share, measured in zip(shares, column, strict=True))
        for column in zip(*peaks, strict=True)
    ]
