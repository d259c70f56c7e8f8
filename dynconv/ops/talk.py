"""TaLK (Lioutas and Guo 2020, section 3): every position sums a window of its own size.

Offsets in [0, 1] place the window's edges at a_l = t - left * max_left and
a_r = t + right * max_right, cut at the ends of the sequence (equation 4). The sum takes a token
that an edge cuts through in part (equation 5) and is divided by the largest window's size:

    out[b, t, c] = 1 / (max_left + max_right + 1)
                   * sum_s min(clip(1 - (a_l - s), 0, 1), clip(1 - (s - a_r), 0, 1)) * x[b, s, c]
"""

import torch
from torch import Tensor

from dynconv.ops.checks import choose, require_heads


def edges(
    left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> tuple[Tensor, Tensor]:
    """Distances (B, T, H) from each position to its window's edges, cut at the sequence's ends.

    Distances, not places: t - left * max_left would round away the fraction at a large t.
    """
    T = left.shape[1]
    t = torch.arange(T, device=left.device, dtype=left.dtype)[:, None]  # (T, 1)
    to_left = torch.minimum(left * max_left, t)
    to_right = torch.zeros_like(left) if right is None else right * max_right
    return to_left, torch.minimum(to_right, T - 1 - t)


def talk_conv_loop(
    x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> Tensor:
    """The oracle: the equation, one output position and one token at a time."""
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
        rows.append(row / (max_left + max_right + 1))
    return torch.stack(rows, dim=1)


def talk_conv_window(
    x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> Tensor:
    """The window's weights as a T x T matrix for each head, then one batched product."""
    T, C = x.shape[1:]
    to_left, to_right = edges(left, right, max_left, max_right)
    t = torch.arange(T, device=x.device, dtype=left.dtype)
    ahead = t - t[:, None]  # (T, T): s - t
    inside_left = (1 + ahead + to_left.transpose(1, 2).unsqueeze(-1)).clamp(0, 1)  # (B, H, T, T)
    inside_right = (1 - ahead + to_right.transpose(1, 2).unsqueeze(-1)).clamp(0, 1)
    share = torch.minimum(inside_left, inside_right).to(x.dtype)
    heads = x.unflatten(2, (left.shape[2], -1)).transpose(1, 2)  # (B, H, T, R)
    return (share @ heads).transpose(1, 2).flatten(2) / (max_left + max_right + 1)


IMPLEMENTATIONS = {"loop": talk_conv_loop, "window": talk_conv_window}


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
    left       (B, T, H)  offset of the left edge, as a share of max_left
    right      (B, T, H)  offset of the right edge, as a share of max_right; None if max_right == 0
    returns    (B, T, C)  differentiable in x, left and right

    Raises ValueError when H does not divide C, when an offset's shape does not fit x, when right
    is missing or given in vain, when a reach is negative, or when `impl` is unknown.
    """
    require_heads(left.shape[2], x.shape[2])
    if max_left < 0 or max_right < 0:
        raise ValueError(f"max_left {max_left} and max_right {max_right} must not be negative")
    if (right is None) != (max_right == 0):
        raise ValueError(f"right must be None exactly when max_right, here {max_right}, is 0")
    for name, offset in (("left", left), ("right", right)):
        if offset is not None and offset.shape != (*x.shape[:2], left.shape[2]):
            raise ValueError(f"{name} {tuple(offset.shape)} does not fit x {tuple(x.shape)}")
    name = "window" if impl == "auto" else impl
    return choose(IMPLEMENTATIONS, name)(x, left, right, max_left, max_right)
