"""Replaces <unk> after the search (Jean et al. 2015; Gehring et al. 2017, section 4.3).

<unk> becomes the dictionary's entry for the source word with the highest attention, or that word
itself if it has no entry.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dynconv.errors import UserError
from dynconv.models import ConvS2S, Translator
from dynconv.text import Vocabularies, pad, read_lines


def replace_unknown(
    words: Sequence[str],
    source: Sequence[str],
    attention: np.ndarray | Tensor,
    dictionary: dict[str, str],
) -> list[str]:
    """Replace each <unk> among T output words; `source` has S words.

    attention (T or more, S or more): row t is the attention with which word t was predicted;
    columns beyond the source's words, <eos> and padding, do not count.
    """
    replaced = list(words)
    for t, word in enumerate(words):
        if word == "<unk>":
            attended = source[int(attention[t, : len(source)].argmax())]
            replaced[t] = dictionary.get(attended, attended)
    return replaced


def read_dictionary(path: Path) -> dict[str, str]:
    """Read lines `source word <tab> target word`. Raise UserError for any other."""
    dictionary: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        entry = line.split("\t")
        if len(entry) != 2 or not all(entry):
            raise UserError(f"{path}, line {number}: {line!r} is not source word, tab, target word")
        source, target = entry
        if source in dictionary:
            raise UserError(f"{path}, line {number}: {source!r} has an entry already: keep one")
        dictionary[source] = target
    return dictionary


def source_words(
    model: Translator, vocabularies: Vocabularies, lines: Sequence[str], sources: list[list[int]]
) -> list[list[str]]:
    """Return the words of each line, one per id.

    Raises UserError where <unk> cannot be replaced.
    """
    if not isinstance(model, ConvS2S):
        raise UserError(
            f"decode.replace_unknown: {type(model).__name__} does not give its attention, only "
            "ConvS2S does; set it to false"
        )
    # A blank line, also one of tabs, has no words, as for `Vocabulary.encode`.
    words = [[w for w in line.split(" ") if w] if line.strip() else [] for line in lines]
    if vocabularies.target.unknown is None or [*map(len, words)] != [*map(len, sources)]:
        raise UserError("decode.replace_unknown: only for data.vocabulary words; set it to false")
    return words


@torch.inference_mode()
def source_attention(
    model: ConvS2S, source: Tensor, pad_mask: Tensor, outputs: list[list[int]]
) -> Tensor:
    """Return the attention (B, T, S) with which each output token and <eos> was predicted."""
    prefix, _ = pad(outputs, before=1)
    return model.attention(prefix.to(source.device), model.encode(source, pad_mask)).cpu()
