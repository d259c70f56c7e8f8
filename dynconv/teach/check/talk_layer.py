"""The check of the exercise on TaLK's normalisation."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from dynconv import ops
from dynconv.ops.talk import edges
from dynconv.teach.check.inputs import left_alone
from dynconv.teach.compare import compare

CASES = [(9, 1, 4, 2), (9, 3, 4, 2), (9, 3, 5, 0), (5, 2, 15, 7), (1, 1, 2, 2)]
"""T, H, max_left, max_right: one head, several, causal, no window without a cut, one word"""


def true_width(mine: Callable[..., Tensor]) -> None:
    """mine(x, left, right, max_left, max_right) is the mean of each window: its sum, divided by
    how many words, and parts of words, it holds; right is None if max_right == 0."""
    for T, H, max_left, max_right in CASES:
        seed = torch.Generator().manual_seed(T)
        x, left, right = (torch.rand(2, T, n, generator=seed).double() for n in (6, H, H))
        inputs = [x - 0.5, left] + ([right] if max_right else [])
        try:
            _check(mine, inputs, max_left, max_right)
        except AssertionError as error:
            where = f"T = {T}, H = {H}, reaches {max_left} and {max_right}"
            raise AssertionError(f"{where}: {error}") from None
    print(f"right: values and the gradients of x and the offsets agree on {len(CASES)} cases")


def _check(mine: Callable[..., Tensor], inputs: list[Tensor], max_left: int, max_right: int):
    def call(f: Callable[..., Tensor], x: Tensor, left: Tensor, right: Tensor | None = None):
        return f(x, left, right, max_left, max_right)

    names, given = ("x", "left", "right"), [z.clone() for z in inputs]
    out, right_one = call(mine, *given), call(_divided, *inputs)
    if not isinstance(out, Tensor):
        raise AssertionError(f"it returns a {type(out).__name__}, not a tensor")
    if out.dtype != inputs[0].dtype:
        raise AssertionError(f"it returns {out.dtype} for an x of {inputs[0].dtype}")
    left_alone(names, given, inputs)
    for fault, wrong in FAULTS.items():
        instead = call(wrong, *inputs)
        if out.shape == instead.shape and torch.allclose(out, instead, atol=1e-6):
            if not torch.allclose(right_one, instead, atol=1e-6):
                raise AssertionError(fault)
    try:
        compare(partial(call, mine), partial(call, _divided), *inputs)
    except AssertionError as error:
        message = str(error)
        for i, name in enumerate(names):
            message = message.replace(f"gradients of floating input {i}", f"gradients of {name}")
        if message.startswith(("gradients of left", "gradients of right")):
            message += "; the width depends on the offsets, too: is it detached?"
        raise AssertionError(message) from None


def _divided(x, left, right, max_left, max_right, width=None):
    """The sum, divided by `width`: a function of the distances to both edges and the reaches."""
    K = max_left + max_right + 1
    total = K * ops.talk_conv(x, left, right, max_left=max_left, max_right=max_right, impl="window")
    size = (width or _true)(left, right, max_left, max_right)
    return total / size.repeat_interleave(x.shape[2] // left.shape[2], dim=2)


def _true(left, right, max_left, max_right):
    return sum(edges(left, right, max_left, max_right)) + 1


def _uncut(left, right, max_left, max_right):
    return left * max_left + (0 if right is None else right * max_right) + 1


def _mixed_heads(x, left, *rest):
    """The width of head c % H for channel c."""
    R = x.shape[2] // left.shape[2]
    width = _true(left, *rest)
    return _divided(x, left, *rest) * width.repeat_interleave(R, dim=2) / width.repeat(1, 1, R)


FAULTS = {
    "this is the sum, not divided": partial(
        _divided, width=lambda left, *rest: torch.ones_like(left)
    ),
    "this divides by max_left + max_right + 1, as the paper does": partial(
        _divided, width=lambda left, r, *reach: torch.full_like(left, sum(reach) + 1)
    ),
    "the width is that of a window which no end of the sentence cuts": partial(
        _divided, width=_uncut
    ),
    "this divides by K as well as by the width: talk_conv has divided by K": partial(
        _divided, width=lambda left, r, *reach: _true(left, r, *reach) * (sum(reach) + 1)
    ),
    "each head has widths of its own, for the R channels next to each other": _mixed_heads,
    "the width lacks the word itself: add 1": partial(
        _divided, width=lambda *a: _true(*a) - 1
    ),
    "the width is rounded to whole words": partial(
        _divided, width=lambda *a: _true(*a).round()
    ),
}  # fmt: skip
