"""TaLK (Lioutas and Guo 2020, section 3), which sums a window of a different size at each
position.

Offsets in [0, 1] place the window's edges at a_l = t - left * max_left and
a_r = t + right * max_right, clamped to the sequence (equation 4). Where an edge falls between two
tokens, the sum includes only a fraction of the outer one (equation 5). It is divided by the size of
the largest window:

    out[b, t, c] = 1 / (max_left + max_right + 1)
                   * sum_s min(clip(1 - (a_l - s), 0, 1), clip(1 - (s - a_r), 0, 1)) * x[b, s, c]

This is equation (15.5) of the book; (16.2) and (16.4) are its gradients.
"""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.dtypes import accumulator_dtype, upcast, without_autocast
from dynconv.kernels import cuda_ops, torch_ops
from dynconv.ops.blocked import blocks
from dynconv.ops.checks import check_talk
from dynconv.ops.derivatives import first_derivative_only
from dynconv.ops.operator import Operator, Rule
from dynconv.ops.shapes import split_heads


def edge_distances(
    left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> tuple[Tensor, Tensor]:
    """Return the distances (B, T, H) from each position to its window's edges.

    We keep distances instead of the positions a_l and a_r, and at least in float32, because
    rounding a large position would destroy its fraction. A whole distance has gradient 0, as in
    equation 6.
    """
    T = left.shape[1]
    t = torch.arange(T, device=left.device, dtype=accumulator_dtype(left.dtype))[:, None]  # (T, 1)
    right = torch.zeros_like(left) if right is None else right
    return edge_distance(left, max_left, t), edge_distance(right, max_right, T - 1 - t)


def edge_distance(offset: Tensor, reach: int, room: Tensor) -> Tensor:
    """Return the distances (B, T, H) to one edge; `room` (T, 1) is how far the text goes there."""
    return detach_if_whole(torch.minimum((upcast(offset) * reach).clamp(min=0), room))


def detach_if_whole(distance: Tensor) -> Tensor:
    """Return the distances, and stop the gradient of those that are integers.

    The sum has a kink there, for which autograd would return the slope of neither side.
    """
    return torch.where(distance == distance.floor(), distance.detach(), distance)


def talk_conv_loop(
    x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> Tensor:
    """Evaluate the equation one output position and one token at a time: the oracle."""
    T, C = x.shape[1:]
    R = C // left.shape[2]
    to_left, to_right = edge_distances(left, right, max_left, max_right)
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


def talk_conv_band(
    x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> Tensor:
    """Write the weights of each head into a T x T band matrix and multiply x by it.

    It needs T^2 memory; `talk_conv_blocked` writes only the blocks near the diagonal.
    """
    T, C = x.shape[1:]
    to_left, to_right = edge_distances(left, right, max_left, max_right)
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
    """Subtract prefix sums, as the paper does (equations 2, 3 and 5).

    Prefix sums grow with t, so their difference loses digits in long sequences. `cumsum` over time
    is also slow.
    """
    T, C = x.shape[1:]
    table = upcast(x).cumsum(dim=1)
    table = F.pad(table, (0, 0, 1, 0))  # (B, T + 1, C): table[:, i] sums the first i tokens
    R = C // left.shape[2]
    to_left, to_right = (
        distance.repeat_interleave(R, dim=2)
        for distance in edge_distances(left, right, max_left, max_right)
    )  # (B, T, C)
    t = torch.arange(T, device=x.device)[:, None]  # (T, 1)

    def whole(distance: Tensor) -> Tensor:  # a NaN still reaches `out` through `cut`
        return distance.nan_to_num().long()

    cut = to_left - to_left.floor()  # fraction of the outer token that is included
    before = cut * table.gather(1, t - whole(to_left.ceil()))
    before = before + (1 - cut) * table.gather(1, t - whole(to_left.floor()))
    cut = to_right - to_right.floor()
    upto = cut * table.gather(1, t + 1 + whole(to_right.ceil()))
    upto = upto + (1 - cut) * table.gather(1, t + 1 + whole(to_right.floor()))
    return ((upto - before) / (max_left + max_right + 1)).to(x.dtype)


def actual_reach(distance: Tensor, limit: int) -> int:
    """Return how far windows reach: `limit`, or further if offsets exceed 1.

    torch.compile and the meta device see no values, so there offsets must not exceed 1.
    """
    if torch.compiler.is_compiling() or distance.is_meta or distance.numel() == 0:
        return limit
    return max(limit, math.ceil(distance.nan_to_num().max().item()))


def window_weights(
    to_left: Tensor, to_right: Tensor, max_left: int, max_right: int
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield the positions t of each block, the tokens s within reach, and the weights (B, H, t, s).

    A weight is the fraction of token s that the window of position t includes; see `blocks`.
    """
    before, after = actual_reach(to_left, max_left), actual_reach(to_right, max_right)
    for t, s, _ in blocks(to_left.shape[2], before + 1 + after, before):
        tokens = torch.arange(s.start, s.stop, device=to_left.device)
        ahead = tokens - torch.arange(t.start, t.stop, device=to_left.device)[:, None]  # s - t
        inside_left = to_left[:, :, t, None] + (1 + ahead)
        inside_right = to_right[:, :, t, None] + (1 - ahead)
        yield t, s, torch.minimum(inside_left, inside_right).clamp_(0, 1)


def causal_talk_weights(left: Tensor, max_left: int) -> Tensor:
    """Return the weights (B, T, H, max_left + 1) of each position's last tokens, the oldest first.

    left  the offsets (B, T, H) of causal windows, whose right edge is the position itself

    Windows may reach past the start of the sentence, so the tokens there must be zeros.
    """
    behind = torch.arange(max_left, -1, -1, device=left.device)
    distance = left.unsqueeze(-1) * max_left  # (B, T, H, 1)
    return (1 - behind + distance).clamp(0, 1) / (max_left + 1)


class TalkBlocked(torch.autograd.Function):
    """Multiplies the weights of a block of positions by the tokens within their reach."""

    @staticmethod
    def forward(ctx, x, left, right, max_left, max_right):
        ctx.save_for_backward(x, left, right)
        ctx.reach = max_left, max_right
        out = x.new_empty(x.shape)
        H, K = left.shape[2], max_left + max_right + 1
        to_left, to_right = (
            d.transpose(1, 2) for d in edge_distances(left, right, max_left, max_right)
        )
        rows, tokens = split_heads(out, H), split_heads(x, H)
        with without_autocast(x):
            for t, s, share in window_weights(to_left, to_right, max_left, max_right):
                rows[:, :, t] = (share @ tokens[:, :, s].to(share.dtype)).div_(K)
        return out

    @staticmethod
    @first_derivative_only("talk_conv with impl='blocked'", "use impl='band'")
    def backward(ctx, g):
        """Return the gradients; d out / d left is max_left / K times the token at the left edge."""
        x, left, right = ctx.saved_tensors
        max_left, max_right = ctx.reach
        H, K = left.shape[2], max_left + max_right + 1
        to_left, to_right = (
            d.transpose(1, 2) for d in edge_distances(left, right, max_left, max_right)
        )
        grad = x.new_zeros(x.shape, dtype=to_left.dtype)
        grad_left, grad_right = torch.empty_like(to_left), torch.empty_like(to_right)  # (B, H, T)
        rows, tokens, summed = (split_heads(z, H) for z in (g, x, grad))
        with without_autocast(x):
            for t, s, share in window_weights(to_left, to_right, max_left, max_right):
                row = rows[:, :, t].to(share.dtype) / K
                summed[:, :, s] += share.mT @ row
                products = row @ tokens[:, :, s].to(share.dtype).contiguous().mT  # (B, H, t, s)
                at = torch.arange(t.start - s.start, t.stop - s.start, device=x.device)
                grad_left[:, :, t] = gather_edge_token(products, to_left[:, :, t], at, -1)
                grad_right[:, :, t] = gather_edge_token(products, to_right[:, :, t], at, 1)
        grad_left = (grad_left * max_left).transpose(1, 2).to(left.dtype)
        if right is None:
            return grad.to(x.dtype), grad_left, None, None, None
        grad_right = (grad_right * max_right).transpose(1, 2).to(right.dtype)
        return grad.to(x.dtype), grad_left, grad_right, None, None


def gather_edge_token(products: Tensor, distance: Tensor, at: Tensor, sign: int) -> Tensor:
    """Return each row's entry at the token that its edge cuts, 0 if the distance is whole."""
    whole = distance.floor()
    column = at + sign * (1 + whole.nan_to_num().long())
    column = column.clamp(0, products.shape[-1] - 1).unsqueeze(-1)
    return products.gather(-1, column).squeeze(-1).masked_fill(distance == whole, 0)


def talk_conv_blocked(
    x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> Tensor:
    """Apply the weights in blocks of 32 positions, with memory linear in T.

    Saves only its inputs for the backward pass, and has no second derivative.
    """
    return TalkBlocked.apply(x, left, right, max_left, max_right)


OPERATOR = Operator(
    "talk_conv",
    {
        "loop": talk_conv_loop,
        "band": talk_conv_band,
        "table": talk_conv_table,
        "blocked": talk_conv_blocked,
        "cpu": torch_ops.talk_conv,
        "cuda": cuda_ops.talk_conv,
    },
    (Rule("band", max_T=10), Rule("blocked")),
    transformable_impl="band",
)


def talk_conv(
    x: Tensor,
    left: Tensor,
    right: Tensor | None,
    *,
    max_left: int,
    max_right: int,
    impl: str = "auto",
) -> Tensor:
    """Sum windows whose two edges each position chooses (Lioutas and Guo 2020, equations 3-8).

    x          (B, T, C)  real
    left       (B, T, H)  offset of the left edge, as a fraction of max_left, at least 0
    right      (B, T, H)  offset of the right edge, as a fraction of max_right; None if it is 0
    returns    (B, T, C)  differentiable in x, left and right

    Offsets may be float32 if x is in half precision. Raises TypeError for mixed dtypes,
    and ValueError for shapes that do not fit, for a negative reach, when right and max_right
    contradict each other, or when `impl` is unknown or cannot run. For a second derivative give
    impl="band", because "auto" may take an implementation that has none; its memory grows with T^2.
    """
    check_talk(x, left, right, max_left, max_right)
    K = max_left + max_right + 1
    implementation = OPERATOR.choose(impl, x, x.shape[1], K)
    return implementation(x, left, right, max_left, max_right)
