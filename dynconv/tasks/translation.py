"""Translation and summarisation: sentence pairs, label-smoothed cross-entropy, beam search."""

import textwrap
import time
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from dynconv.config.recipe import OUTPUT_SETTINGS, DataConfig, DecodeConfig
from dynconv.decode import greedy, translate
from dynconv.decode.stepper import IncrementalStepper, MakeStepper
from dynconv.errors import UserError, shorten
from dynconv.models import Translator
from dynconv.models.loss import projected_loss
from dynconv.score import compute_metric
from dynconv.score.metric import METRICS, RESAMPLES
from dynconv.tasks.task import EncodedSplit, SplitScores, Task, Validation
from dynconv.text import Batch, Pairs, PreparedCorpus, Vocabularies, load_parallel
from dynconv.text.corpus import corpus_dir, require_references
from dynconv.text.lines import stream_parallel
from dynconv.yaml12 import as_override

EXAMPLES_SHOWN = 10
"""examples that an evaluation shows"""
LEAST_SHOWN, SHARE_SHOWN = 200, 3
"""An output is shown up to this many characters, or this many times the length of its reference: a
model that has hardly trained repeats itself."""


class Translation(Task[Translator]):
    """Learning to turn a source text into a target text."""

    unit = "pairs"
    wrong_task_hint = "a translation model, which continues no prompt; use dynconv translate"

    def loss(self, model: Translator, batch: Batch) -> Tensor:
        """Return the cross-entropy, in train mode with the recipe's `train.label_smoothing`.

        Padding is removed before the projection to the vocabulary, the most expensive part.
        """
        smoothing = self.recipe.train.label_smoothing if model.training else 0.0
        memory = model.encode(batch.source, batch.source_pad_mask)
        hidden = model.hidden_states(batch.prefix, memory).flatten(0, 1)  # (B * T, C)
        # Its backward is faster than the one of hidden[batch.target_positions].
        hidden = hidden.index_select(0, batch.target_positions)
        output = model.output
        return projected_loss(hidden, batch.target, output.weight, output.bias, smoothing)

    @property
    def suffixes(self) -> tuple[str, str]:
        """The suffixes of the files of source and target."""
        data = self.recipe.data
        assert data.source is not None  # the schema of recipes asks a translator for one
        return data.source, data.target

    def unpadded_batch(self, ids: Tensor) -> Batch:
        return Batch.unpadded(ids, ids)

    def shipped_data(self) -> DataConfig:
        data = self.recipe.data
        if METRICS[self.recipe.metric].of_summaries:
            return replace(
                data, corpus="debian-descriptions", source="paragraph", target="synopsis"
            )
        return replace(data, corpus="libreoffice-de-en", source="de", target="en")

    def training_examples(self, corpus: PreparedCorpus) -> Pairs:
        return Pairs.from_corpus(corpus, self.recipe.data.max_source_tokens)

    def encode_split(
        self, corpus: PreparedCorpus, vocabularies: Vocabularies, split: str
    ) -> EncodedSplit:
        """Read the pairs without a blank side."""
        directory = corpus.directory
        text = load_parallel(str(directory), *self.suffixes, split)
        sides = (v.encode(side) for v, side in zip(vocabularies, text, strict=True))
        lines = zip(*sides, text.target, strict=True)
        kept = [(s, t, line) for s, t, line in lines if s and t]
        if not kept:
            raise UserError(f"{directory}: no pair in split {split} without a blank side")
        pairs = Pairs.from_ids(((s, t) for s, t, _ in kept), self.recipe.data.max_source_tokens)
        return EncodedSplit(pairs, [line for _, _, line in kept])

    def greedy_outputs(self, model: Translator, batch: Batch) -> list[list[int]]:
        return greedy(model, batch.source, batch.source_pad_mask)

    def score_outputs(
        self, loss: float, outputs: list[list[int]], split: EncodedSplit, vocabularies: Vocabularies
    ) -> Validation:
        hypotheses = [vocabularies.target.decode(ids) for ids in outputs]
        metric, language = self.recipe.metric, self.recipe.data.target
        score = compute_metric(metric, hypotheses, split.references, language)[0]
        return Validation(loss, score.value, score.metric)

    def preview(self, model: Translator, vocabularies: Vocabularies, split: EncodedSplit) -> str:
        batch = split.examples.batch([0]).to(next(model.parameters()).device)
        source = vocabularies.source.decode(batch.source[0].tolist())
        output = vocabularies.target.decode(self.greedy_outputs(model, batch)[0])
        return f"{textwrap.shorten(source, 100)} -> {textwrap.shorten(output, 100)}"

    def translate(
        self,
        model: Translator,
        vocabularies: Vocabularies,
        lines: Sequence[str],
        make_stepper: MakeStepper = IncrementalStepper,
    ) -> list[str]:
        """Translate each line with the recipe's `decode` settings; a blank line stays blank."""
        return translate(
            model,
            vocabularies,
            lines,
            self.recipe.decode,
            max_source_tokens=self.recipe.data.max_source_tokens,
            make_stepper=make_stepper,
        )

    def evaluate(self, model: Translator, vocabularies: Vocabularies, split: str) -> SplitScores:
        recipe = self.recipe
        data, config = recipe.data, recipe.decode
        text = load_parallel(data.corpus, *self.suffixes, split)
        start = time.perf_counter()
        outputs = self.translate(model, vocabularies, text.source)
        seconds = time.perf_counter() - start
        references: Sequence = text.target
        if METRICS[recipe.metric].several_references:
            files = require_references(corpus_dir(data.corpus), f"{split}.{data.target}")
            references = list(stream_parallel(*files))
        metric, language = recipe.metric, data.target
        scores = compute_metric(metric, outputs, references, language, bootstrap=RESAMPLES)
        search = {name: getattr(config, name) for name in OUTPUT_SETTINGS}
        count = min(EXAMPLES_SHOWN, len(outputs))  # evenly spread over the split
        shown = [n * len(outputs) // count for n in range(count)]
        return SplitScores(
            amount_in_words=f"{len(outputs):,} sentences",
            seconds=seconds,
            settings={**search, "sentences": len(outputs)},
            settings_in_words=describe_search(config),
            scores=scores,
            outputs=outputs,
            shown=[as_example(text.source[i], outputs[i], text.target[i]) for i in shown],
        )


def describe_search(config: DecodeConfig) -> str:
    """Return the beam, the length penalty, and all other settings of the search that are set."""
    default = DecodeConfig()
    others = [
        f", {name} {as_override(value)}"
        for name in OUTPUT_SETTINGS
        if name not in ("beam", "lenpen")
        and (value := getattr(config, name)) != getattr(default, name)
    ]
    return f"beam {config.beam}, length penalty {config.lenpen:g}{''.join(others)}"


def as_example(source: str, output: str, reference: str) -> dict[str, str]:
    """Return what an evaluation shows of one sentence, by label; a long output is truncated."""
    longest = max(LEAST_SHOWN, SHARE_SHOWN * len(reference))
    return {"source": source, "output": shorten(output, longest), "reference": reference}
