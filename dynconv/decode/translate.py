"""Lines of text in, lines of text out."""

import sys
from collections.abc import Callable, Sequence

import numpy as np

from dynconv.config import DecodeConfig
from dynconv.decode.search import beam_search
from dynconv.decode.state import Incremental
from dynconv.models import Seq2Seq
from dynconv.text import BPE, buckets, pad


def translate(
    model: Seq2Seq,
    bpe: BPE,
    lines: Sequence[str],
    config: DecodeConfig,
    *,
    stepper: Callable = Incremental,
) -> list[str]:
    """One translation for each line, in order; a blank line gives an empty one.

    Lines of more than config.max_source tokens are cut, with a warning on stderr.
    """
    from tqdm import tqdm

    sources = bpe.encode(list(lines))
    for number, ids in enumerate(sources, 1):
        if len(ids) > config.max_source:
            warning = f"line {number} has {len(ids)} tokens; only the first {config.max_source}"
            print(f"dynconv: {warning} are translated (decode.max_source)", file=sys.stderr)
            del ids[config.max_source :]
    full = [i for i, ids in enumerate(sources) if ids]
    lengths = np.array([(len(sources[i]) + 1, 0) for i in full])
    results = [""] * len(lines)
    device = next(model.parameters()).device
    model.eval()
    bar = tqdm(total=len(full), unit=" sentences", disable=None, desc="translate")  # terminals only
    budget = max(config.batch_tokens, config.max_source + 1)
    with bar:
        for batch in reversed(buckets(lengths, budget)):  # longest first: memory fails early
            chosen = [full[i] for i in batch]
            source, pad_mask = pad([sources[i] for i in chosen], after=1)
            hypotheses = beam_search(
                model,
                source.to(device),
                pad_mask.to(device),
                beam=config.beam,
                lenpen=config.lenpen,
                stepper=stepper,
            )
            for i, found in zip(chosen, hypotheses, strict=True):
                results[i] = bpe.decode(found[0].tokens)
            bar.update(len(chosen))
    return results
