"""`dynconv train RECIPE --dry-run`: counts the parameters, and trains and scores a narrow copy.

The copy has all layers, mixers, kernel widths and switches of the recipe, but few channels, a small
vocabulary, and a few lines of a shipped corpus as its text.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from tempfile import TemporaryDirectory

from dynconv.config import DataConfig, Recipe
from dynconv.errors import UserError
from dynconv.models import count_parameters
from dynconv.tasks import task_of
from dynconv.text import is_prepared
from dynconv.text.corpus import NotPreparedError, corpus_dir, require_split
from dynconv.text.lines import stream_lines
from dynconv.train import load_model, train
from dynconv.train.events import read_log

CHANNELS = 32
"""width of the copy"""
TYPES = 300
"""types in its vocabulary"""
UPDATES = 2
LINES = {"train": 200, "valid": 8, "test": 8}
"""lines of text per split"""
WORDS = 16
"""maximum words of a line to decode, because an untrained model generates up to the limit"""


def dry_run(recipe: Recipe) -> Iterator[str]:
    """Yield the lines of a report.

    Raises UserError if the recipe cannot be trained, or if a signal ended the rehearsal.
    """
    for row in recipe.published:
        size = f", {row.parameters} parameters" if row.parameters else ""
        yield f"published      {row.source}, {row.row}: {row.value} ({row.metric_in_words}){size}"
    parameters = count_parameters(recipe.model)
    yield f"parameters     {parameters:,}: {4 * parameters / 1e9:.2f} GB of float32"
    yield f"text           {corpus_status(recipe.data)}"
    shipped = task_of(recipe).shipped_data()
    with TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        run = Path(folder) / "run"
        write_excerpt(shipped, text)
        data = replace(shipped, corpus=str(text))
        if signal := train(narrow(replace(recipe, data=data)), run):
            raise UserError(f"stopped by {signal.name}: nothing was scored, so run it again")
        trained = load_model(run, "last")
        losses = [event["loss"] for event in read_log(run) if event["event"] == "valid"]
        yield (
            f"rehearsal      {UPDATES} updates of a copy with {CHANNELS} channels and {TYPES} "
            f"types on {shipped.corpus}, validation loss {losses[-1]:.2f}"
        )
        evaluation = trained.evaluate("test")
    yield f"scored         {evaluation.summary}; {evaluation.scores[0]}"


def corpus_status(data: DataConfig) -> str:
    """Return where a recipe's corpus is, or how to get it.

    Raises UserError if it is unknown, or lacks the text that training reads.
    """
    try:
        directory = corpus_dir(data.corpus)
    except NotPreparedError as error:
        return str(error)
    if not is_prepared(directory):
        for split, suffix in product(("train", "valid"), data.suffixes):
            require_split(directory, f"{split}.{suffix}")
    return str(directory)


def write_excerpt(data: DataConfig, directory: Path) -> None:
    """Write a few lines of each split of a corpus into a new directory."""
    directory.mkdir()
    suffixes = data.suffixes
    for split, count in LINES.items():
        files = [require_split(corpus_dir(data.corpus), f"{split}.{suffix}") for suffix in suffixes]
        rows = zip(*map(stream_lines, files), strict=True)
        if split != "train":
            rows = (row for row in rows if all(len(line.split()) <= WORDS for line in row))
        for suffix, lines in zip(suffixes, zip(*islice(rows, count), strict=True), strict=True):
            text = "".join(f"{line}\n" for line in lines)
            (directory / f"{split}.{suffix}").write_text(text, encoding="utf-8")


def narrow(recipe: Recipe) -> Recipe:
    """Return the recipe with small values for whatever makes training slow."""
    data = replace(recipe.data, block_size=recipe.data.block_size and 16, max_example_tokens=1000)
    config = replace(
        recipe.train,
        updates=UPDATES,
        batch_tokens=2000,
        batch_sentences=recipe.train.batch_sentences and 4,
        accumulate=1,
        warmup=min(recipe.train.warmup, 1),
        checkpoint_every=UPDATES,
        average_checkpoints=min(recipe.train.average_checkpoints, 1),
        precision="float32",
    )
    decode = replace(
        recipe.decode,
        min_tokens=min(recipe.decode.min_tokens, 5),
        max_tokens=12,
        context_window=min(recipe.decode.context_window, 16),
        dictionary=None,
    )
    model = recipe.model.narrowed(CHANNELS, TYPES)
    return replace(recipe, data=data, model=model, train=config, decode=decode, profile=False)
