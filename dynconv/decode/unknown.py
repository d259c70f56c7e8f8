"""Replaces <unk> after the search (Jean et al. 2015; Gehring et al. 2017, section 4.3).

<unk> becomes the dictionary's entry for the source word with the highest attention, or that word
itself if it has no entry.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dynconv.errors import UserError
from dynconv.models.translator import AttentiveTranslator, Translator
from dynconv.text import Vocabularies, Vocabulary, pad_sequences, read_lines


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


class UnknownReplacer(NamedTuple):
    """Replaces <unk> in the translations of some lines, by the model that made them.

    `make_unknown_replacer` makes one.
    """

    model: AttentiveTranslator
    target: Vocabulary
    source_words: list[list[str]]
    """the words of each source line, one per id"""
    dictionary: dict[str, str]

    def replace(
        self, chosen: Sequence[int], source: Tensor, pad_mask: Tensor, outputs: list[list[int]]
    ) -> list[str]:
        """Return the outputs for a batch as text, each <unk> in them replaced.

        chosen    numbers of the lines in the batch
        source    their ids (B, S), which may be truncated; pad_mask (B, S)
        outputs   ids, a list per line
        """
        lengths = (~pad_mask).sum(1) - 1  # without <eos>
        words = [self.source_words[i][:n] for i, n in zip(chosen, lengths.tolist(), strict=True)]
        attention = source_attention(self.model, source, pad_mask, outputs)
        rows = zip(map(self.target.pieces, outputs), words, attention, strict=True)
        return [" ".join(replace_unknown(*row, self.dictionary)) for row in rows]


def make_unknown_replacer(
    model: Translator,
    vocabularies: Vocabularies,
    lines: Sequence[str],
    sources: list[list[int]],
    dictionary: str | None,
) -> UnknownReplacer:
    """Return the replacer of <unk> in the translations of these lines, whose ids are `sources`.

    dictionary  the file of one, or None

    Raises UserError where <unk> cannot be replaced.
    """
    if not isinstance(model, AttentiveTranslator):
        raise UserError(
            f"decode.replace_unknown: {type(model).__name__} does not give its attention; set it "
            "to false"
        )
    # A blank line, also one of tabs, has no words, as for `Vocabulary.encode`.
    words = [[w for w in line.split(" ") if w] if line.strip() else [] for line in lines]
    if vocabularies.target.unknown_id is None or [*map(len, words)] != [*map(len, sources)]:
        raise UserError("decode.replace_unknown: only for data.vocabulary words; set it to false")
    entries = read_dictionary(Path(dictionary)) if dictionary else {}
    return UnknownReplacer(model, vocabularies.target, words, entries)


@torch.inference_mode()
def source_attention(
    model: AttentiveTranslator, source: Tensor, pad_mask: Tensor, outputs: list[list[int]]
) -> Tensor:
    """Return the attention (B, T, S) with which each output token and <eos> was predicted."""
    prefix, _ = pad_sequences(outputs, eos_before=True)
    return model.attention(prefix.to(source.device), model.encode(source, pad_mask)).cpu()
