"""What a convolution remembers while it decodes: its last inputs."""

import torch
from torch import Tensor, nn

from dynconv.ops.dynamicconv import window_mix
from dynconv.ops.step import step_mix


def require_causal(layer: nn.Module, causal: bool) -> None:
    """Raise ValueError when `step` is called on a layer that looks at later positions."""
    if not causal:
        raise ValueError(
            f"{type(layer).__name__}.step decodes from left to right, but this layer also looks at "
            "later positions: build it with causal=True (TaLKConv with max_right=0)"
        )


class Slots:
    """A buffer (slots, rows, C) that fills up slot by slot; several histories may share it."""

    def __init__(self, start: Tensor, slots: int):
        self.data = start.new_empty(slots, *start.shape[1:])
        self.data[: len(start)] = start
        self.filled = len(start)


class History:
    """The last inputs of N rows, zeros at first. Nothing in it ever changes.

    `append` writes only the new positions, and `select`, the reordering of a beam search, moves
    indices only: at (N, filled slots) says in which row of each slot an input lies. The buffer has
    room for twice the window; when it is full, or another history has grown from the same point,
    the window moves to a new one.
    """

    def __init__(self, slots: Slots, at: Tensor):
        self.slots, self.at = slots, at

    @classmethod
    def extend(cls, state: "History | None", x: Tensor, size: int) -> "History":
        """`state` with x (N, n, C) appended; None stands for `size` zeros."""
        if state is None:
            N, _, C = x.shape
            at = torch.arange(N, device=x.device)[:, None].expand(N, size)
            state = cls(Slots(x.new_zeros(size, N, C), 2 * size + 1), at)
        return state.append(x, size)

    def append(self, x: Tensor, size: int) -> "History":
        """With x (N, n, C) as the newest positions; `size` older ones must be kept."""
        x = x.detach().transpose(0, 1)  # (n, N, C)
        n, N, _ = x.shape
        slots, at, end = self.slots, self.at, self.at.shape[1]
        own = torch.arange(N, device=at.device)[:, None].expand(N, n)
        fits = end + n <= len(slots.data) and N <= slots.data.shape[1]
        if not fits or slots.filled != end:
            slots = Slots(self.window(size).transpose(0, 1), max(2 * size + 1, size + n))
            at, end = own[:, :1].expand(N, size), size
        slots.data[end : end + n, :N] = x
        slots.filled = end + n
        return History(slots, torch.cat([at, own], dim=1))

    def select(self, rows: Tensor) -> "History":
        """The history of these rows; a row may stand several times."""
        return History(self.slots, self.at.index_select(0, rows))

    def window(self, size: int) -> Tensor:
        """The last `size` positions (N, size, C), copied together."""
        end = self.at.shape[1]
        at = self.at[:, end - size :]
        return self.slots.data[torch.arange(end - size, end, device=at.device), at]

    def mix(self, weight: Tensor) -> Tensor:
        """The convolution at the last n positions: weight (N, n, H, K), result (N, n, C)."""
        n, K = weight.shape[1], weight.shape[3]
        if n > 1:
            return window_mix(self.window(K - 1 + n), weight)
        end = self.at.shape[1]
        past, at = self.slots.data[end - K : end], self.at[:, end - K :]
        return step_mix(past, at, weight[:, 0]).unsqueeze(1)
