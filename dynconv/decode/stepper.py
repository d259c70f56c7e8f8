"""Runs a decoder step by step: given the newest token of each row, returns the next logits.

There are N = B x beam rows, with the hypotheses of a sentence next to each other; they share the B
rows of the encoder's output. `keep` selects and reorders rows. The model is left in eval mode.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from dynconv.layers.state import select_state
from dynconv.models import Translator


class Stepper(Protocol):
    """The interface that a search needs from a decoder.

    It is made from a model, sources and their padding.
    """

    def __call__(self, tokens: Tensor) -> Tensor:
        """Return the logits (N, V) after the newest tokens (N,)."""

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Continue with these sentences and these rows; a row may appear several times."""


MakeStepper = Callable[[Any, Tensor, Tensor], Stepper]


class RecomputingStepper:
    """Runs the decoder over the whole prefix at each step: the oracle, O(T^2) positions."""

    def __init__(self, model: Translator, source: Tensor, pad_mask: Tensor):
        self.model = model.eval()
        self.memory = model.encode(source, pad_mask)
        self.prefix = source.new_empty(len(source), 0)

    def __call__(self, tokens: Tensor) -> Tensor:
        self.prefix = torch.cat([self.prefix, tokens[:, None]], dim=1)
        return self.model.output(self.model.hidden_states(self.prefix, self.memory)[:, -1])

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        self.memory = select_state(self.memory, sentences)
        self.prefix = self.prefix[rows]


class IncrementalStepper:
    """Runs the decoder over the newest tokens only, and keeps the states of its mixers."""

    def __init__(self, model: Translator, source: Tensor, pad_mask: Tensor):
        self.model = model.eval()
        self.memory = model.encode(source, pad_mask)
        self.state = model.start(self.memory)
        self.sentences = len(source)

    def __call__(self, tokens: Tensor) -> Tensor:
        logits, self.state = self.model.step(tokens[:, None], self.memory, self.state)
        return logits[:, -1]

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        if len(sentences) < self.sentences:
            self.sentences = len(sentences)
            self.memory = select_state(self.memory, sentences)
            self.state = self.state.select(rows, sentences)
        else:  # the same sentences in the same order: nothing needs to be copied
            self.state = self.state.select(rows)
