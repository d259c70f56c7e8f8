"""Language modelling: lines or blocks of a text, cross-entropy, perplexity, sampling."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from dynconv.config import DataConfig
from dynconv.decode import sample, token_nll
from dynconv.models import LanguageModel
from dynconv.score import perplexity
from dynconv.score.perplexity_score import bounded_exp
from dynconv.tasks.task import EncodedSplit, SplitScores, Task, Validation
from dynconv.text import EOS, Batch, Excerpts, PreparedCorpus, Vocabularies
from dynconv.text.corpus import load_lines

NEGATIVE_LOSS = "negative loss"
"""the metric of validations; records of version 0.1 call it perplexity"""


class LanguageModeling(Task[LanguageModel]):
    """Learning to predict each token of a text from those before it.

    The score of a validation is the negative loss: there are no outputs to compare with references.
    """

    unit = "excerpts"
    wrong_task_hint = (
        "a language model, which has nothing to translate from; dynconv generate samples from it, "
        "and dynconv evaluate gives its perplexity"
    )

    def loss(self, model: LanguageModel, batch: Batch) -> Tensor:
        """Return the cross-entropy; the adaptive softmax does not support label smoothing."""
        hidden = model.hidden_states(batch.prefix).flatten(0, 1)  # (B * T, C)
        return model.output.loss(hidden.index_select(0, batch.target_positions), batch.target)

    def unpadded_batch(self, ids: Tensor) -> Batch:
        return Batch.unpadded(ids[:, :0], ids)

    def shipped_data(self) -> DataConfig:
        return replace(self.recipe.data, corpus="jane-austen", target="txt")

    def training_examples(self, corpus: PreparedCorpus) -> Excerpts:
        return Excerpts.from_corpus(corpus, self.recipe.data.block_size)

    def encode_split(
        self, corpus: PreparedCorpus, vocabularies: Vocabularies, split: str
    ) -> EncodedSplit:
        lines = load_lines(str(corpus.directory), corpus.target, split)
        text = Excerpts.from_lines(lines, vocabularies.target, self.recipe.data.block_size)
        return EncodedSplit(text, [])

    def greedy_outputs(self, model: LanguageModel, batch: Batch) -> list[list[int]]:
        return []

    def score_outputs(
        self, loss: float, outputs: list[list[int]], split: EncodedSplit, vocabularies: Vocabularies
    ) -> Validation:
        return Validation(loss, -loss, NEGATIVE_LOSS)

    def describe_validation(self, validation: Validation) -> str:
        loss = validation.loss
        return f"validation loss {loss:.3f}, perplexity {bounded_exp(loss):.2f} per token"

    def continue_text(
        self, model: LanguageModel, vocabularies: Vocabularies, text: str, **options: Any
    ) -> list[str]:
        """Sample continuations of a text; each includes it. Options: `dynconv.decode.sample`.

        A model trained on single lines stops at the end of a line. One trained on blocks has
        learned how lines follow each other, so it continues for `max_tokens`.
        """
        first, *later = vocabularies.target.encode(text.split("\n"))
        prompt = [*first, *(token for line in later for token in (EOS, *line))]
        end = EOS if self.recipe.data.block_size is None else None
        continuations = sample(model, prompt, end=end, **options)
        return [decode_lines(vocabularies, [*prompt, *ids]) for ids in continuations]

    def evaluate(self, model: LanguageModel, vocabularies: Vocabularies, split: str) -> SplitScores:
        data, config = self.recipe.data, self.recipe.decode
        vocabulary = vocabularies.target
        lines = load_lines(data.corpus, data.target, split)
        tokens = Excerpts.from_lines(lines, vocabulary, data.block_size).tokens[1:]
        start = time.perf_counter()
        block, context = data.block_size, config.context_window
        nll = token_nll(
            model, tokens, block=block, context=context, batch_tokens=config.batch_tokens
        )
        result = perplexity(nll, lines, int((tokens == vocabulary.unknown_id).sum()))
        seconds = time.perf_counter() - start
        return SplitScores(
            amount_in_words=f"{len(lines):,} lines",
            seconds=seconds,
            settings={"block_size": block, "context_window": context, **result._asdict()},
            settings_in_words=describe_windows(block, context),
            scores=[result],
        )


def describe_windows(block: int | None, context: int) -> str:
    """Return in words how the text was cut into windows."""
    windows = "line by line" if block is None else f"in blocks of {block} tokens"
    return f"{windows}, each after up to {context} tokens before" if context else windows


def decode_lines(vocabularies: Vocabularies, tokens: list[int]) -> str:
    """Return the text of token ids in which <eos> ends a line."""
    ends = np.flatnonzero(np.array(tokens, dtype=np.int64) == EOS).tolist()
    starts = [0, *(end + 1 for end in ends)]
    lines = (tokens[start:end] for start, end in zip(starts, [*ends, len(tokens)], strict=True))
    return "\n".join(vocabularies.target.decode(line) for line in lines)
