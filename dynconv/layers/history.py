"""The state of convolutions and of TaLK: a history of their last inputs."""

import torch
from torch import Tensor

from dynconv.ops.dynamicconv import conv_windows
from dynconv.ops.step import conv_step


class Slots:
    """A buffer (capacity, rows, C) that is filled slot by slot.

    Slots below `filled` are never written again, so histories can share them.
    """

    def __init__(self, start: Tensor, capacity: int):
        self.data = start.new_empty(capacity, *start.shape[1:])
        self.data[: len(start)] = start
        self.filled = len(start)


class History:
    """The last inputs of N sequences, which start as zeros.

    `extended` and `select` return new histories and never change the old one, although they may
    share its buffer. `extended` writes only the new positions. `select`, with which a beam search
    reorders its hypotheses, copies only indices: row_of[n, i] is the row of slot i that contains
    the input of sequence n. The buffer has room for twice as many positions as a layer looks back.
    If it is full, or another history has already written past this one's end, these positions are
    copied to a new buffer.
    """

    def __init__(self, slots: Slots, row_of: Tensor):
        self.slots, self.row_of = slots, row_of

    @staticmethod
    def extended(history: "History | None", x: Tensor, size: int) -> "History":
        """Return a history that adds x (N, n, C) and keeps at least `size` older positions.

        None stands for the history before the first position, which is `size` zeros.
        """
        x = x.detach().transpose(0, 1)  # (n, N, C)
        n, N, C = x.shape
        rows = torch.arange(N, device=x.device)[:, None]
        if history is None:
            zeros = Slots(x.new_zeros(size, N, C), 2 * size + 1)
            history = History(zeros, rows.expand(N, size))
        slots, row_of, end = history.slots, history.row_of, history.row_of.shape[1]
        fits = end + n <= len(slots.data) and N <= slots.data.shape[1]
        if not fits or slots.filled != end:
            slots = Slots(history.last(size).transpose(0, 1), max(2 * size + 1, size + n))
            row_of = rows.expand(N, size)
            end = size
        slots.data[end : end + n, :N] = x
        slots.filled = end + n
        return History(slots, torch.cat([row_of, rows.expand(N, n)], dim=1))

    def select(self, rows: Tensor) -> "History":
        """Return the history of these rows; a row may appear several times."""
        return History(self.slots, self.row_of.index_select(0, rows))

    def last(self, size: int) -> Tensor:
        """Return a copy of the last `size` positions (N, size, C)."""
        end = self.row_of.shape[1]
        row_of = self.row_of[:, end - size :]
        return self.slots.data[torch.arange(end - size, end, device=row_of.device), row_of]

    def convolve(self, weight: Tensor) -> Tensor:
        """Convolve at the last n positions by weight (N, n, H, K): (N, n, C), without gradients."""
        weight = weight.detach()  # neither states nor the C kernel have gradients
        n, K = weight.shape[1], weight.shape[3]
        if self.row_of.shape[1] < K - 1 + n:
            raise ValueError(
                f"{K} taps need {K - 1} earlier positions: History.extended(state, x, {K - 1})"
            )
        if n > 1:
            return conv_windows(self.last(K - 1 + n), weight)
        end = self.row_of.shape[1]
        past, row_of = self.slots.data[end - K : end], self.row_of[:, end - K :]
        return conv_step(past, row_of, weight[:, 0]).unsqueeze(1)
