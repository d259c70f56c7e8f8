"""Translate a split of a run's corpus, show some of it, and score it."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

from dynconv.decode import translate
from dynconv.score import bleu, chrf
from dynconv.score.report import RESAMPLES
from dynconv.text import load_parallel
from dynconv.train import Trained

SHOWN = 10


def evaluate(run: Path, trained: Trained, split: str) -> Iterator[str]:
    """The lines of a report: ten triples from all over the split, then the scores.

    Writes RUN/SPLIT.hypotheses.txt and RUN/SPLIT.scores.json.
    """
    recipe, bpe, model, checkpoint = trained
    config = recipe.decode
    text = load_parallel(recipe.data.corpus, recipe.data.source, recipe.data.target, split)
    start = time.perf_counter()
    hypotheses = translate(model, bpe, text.source, config)
    seconds = time.perf_counter() - start

    output = run / f"{split}.hypotheses.txt"
    output.write_text("".join(f"{line}\n" for line in hypotheses), encoding="utf-8")
    shown = min(SHOWN, len(hypotheses))
    for i in (n * len(hypotheses) // shown for n in range(shown)):
        yield f"source     {text.source[i]}"
        yield f"output     {hypotheses[i]}"
        yield f"reference  {text.target[i]}\n"

    metrics = (bleu, chrf)
    scores = [m(hypotheses, text.target, bootstrap=RESAMPLES) for m in metrics]
    yield (
        f"{len(hypotheses):,} sentences of split {split} in {seconds:.0f} s: beam {config.beam}, "
        f"length penalty {config.lenpen:g}, checkpoint {checkpoint.path.name}"
    )
    yield from map(str, scores)
    record = {
        "split": split,
        "checkpoint": checkpoint.path.name,
        "beam": config.beam,
        "lenpen": config.lenpen,
        "sentences": len(hypotheses),
        "seconds": round(seconds, 1),
        "scores": [score._asdict() for score in scores],
    }
    (run / f"{split}.scores.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    yield f"translations: {output}"
