"""Evaluate a run on a split of its corpus: outputs, some of them shown, and their scores."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from dynconv.config.files import replace_text
from dynconv.decode import surprisal, translate
from dynconv.errors import UserError
from dynconv.score import measure, perplexity
from dynconv.score.report import RESAMPLES
from dynconv.text import Excerpts, load_parallel, read_lines
from dynconv.text.corpus import corpus_dir, find_split
from dynconv.train import Trained

SHOWN = 10


def evaluate(run: Path, trained: Trained, split: str, corpus: str | None = None) -> Iterator[str]:
    """The lines of a report; RUN/SPLIT.scores.json has the numbers.

    corpus  text like that of the recipe's corpus, to use in its place
    """
    if corpus is not None:
        data = replace(trained.recipe.data, corpus=corpus)
        trained = trained._replace(recipe=replace(trained.recipe, data=data))
    if trained.recipe.data.source is None:
        return evaluate_language(run, trained, split)
    return evaluate_outputs(run, trained, split)


def evaluate_outputs(run: Path, trained: Trained, split: str) -> Iterator[str]:
    """Ten triples from all over the split, then the scores; RUN/SPLIT.hypotheses.txt has all."""
    recipe, vocabularies, model, checkpoint = trained
    config = recipe.decode
    text = load_parallel(recipe.data.corpus, recipe.data.source, recipe.data.target, split)
    start = time.perf_counter()
    hypotheses = translate(
        model, vocabularies, text.source, config, max_source=recipe.data.max_source
    )
    seconds = time.perf_counter() - start

    output = run / f"{split}.hypotheses.txt"
    replace_text(output, "".join(f"{line}\n" for line in hypotheses))
    shown = min(SHOWN, len(hypotheses))
    for i in (n * len(hypotheses) // shown for n in range(shown)):
        yield f"source     {text.source[i]}"
        yield f"output     {hypotheses[i]}"
        yield f"reference  {text.target[i]}\n"

    references = text.target
    if recipe.metric == "rouge-75":
        references = all_references(recipe.data.corpus, recipe.data.target, split)
    scores = measure(recipe.metric, hypotheses, references, recipe.data.target, bootstrap=RESAMPLES)
    yield (
        f"{len(hypotheses):,} sentences of split {split} in {seconds:.0f} s: beam {config.beam}, "
        f"length penalty {config.lenpen:g}, checkpoint {checkpoint.path.name}"
    )
    yield from map(str, scores)
    record = {
        "corpus": recipe.data.corpus,
        "split": split,
        "checkpoint": checkpoint.path.name,
        "beam": config.beam,
        "lenpen": config.lenpen,
        "sentences": len(hypotheses),
        "seconds": round(seconds, 1),
        "scores": [score._asdict() for score in scores],
    }
    replace_text(run / f"{split}.scores.json", json.dumps(record, indent=1))
    yield f"outputs: {output}"


def all_references(corpus: str, target: str, split: str) -> list[tuple[str, ...]]:
    """The references of each line: test.summary, test.summary1, test.summary2 ..."""
    files = [find_split(corpus_dir(corpus), f"{split}.{target}")]
    with suppress(UserError):  # the first that is missing
        for number in count(1):
            files.append(find_split(corpus_dir(corpus), f"{split}.{target}{number}"))
    sides = [*map(read_lines, files)]
    for file, side in zip(files, sides, strict=True):
        if len(side) != len(sides[0]):
            raise UserError(f"{file} has {len(side)} lines, but {files[0]} has {len(sides[0])}")
    return list(zip(*sides, strict=True))


def evaluate_language(run: Path, trained: Trained, split: str) -> Iterator[str]:
    """Perplexity by token and by word."""
    recipe, vocabularies, model, checkpoint = trained
    data, config = recipe.data, recipe.decode
    lines = read_lines(find_split(corpus_dir(data.corpus), f"{split}.{data.target}"))
    tokens = Excerpts.encode(lines, vocabularies.target, data.block, run).tokens[1:]
    start = time.perf_counter()
    nats = surprisal(
        model, tokens, block=data.block, context=config.context, batch_tokens=config.batch_tokens
    )
    unknown = int((tokens == vocabularies.target.unknown).sum())
    found = perplexity(nats, lines, unknown)
    seconds = time.perf_counter() - start
    yield (
        f"{len(lines):,} lines of split {split} in {seconds:.0f} s, "
        f"{read(data.block, config.context)}, checkpoint {checkpoint.path.name}"
    )
    yield str(found)
    record = {
        "corpus": recipe.data.corpus,
        "split": split,
        "checkpoint": checkpoint.path.name,
        "seconds": round(seconds, 1),
        "block": data.block,
        "context": config.context,
        **found._asdict(),
        "scores": [
            {"metric": "perplexity a word", "value": found.per_word},
            {"metric": "perplexity a token", "value": found.per_token},
        ],
    }
    replace_text(run / f"{split}.scores.json", json.dumps(record, indent=1))


def read(block: int | None, context: int) -> str:
    """How the model read a text."""
    pieces = "line by line" if block is None else f"in blocks of {block} tokens"
    return f"{pieces}, each after up to {context} tokens before" if context else pieces
