"""Lists what `dynconv bench ops` measures: a copy, attention, each operator's implementations."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from dynconv import ops
from dynconv.errors import UserError, name_hint, quoted
from dynconv.lab.bench.cases import Case, Shape, attention, draw_inputs
from dynconv.lab.bench.measure import Measurement
from dynconv.ops.registry import OPERATORS

CPU = torch.device("cpu")
LIMIT = 8e9
"""bytes that an implementation may need; at most half of the memory here"""
if hasattr(os, "sysconf"):  # not on Windows
    LIMIT = min(LIMIT, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2)
MATRICES = {"light_conv": 2, "dynamic_conv": 2, "talk_conv": 9}
"""T x T matrices per head in memory at the peak of impl="band", by operator"""


@dataclass(frozen=True)
class Implementation:
    """An implementation of an operator, with its inputs and the gradient of its output.

    gradient  None if there is no backward pass
    """

    case: Case
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

    def prepare_backward(self) -> Callable[[], Sequence[Tensor]]:
        """Run forward, and return a call that runs only backward, any number of times."""
        with torch.enable_grad():
            out = self.forward()
        grad = torch.autograd.grad
        return partial(grad, out, self.inputs, self.gradient, retain_graph=True)

    def measurement(self, direction: str) -> Measurement:
        """Return the measurement to make of one direction; a note refuses too much memory."""
        read = () if self.gradient is None or direction == "forward" else (self.gradient,)

        def make(tensors: Sequence[Tensor]) -> Callable[[], object]:
            count = len(self.inputs)
            gradient = next(iter(tensors[count:]), None)
            given = replace(self, inputs=tensors[:count], gradient=gradient)
            return (
                given.prepare_backward() if direction == "backward" else getattr(given, direction)
            )

        run = Measurement(self.case.operator, self.impl, direction, make, (*self.inputs, *read))
        if direction == "backward" and self.gradient is not None:
            run.kept = self.gradient.nbytes  # the graph keeps the output alive, which is as large
        B, T, _, H = self.case.shape
        matrices = MATRICES.get(self.case.operator, 0) if self.impl == "band" else 0
        need = matrices * B * H * T * T * self.case.dtype.itemsize
        if need > LIMIT:
            run.note = f"needs about {need / 1e9:.3g} GB, more than {LIMIT / 1e9:.3g} GB"
        return run


def iter_implementations(
    shape: Shape,
    K: int,
    chosen: dict[str, list[str]],
    dtype: torch.dtype = torch.float32,
    device: torch.device = CPU,
) -> Iterator[Implementation]:
    """Yield a copy, attention, and the chosen implementations of each operator, all on the same x.

    chosen  names of implementations by operator, as `choose_implementations` returns them
    """
    mean = Case("cumulative_mean", K, dtype, shape)
    (x, *_), gradient, _ = draw_inputs(mean, device)
    yield Implementation(mean._replace(operator="copy"), "", torch.empty_like(x).copy_, [x], None)
    k, v = torch.randn(2, *x.shape, generator=torch.Generator().manual_seed(2)).to(x)
    inputs = [z.requires_grad_() for z in (x.clone(), k, v)]
    attend = partial(attention, heads=shape.H)
    yield Implementation(mean._replace(operator="attention"), "", attend, inputs, gradient)
    for operator, impls in chosen.items():
        case = mean._replace(operator=operator)
        inputs = [z.requires_grad_() for z in draw_inputs(case, device)[0]]
        for impl in impls:
            function = partial(getattr(ops, operator), **case.options(), impl=impl)
            yield Implementation(case, impl, function, inputs, gradient)


def choose_implementations(
    operators: Sequence[str], impls: Sequence[str] | None
) -> dict[str, list[str]]:
    """Return the implementations to measure, by operator; if none are named, all but the oracle.

    Raises UserError for an operator or an implementation that does not exist here.
    """
    chosen = {}
    for operator in operators:
        if operator not in OPERATORS:
            hint = name_hint(operator, OPERATORS, "there are")
            raise UserError(f"no operator {quoted(operator)}; {hint}")
        known = ["auto", *ops.implementations(operator)]
        chosen[operator] = [impl for impl in known if (impl in impls if impls else impl != "loop")]
    for impl in impls or ():
        if not any(impl in names for names in chosen.values()):
            known = sorted({impl for name in operators for impl in ops.implementations(name)})
            hint = name_hint(impl, ["auto", *known], "there are")
            raise UserError(f"no implementation {quoted(impl)} here; {hint}")
    return chosen
