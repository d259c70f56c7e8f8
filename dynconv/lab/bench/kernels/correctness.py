"""Checks kernels against float64 arithmetic on the same inputs, before they are timed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf

import torch
from torch import Tensor

from dynconv import ops
from dynconv.dtypes import accumulator_dtype
from dynconv.lab.bench.cases import SOFTMAX_CONV, Case
from dynconv.lab.bench.kernels.calls import call_backward, call_forward
from dynconv.lab.bench.measure import Measurement

DROPOUT = 0.1
"""probability with which DropConnect drops a weight"""
TOLERANCE = {"float32": 5e-7, "bfloat16": 2**-8, "float16": 2**-10, "float64": 1e-12}
"""largest relative error of a result that counts as right, by dtype"""
CHUNK = 2**24
"""elements of x that are converted to float64 at a time"""


@contextmanager
def fill_with_nan() -> Iterator[None]:
    """Fill newly allocated tensors with NaN, which reveals elements that a kernel never writes."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def relative_error(result: Tensor, expected: Tensor) -> float:
    """Return |result - expected| / |expected|; NaN if any element is NaN."""
    size = expected.norm().item()
    return (result.double() - expected).norm().item() / (size or 1)


def record_error(run: Measurement, errors: Sequence[float], allowed: float) -> None:
    """Record the largest error of a run; a note says if it exceeds `allowed` or is NaN."""
    run.right = all(one <= allowed for one in errors)
    run.error = torch.tensor(errors).max().item()
    if not run.right:
        run.note = f"WRONG, not timed: error {run.error:.2g}, allowed {allowed:.2g}"


def compute_reference(
    case: Case, inputs: Sequence[Tensor], g: Tensor, factor: Tensor | None = None
) -> list[Tensor]:
    """Return output and gradients in float64, by shifted copies or by the paper's windows.

    factor  (B, T, H, K), by which DropConnect multiplies the softmax
    """
    B, T, C, _ = case.shape
    pad = case.K // 2
    size = max(1, CHUNK // (T * C))
    parts = []
    for rows in (slice(first, first + size) for first in range(0, B, size)):
        some = [z if z.dim() == 2 else z[rows] for z in inputs]
        leaves = [z.detach().to(torch.float64, copy=True).requires_grad_() for z in some]
        with torch.enable_grad():
            if case.operator == "talk_conv":
                impl = "band" if T <= 1000 else "table"  # T x T numbers per head, or T
                out = ops.talk_conv(*leaves, max_left=pad, max_right=pad, impl=impl)
            elif case.operator == SOFTMAX_CONV:
                weight = leaves[1].softmax(-1) * (1 if factor is None else factor[rows])
                out = ops.dynamic_conv(leaves[0], weight, pad_left=pad, impl="shifted")
            else:
                out = getattr(ops, case.operator)(*leaves, pad_left=pad, impl="shifted")
            gradients = torch.autograd.grad(out, leaves, g[rows].double())
        parts.append([out.detach(), *gradients])
    # The gradient of a kernel that all sentences share is the sum over sentences.
    return [sum(z) if z[0].dim() == 2 else torch.cat(z) for z in zip(*parts, strict=True)]


def dropconnect_mask(kernels, case: Case, logits: Tensor, seed: Tensor) -> tuple[Tensor, bool]:
    """Return which weights DropConnect keeps, (B, T, H, K), and whether it keeps enough of them.

    We read the mask off the kernel's output: if channel r of a head is 1 at positions r,
    r + period, ... and 0 elsewhere, each output is the weight of the one tap that meets such a
    position.
    """
    (B, T, C, H), K, R = case.shape, case.K, case.shape.C // case.shape.H
    period = R * -(-K // R)  # no two taps of one position meet the same channel
    t, r = torch.arange(T, device=logits.device), torch.arange(R, device=logits.device)
    weights = []
    for first in range(0, period, R):
        units = (t[:, None] % period == first + r).to(logits.dtype)  # (T, R)
        x = units.repeat(1, H).expand(B, T, C).contiguous()
        out = call_forward(kernels, case, [x, logits], seed, DROPOUT)
        weights.append(out.unflatten(2, (H, R)))
    s = t[:, None] + torch.arange(K, device=t.device) - K // 2  # (T, K): the position a tap meets
    index = (s % period)[:, None].expand(B, T, H, K)
    kept = torch.cat(weights, dim=3).gather(3, index) != 0
    inside = (0 <= s) & (s < T)
    count = B * H * inside.sum().item()
    share = (kept & inside[:, None]).sum().item() / count
    return kept, abs(share - (1 - DROPOUT)) <= 6 * (DROPOUT * (1 - DROPOUT) / count) ** 0.5


def relative_errors(
    kernels, case: Case, inputs: Sequence[Tensor], g: Tensor, seed: Tensor
) -> tuple[dict[str, list[float]], list[Tensor]]:
    """Run both directions; return their relative errors, and the float64 results.

    kernels  torch.ops.dynconv, or simulate.kernels for tensors on the CPU
    """
    errors: dict[str, list[float]] = {"forward": [], "backward": []}
    for drop in (False, True) if case.operator == SOFTMAX_CONV else (False,):
        dropconnect = (seed, DROPOUT) if drop else (None, 0.0)
        factor = None
        with fill_with_nan():
            out = call_forward(kernels, case, inputs, *dropconnect)
            gradients = call_backward(kernels, case, g, inputs, *dropconnect)
            if drop:
                kept, right = dropconnect_mask(kernels, case, inputs[1], seed)
                scale = torch.tensor(1 / (1 - DROPOUT), dtype=accumulator_dtype(case.dtype))
                factor = kept.double() * scale.item()  # as exact as the kernels have it
                errors["forward"] += [] if right else [inf]
        expected = compute_reference(case, inputs, g, factor)
        errors["forward"].append(relative_error(out, expected[0]))
        errors["backward"] += map(relative_error, gradients, expected[1:])
    return errors, expected
