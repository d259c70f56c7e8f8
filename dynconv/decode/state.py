"""The next token's logits, by keeping a state or by running over the whole prefix.

Both have one interface: call with the newest token of each row, and `keep` the rows to go on with.
A sentence's hypotheses stand side by side in N = B x beam rows and share its B-row memory.
"""

from typing import Any

import torch
from torch import Tensor, nn

from dynconv.layers.history import History
from dynconv.models.seq2seq import DecoderState


class Recompute:
    """Runs the decoder over the whole prefix at each step: the oracle, O(T^2) positions."""

    def __init__(self, model: nn.Module, source: Tensor, pad_mask: Tensor):
        self.model = model
        self.memory = model.encode(source, pad_mask)
        self.prefix = source.new_empty(len(source), 0)

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits (N, V) after the newest tokens (N,)."""
        self.prefix = torch.cat([self.prefix, tokens[:, None]], dim=1)
        return self.model.output(self.model.decode(self.prefix, self.memory)[:, -1])

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Go on with these sentences and these rows; a row may stand several times."""
        self.memory = take(self.memory, sentences)
        self.prefix = self.prefix[rows]


class Incremental:
    """Keeps what each mixer needs: K - 1 positions for a convolution."""

    def __init__(self, model: nn.Module, source: Tensor, pad_mask: Tensor):
        self.model = model
        self.memory = model.encode(source, pad_mask)
        self.state = model.start(self.memory)

    def __call__(self, tokens: Tensor) -> Tensor:
        logits, self.state = self.model.step(tokens[:, None], self.memory, self.state)
        return logits[:, -1]

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        position, mixers, projected = self.state
        if len(sentences) < len(self.memory.states):  # else they are the same, in order
            self.memory = take(self.memory, sentences)
            projected = take(projected, sentences)
        self.state = DecoderState(position, take(mixers, rows), projected)


def take(state: Any, rows: Tensor) -> Any:
    """The same nested lists and (named) tuples with `rows` of each tensor's first dimension."""
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    if isinstance(state, History):
        return state.select(rows)
    parts = [take(part, rows) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
