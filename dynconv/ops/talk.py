"""Computes TaLK (Lioutas and Guo 2020, section 3): each position sums a window of its own size.

Offsets in [0, 1] place the window's edges at a_l = t - left * max_left and
a_r = t + right * max_right, cut at the ends of the sequence (equation 4). The sum takes a token
that an edge cuts through in part (equation 5) and is divided by the largest window's size:

    out[b, t, c] = 1 / (max_left + max_right + 1)
                   * sum_s min(clip(1 - (a_l - s), 0, 1), clip(1 - (s - a_r), 0, 1)) * x[b, s, c]

Equation (15.5) of the book; its gradients are (16.2) and (16.4).
"""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from dynconv.kernels import torch_ops
from dynconv.kernels.dtypes import upcast
from dynconv.ops.auto import Implementations, choose
from dynconv.ops.blocked import blocks
from dynconv.ops.checks import check_talk
from dynconv.ops.shapes import split_heads


def edges(
    left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> tuple[Tensor, Tensor]:
    """Return the distances (B, T, H) from each position to its window's edges, cut at the ends.

    The edges' positions would round the fraction away where t is large. The distances are at least
    float32 for the same reason. A whole distance has gradient 0, as in equation 6.
    """
    T = left.shape[1]
    left = upcast(left)
    t = torch.arange(T, device=left.device, dtype=left.dtype)[:, None]  # (T, 1)
    to_left = torch.minimum((left * max_left).clamp(min=0), t)
    to_right = torch.zeros_like(left) if right is None else (right * max_right).clamp(min=0)
    return held_if_whole(to_left), held_if_whole(torch.minimum(to_right, T - 1 - t))


def held_if_whole(distance: Tensor) -> Tensor:
    """Return the distance, without its gradient where it is whole.

    There the edge cuts no token, and through clips and minima autograd would give a number that is
    the derivative of neither side.
    """
    return torch.where(distance == distance.floor(), distance.detach(), distance)


def talk_conv_loop(
    x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> Tensor:
    """Evaluate the equation one output position and one token at a time: the oracle."""
    T, C = x.shape[1:]
    R = C // left.shape[2]
    to_left, to_right = edges(left, right, max_left, max_right)
    rows = []
    for t in range(T):
        row = torch.zeros_like(x[:, t])
        for s in range(T):
            inside_left = (1 - (t - s) + to_left[:, t]).clamp(0, 1)  # (B, H)
            inside_right = (1 - (s - t) + to_right[:, t]).clamp(0, 1)
            share = torch.minimum(inside_left, inside_right).repeat_interleave(R, dim=1)
            row = row + share * x[:, s]
        rows.append((row / (max_left + max_right + 1)).to(x.dtype))
    return torch.stack(rows, dim=1)


def talk_conv_window(
    x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> Tensor:
    """Build each head's weights as a T x T matrix, then multiply once for the whole batch."""
    T, C = x.shape[1:]
    to_left, to_right = edges(left, right, max_left, max_right)
    t = torch.arange(T, device=x.device, dtype=to_left.dtype)
    ahead = t - t[:, None]  # (T, T): s - t
    inside_left = (1 + ahead + to_left.transpose(1, 2).unsqueeze(-1)).clamp(0, 1)  # (B, H, T, T)
    inside_right = (1 - ahead + to_right.transpose(1, 2).unsqueeze(-1)).clamp(0, 1)
    share = torch.minimum(inside_left, inside_right)
    heads = split_heads(x, left.shape[2]).to(share.dtype)  # (B, H, T, R)
    out = (share @ heads).transpose(1, 2).flatten(2) / (max_left + max_right + 1)
    return out.to(x.dtype)


def talk_conv_table(
    x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> Tensor:
    """Take differences in a table of prefix sums, as the paper does (equations 2, 3 and 5).

    Both sums grow with the distance from the start, so their difference loses digits in long
    sequences. Besides, `cumsum` over time is slow.
    """
    T, C = x.shape[1:]
    table = upcast(x).cumsum(dim=1)
    table = F.pad(table, (0, 0, 1, 0))  # (B, T + 1, C): row i is the sum of the first i tokens
    R = C // left.shape[2]
    to_left, to_right = (
        distance.repeat_interleave(R, dim=2) for distance in edges(left, right, max_left, max_right)
    )  # (B, T, C)
    t = torch.arange(T, device=x.device)[:, None]  # (T, 1)

    def whole(distance: Tensor) -> Tensor:  # a NaN still reaches the result through its fraction
        return distance.nan_to_num().long()

    cut = to_left - to_left.floor()  # the share of the token that the left edge cuts through
    before = cut * table.gather(1, t - whole(to_left.ceil()))
    before = before + (1 - cut) * table.gather(1, t - whole(to_left.floor()))
    cut = to_right - to_right.floor()
    upto = cut * table.gather(1, t + 1 + whole(to_right.ceil()))
    upto = upto + (1 - cut) * table.gather(1, t + 1 + whole(to_right.floor()))
    return ((upto - before) / (max_left + max_right + 1)).to(x.dtype)


def reach(distance: Tensor, limit: int) -> int:
    """Return how far windows reach: `limit`, or further where offsets exceed 1.

    A graph that is being compiled knows no values: there, offsets must not exceed 1.
    """
    if torch.compiler.is_compiling() or distance.numel() == 0:
        return limit
    return max(limit, math.ceil(distance.nan_to_num().max().item()))


def soft_boxes(
    to_left: Tensor, to_right: Tensor, max_left: int, max_right: int
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield each block's positions t, the tokens s in their reach, and the share (B, H, t, s) that
    each position's window takes of each token; see `blocks`.
    """
    before, after = reach(to_left, max_left), reach(to_right, max_right)
    for t, s, _ in blocks(to_left.shape[2], before + 1 + after, before):
        tokens = torch.arange(s.start, s.stop, device=to_left.device)
        ahead = tokens - torch.arange(t.start, t.stop, device=to_left.device)[:, None]  # s - t
        inside_left = to_left[:, :, t, None] + (1 + ahead)
        inside_right = to_right[:, :, t, None] + (1 - ahead)
        yield t, s, torch.minimum(inside_left, inside_right).clamp_(0, 1)


class TalkBlocked(torch.autograd.Function):
    """Multiplies the soft boxes of a block of positions by the tokens in their reach."""

    @staticmethod
    def forward(ctx, x, left, right, max_left, max_right):
        ctx.save_for_backward(x, left, right)
        ctx.reach = max_left, max_right
        out = x.new_empty(x.shape)
        H, K = left.shape[2], max_left + max_right + 1
        to_left, to_right = (d.transpose(1, 2) for d in edges(left, right, max_left, max_right))
        rows, tokens = split_heads(out, H), split_heads(x, H)
        with torch.autocast(x.device.type, enabled=False):
            for t, s, share in soft_boxes(to_left, to_right, max_left, max_right):
                rows[:, :, t] = (share @ tokens[:, :, s].to(share.dtype)).div_(K)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        """Return the gradients: that of left is max_left / K times the token that its edge cuts."""
        x, left, right = ctx.saved_tensors
        max_left, max_right = ctx.reach
        H, K = left.shape[2], max_left + max_right + 1
        to_left, to_right = (d.transpose(1, 2) for d in edges(left, right, max_left, max_right))
        grad = x.new_zeros(x.shape, dtype=to_left.dtype)
        grad_left, grad_right = torch.empty_like(to_left), torch.empty_like(to_right)  # (B, H, T)
        rows, tokens, summed = (split_heads(z, H) for z in (g, x, grad))
        with torch.autocast(x.device.type, enabled=False):
            for t, s, share in soft_boxes(to_left, to_right, max_left, max_right):
                row = rows[:, :, t].to(share.dtype) / K
                summed[:, :, s] += share.mT @ row
                products = row @ tokens[:, :, s].to(share.dtype).contiguous().mT  # (B, H, t, s)
                at = torch.arange(t.start - s.start, t.stop - s.start, device=x.device)
                grad_left[:, :, t] = at_edge(products, to_left[:, :, t], at, -1)
                grad_right[:, :, t] = at_edge(products, to_right[:, :, t], at, 1)
        grad_left = (grad_left * max_left).transpose(1, 2).to(left.dtype)
        if right is None:
            return grad.to(x.dtype), grad_left, None, None, None
        grad_right = (grad_right * max_right).transpose(1, 2).to(right.dtype)
        return grad.to(x.dtype), grad_left, grad_right, None, None


def at_edge(products: Tensor, distance: Tensor, at: Tensor, sign: int) -> Tensor:
    """Return each row's entry at the token that its edge cuts through, 0 where it cuts none."""
    whole = distance.floor()
    column = at + sign * (1 + whole.nan_to_num().long())
    column = column.clamp(0, products.shape[-1] - 1).unsqueeze(-1)
    return products.gather(-1, column).squeeze(-1).masked_fill(distance == whole, 0)


def talk_conv_blocked(
    x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> Tensor:
    """Apply the weights in blocks of 32 positions, in memory linear in T and without long sums.

    Keeps only its inputs for the backward pass, whose own derivative is not defined.
    """
    return TalkBlocked.apply(x, left, right, max_left, max_right)


IMPLEMENTATIONS: Implementations = {
    "loop": talk_conv_loop,
    "window": talk_conv_window,
    "table": talk_conv_table,
    "blocked": talk_conv_blocked,
    "native": torch_ops.talk,
    "cuda": torch_ops.talk,
}


def talk_conv(
    x: Tensor,
    left: Tensor,
    right: Tensor | None,
    *,
    max_left: int,
    max_right: int,
    impl: str = "auto",
) -> Tensor:
    """Sum a window whose two edges each position chooses (Lioutas and Guo 2020, equations 3-8).

    x          (B, T, C)  real
    left       (B, T, H)  offset of the left edge, as a share of max_left, at least 0
    right      (B, T, H)  offset of the right edge, as a share of max_right; None if max_right == 0
    returns    (B, T, C)  differentiable in x, left and right

    Offsets may be float32 where x is in half precision. Raises ValueError for shapes that do not
    fit, for a negative reach, when right and max_right contradict each other, and when `impl` is
    unknown or cannot run; TypeError for mixed dtypes.
    """
    check_talk(x, left, right, max_left, max_right)
    K = max_left + max_right + 1
    implementation = choose("talk_conv", IMPLEMENTATIONS, impl, x, K)
    return implementation(x, left, right, max_left, max_right)
