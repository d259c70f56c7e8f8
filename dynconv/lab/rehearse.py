"""A rehearsal of a recipe: the whole model counted, and a narrow copy trained, decoded and scored.

The copy has every layer, mixer, kernel and switch of the recipe, and takes its whole way through
training, search and scoring. Small are its widths and vocabulary, and the text, some lines of a
corpus that is shipped.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from dynconv.config import (
    AnyModelConfig,
    ConvS2SConfig,
    ConvStackConfig,
    DataConfig,
    LanguageModelConfig,
    Recipe,
)
from dynconv.decode.evaluate import evaluate
from dynconv.models import build
from dynconv.text.corpus import corpus_dir, find_split, stream_lines
from dynconv.train import load_model, train
from dynconv.train.log import read

CHANNELS = 32
TYPES = 300
UPDATES = 2
LINES = {"train": 200, "valid": 8, "test": 8}


class Stage(NamedTuple):
    """The shipped text on which a kind of recipe is rehearsed."""

    corpus: str
    source: str | None
    target: str


TRANSLATION = Stage("libreoffice-de-en", "de", "en")
SUMMARISATION = Stage("debian-descriptions", "paragraph", "synopsis")
LANGUAGE = Stage("jane-austen", None, "txt")


def rehearse(recipe: Recipe) -> Iterator[str]:
    """The lines of a report. Raises UserError for what a user can mend."""
    for row in recipe.published:
        size = f", {row.parameters} parameters" if row.parameters else ""
        yield f"published      {row.source}, {row.row}: {row.value} ({row.metric}){size}"
    with torch.device("meta"):
        model = build(recipe.model)
    parameters = sum(p.numel() for p in model.parameters())
    yield f"parameters     {parameters:,}: {4 * parameters / 1e9:.2f} GB of float32"
    yield f"text           {place(recipe.data.corpus)}"
    stage = stage_of(recipe)
    with TemporaryDirectory() as folder:
        small, run = narrow(recipe, write(stage, recipe.data, Path(folder))), Path(folder) / "run"
        train(small, run)
        trained = load_model(run, "last")
        losses = [event["loss"] for event in read(run) if event["event"] == "valid"]
        yield (
            f"rehearsal      {UPDATES} updates of a copy with {CHANNELS} channels and {TYPES} "
            f"types on {stage.corpus}, validation loss {losses[-1]:.2f}"
        )
        report = list(evaluate(run, trained, "test"))
    said = next(i for i, line in enumerate(report) if " of split test in " in line)
    yield f"scored         {report[said]}; {report[said + 1]}"


def place(corpus: str) -> str:
    """Whether a recipe's corpus is here."""
    try:
        return str(corpus_dir(corpus))
    except ValueError:
        return f"{corpus} is not here: see the head of the recipe for how to get it"


def stage_of(recipe: Recipe) -> Stage:
    """The shipped text that is most like the recipe's."""
    if recipe.data.source is None:
        return LANGUAGE
    return SUMMARISATION if recipe.metric.startswith("rouge") else TRANSLATION


def write(stage: Stage, data: DataConfig, folder: Path) -> Path:
    """Some lines of the shipped text, in files named as the recipe's are."""
    text = folder / "text"
    text.mkdir()
    for split, count in LINES.items():
        sides = ((stage.source, data.source), (stage.target, data.target))
        for theirs, ours in ((theirs, ours) for theirs, ours in sides if theirs and ours):
            lines = stream_lines(find_split(corpus_dir(stage.corpus), f"{split}.{theirs}"))
            kept = "".join(f"{line}\n" for line, _ in zip(lines, range(count), strict=False))
            (text / f"{split}.{ours}").write_text(kept, encoding="utf-8")
    return text


def narrow(recipe: Recipe, text: Path) -> Recipe:
    """The copy: the same recipe with small numbers where numbers cost time."""
    data = replace(recipe.data, corpus=str(text), block=recipe.data.block and 16, max_tokens=1000)
    config = replace(
        recipe.train,
        updates=UPDATES,
        batch_tokens=2000,
        batch_sentences=recipe.train.batch_sentences and 4,
        accumulate=1,
        warmup=1,
        validate_every=UPDATES,
        average=min(recipe.train.average, 1),
        precision="float32",
    )
    decode = replace(
        recipe.decode,
        min_length=min(recipe.decode.min_length, 4),
        max_length=12,
        context=min(recipe.decode.context, 16),
        dictionary=None,
    )
    model = narrow_model(recipe.model)
    return replace(recipe, data=data, model=model, train=config, decode=decode, profile=False)


def narrow_model(model: AnyModelConfig) -> AnyModelConfig:
    """The same layers, of about CHANNELS channels and TYPES types."""
    types = TYPES if isinstance(model.vocab_size, int) else (TYPES, TYPES)
    if isinstance(model, ConvS2SConfig):
        thin = partial(thinner, model.embedding)
        stacks = {"encoder": thin(model.encoder), "decoder": thin(model.decoder)}
        sizes = {"vocab_size": types, "embedding": CHANNELS, "output": None, "max_positions": 1024}
        return replace(model, **sizes, **stacks)
    each = model.heads == model.channels  # one channel a head
    heads = CHANNELS if each else math.gcd(model.heads, 4)
    sizes = {"vocab_size": types, "channels": CHANNELS, "ffn": CHANNELS, "heads": heads}
    if isinstance(model, LanguageModelConfig):
        bands = len(model.cutoffs) + 1
        cutoffs = tuple(TYPES * i // bands for i in range(1, bands))
        widths = model.bands and tuple(CHANNELS // 2**i for i in range(bands))
        return replace(model, cutoffs=cutoffs, bands=widths, factor=2, **sizes)
    return replace(model, **sizes)


def thinner(width: int, stack: ConvStackConfig) -> ConvStackConfig:
    """Channels in proportion to `width`'s becoming CHANNELS."""
    channels = [max(1, channels * CHANNELS // width) for channels, *_ in stack.each_layer()]
    return replace(stack, channels=tuple(channels))
