"""Translate lines of text."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dynconv.config import DataConfig, DecodeConfig
from dynconv.decode.constraints import no_repeat
from dynconv.decode.search import beam_search
from dynconv.decode.state import Incremental
from dynconv.decode.unknown import read_dictionary, replace_unknown
from dynconv.errors import UserError
from dynconv.text import Vocabularies, buckets, pad


def translate(
    model: nn.Module,
    vocabularies: Vocabularies,
    lines: Sequence[str],
    config: DecodeConfig,
    *,
    max_source: int = DataConfig.max_source,
    stepper: Callable = Incremental,
) -> list[str]:
    """Return one translation per line, in order; that of a blank line is empty.

    Lines of more than max_source tokens, or than the model has positions for, are cut, with a
    warning on stderr.
    """
    from tqdm import tqdm

    sources = vocabularies.source.encode(list(lines))
    words = config.replace_unknown and source_words(model, vocabularies, lines, sources)
    dictionary = read_dictionary(Path(config.dictionary)) if config.dictionary else {}
    most, key = longest(model, config, max_source)
    if cut := [number for number, ids in enumerate(sources, 1) if len(ids) > most]:
        which = f"{len(cut):,} lines, the first of them line {cut[0]}, have"
        which = which if len(cut) > 1 else f"line {cut[0]} has"
        print(
            f"dynconv: {which} more than {most} tokens; only the first {most} are read ({key})",
            file=sys.stderr,
        )
        sources = [ids[:most] for ids in sources]
    full = [i for i, ids in enumerate(sources) if ids]
    lengths = np.array([(len(sources[i]) + 1, 0) for i in full])
    results = [""] * len(lines)
    device = next(model.parameters()).device
    model.eval()
    bar = tqdm(total=len(full), unit=" sentences", disable=None, desc="translate")  # terminals only
    budget = max(config.batch_tokens, most + 1)
    with bar:
        for batch in reversed(buckets(lengths, budget)):  # longest first: memory fails early
            chosen = [full[i] for i in batch]
            source, pad_mask = (x.to(device) for x in pad([sources[i] for i in chosen], after=1))
            hypotheses = beam_search(
                model,
                source,
                pad_mask,
                beam=config.beam,
                lenpen=config.lenpen,
                stepwise=config.stepwise,
                min_length=config.min_length,
                max_length=config.max_length,
                constraints=[no_repeat(config.no_repeat)] if config.no_repeat else (),
                stepper=stepper,
            )
            if not all(hypotheses):
                raise UserError("the model's outputs are not finite: it has diverged in training")
            outputs = [found[0].tokens for found in hypotheses]
            if not words:
                texts = [vocabularies.target.decode(ids) for ids in outputs]
            else:
                known = [words[i][: len(sources[i])] for i in chosen]
                attention = attend(model, source, pad_mask, outputs)
                texts = [
                    " ".join(replace_unknown(vocabularies.target.words(ids), *each, dictionary))
                    for ids, *each in zip(outputs, known, attention, strict=True)
                ]
            for i, text in zip(chosen, texts, strict=True):
                results[i] = text
            bar.update(len(chosen))
    return results


def longest(model: nn.Module, config: DecodeConfig, max_source: int) -> tuple[int, str]:
    """Return the most tokens of a source, without <eos>, and the recipe's key that says so."""
    positions = model.max_positions
    if positions is not None and config.min_length >= positions:
        raise UserError(
            f"decode.min_length {config.min_length} and <eos> need more than the "
            f"model.max_positions {positions}"
        )
    if positions is None or positions > max_source:
        return max_source, "data.max_source"
    return positions - 1, "model.max_positions"


def source_words(
    model: nn.Module, vocabularies: Vocabularies, lines: Sequence[str], sources: list[list[int]]
) -> list[list[str]]:
    """Return the words of each line, one per id; UserError where <unk> cannot be replaced."""
    if not hasattr(model, "attention"):
        raise UserError(
            f"decode.replace_unknown: {type(model).__name__} does not give its attention, only "
            "ConvS2S does; set it to false"
        )
    words = [[word for word in line.split(" ") if word] for line in lines]
    if vocabularies.target.unknown is None or [*map(len, words)] != [*map(len, sources)]:
        raise UserError("decode.replace_unknown: only for data.vocabulary words; set it to false")
    return words


@torch.inference_mode()
def attend(model: nn.Module, source: Tensor, pad_mask: Tensor, outputs: list[list[int]]) -> Tensor:
    """Return the attention (B, T, S) with which each output token and <eos> was predicted."""
    prefix, _ = pad(outputs, before=1)
    return model.attention(prefix.to(source.device), model.encode(source, pad_mask)).cpu()
