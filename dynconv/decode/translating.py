"""Translates lines of text in batches."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dynconv.config import DataConfig, DecodeConfig
from dynconv.config.recipe import BEAM_SETTINGS, check_min_tokens
from dynconv.decode.constraints import no_repeat
from dynconv.decode.search import beam_search
from dynconv.decode.stepper import IncrementalStepper, MakeStepper
from dynconv.decode.unknown import make_unknown_replacer
from dynconv.errors import NotFiniteOutputError, warn
from dynconv.models import Translator
from dynconv.text import Vocabularies, batch_by_length, pad_sequences


def translate(
    model: Translator,
    vocabularies: Vocabularies,
    lines: Sequence[str],
    config: DecodeConfig,
    *,
    max_source_tokens: int = DataConfig.max_source_tokens,
    make_stepper: MakeStepper = IncrementalStepper,
) -> list[str]:
    """Return one translation per line, in order; a blank line gives an empty one.

    Lines of more than max_source_tokens, <eos> included, or than the model has positions, are
    truncated, with a warning on stderr.
    """
    from tqdm import tqdm

    check_min_tokens(config, model.max_positions)
    sources = vocabularies.source.encode(lines)
    replacer = None
    if config.replace_unknown:
        replacer = make_unknown_replacer(model, vocabularies, lines, sources, config.dictionary)
    sources = truncate(sources, *source_limit(model, max_source_tokens))
    search = make_search(model, config, make_stepper)
    nonblank = [i for i, ids in enumerate(sources) if ids]
    lengths = np.array([(len(sources[i]) + 1, 0) for i in nonblank])
    results = [""] * len(lines)
    device = next(model.parameters()).device
    # The bar appears only on terminals.
    with tqdm(total=len(nonblank), unit=" sentences", disable=None, desc="translate") as bar:
        batches = batch_by_length(lengths, max(config.batch_tokens, int(lengths.max(initial=0))))
        for batch in reversed(batches):  # longest first: memory fails early
            chosen = [nonblank[i] for i in batch]
            source, pad_mask = pad_sequences([sources[i] for i in chosen], eos_after=True)
            hypotheses = search(source.to(device), pad_mask.to(device))
            if not all(hypotheses):
                raise NotFiniteOutputError
            outputs = [best.tokens for best, *_ in hypotheses]
            if replacer is None:
                texts = [vocabularies.target.decode(ids) for ids in outputs]
            else:
                texts = replacer.replace(chosen, source, pad_mask, outputs)
            for i, text in zip(chosen, texts, strict=True):
                results[i] = text
            bar.update(len(chosen))
    return results


def make_search(model: Translator, config: DecodeConfig, make_stepper: MakeStepper) -> Callable:
    """Return beam search with the settings of a recipe, as a function of source and padding."""
    options = {name: getattr(config, name) for name in BEAM_SETTINGS}
    size = options.pop("no_repeat_ngram_size")
    constraints = [no_repeat(size)] if size else []
    return partial(
        beam_search, model, **options, constraints=constraints, make_stepper=make_stepper
    )


def truncate(sources: list[list[int]], limit: int, key: str) -> list[list[int]]:
    """Return the first ids of each line, at most `limit` with the <eos> that is to follow.

    A warning on stderr names the recipe's key.
    """
    most = limit - 1
    if cut := [number for number, ids in enumerate(sources, 1) if len(ids) > most]:
        which = f"line {cut[0]} has"
        if len(cut) > 1:
            which = f"{len(cut):,} lines, the first of them line {cut[0]}, have"
        warn(f"{which} more than {most} tokens and <eos>; only the first {most} are read ({key})")
    return [ids[:most] for ids in sources]


def source_limit(model: Translator, max_source_tokens: int) -> tuple[int, str]:
    """Return the maximum tokens of a source, with <eos>, and the recipe's key that sets it."""
    positions = model.max_positions
    if positions is None or positions > max_source_tokens:
        return max_source_tokens, "data.max_source_tokens"
    return positions, "model.max_positions"
