"""Decodes step by step through a stack of blocks, for encoder-decoders and language models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor

from dynconv.layers.attention import KVCache
from dynconv.layers.state import select_state


class DecoderState(NamedTuple):
    """The position, the state of each layer's mixer, and the source's keys and values per layer.

    Mixer states have N = B x beam rows, where the hypotheses of a sentence are consecutive. The
    source's keys and values have one row per sentence; in a language model they are None.
    """

    position: int
    mixer_states: list[Any]
    source_caches: list[KVCache | None]

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> DecoderState:
        """Return the state of these rows, and of these sentences or, if None, of all."""
        mixer_states = [select_state(state, rows) for state in self.mixer_states]
        caches = self.source_caches
        if sentences is not None:
            caches = [select_state(cache, sentences) for cache in caches]
        return DecoderState(self.position, mixer_states, caches)


def step_blocks(
    blocks: Iterable[Any], x: Tensor, state: DecoderState, source_pad_mask: Tensor | None = None
) -> tuple[Tensor, DecoderState]:
    """Return the last block's outputs at n new positions x (N, n, C), and the next state."""
    mixer_states = []
    layers = zip(blocks, state.mixer_states, state.source_caches, strict=True)
    for block, mixer_state, cache in layers:
        x, mixer_state = block.step(x, mixer_state, (cache, source_pad_mask))
        mixer_states.append(mixer_state)
    return x, DecoderState(state.position + x.shape[1], mixer_states, state.source_caches)
