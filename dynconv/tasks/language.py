"""Language modelling: lines or blocks of a text, cross-entropy, perplexity, sampling."""

import time

import numpy as np
import torch
from torch import Tensor, nn

from dynconv.decode import sample, surprisal
from dynconv.score import perplexity
from dynconv.tasks.task import Evaluation, HeldOut, Task, Validation
from dynconv.text import EOS, Batch, Excerpts, Prepared, Vocabularies, read_lines
from dynconv.text.corpus import corpus_dir, find_split


def loss(model: nn.Module, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy of a batch of excerpts, summed over its target tokens.

    The adaptive softmax has no smoothed form, so the recipe allows no label smoothing here.
    """
    hidden = model.hidden_states(batch.prefix).flatten(0, 1)  # (B * T, C)
    return model.nats(hidden[batch.real], batch.target).sum()


class Language(Task):
    """Learning to predict each token of a text from those before it."""

    name = "language"
    pieces = "excerpts"
    loss = staticmethod(loss)

    def training_text(self, corpus: Prepared) -> Excerpts:
        return Excerpts.of(corpus, self.recipe.data.block)

    def held_out(self, corpus: Prepared, vocabularies: Vocabularies, split: str) -> HeldOut:
        where = corpus.directory
        lines = read_lines(find_split(where, f"{split}.{corpus.target}"))
        text = Excerpts.encode(lines, vocabularies.target, self.recipe.data.block, where)
        return HeldOut(text, [], corpus.target)

    def outputs(self, model: nn.Module, batch: Batch) -> list[list[int]]:
        return []

    def validate(
        self, loss: float, outputs: list[list[int]], valid: HeldOut, vocabularies: Vocabularies
    ) -> Validation:
        return Validation(loss, -loss, "perplexity")

    def generate(
        self,
        model: nn.Module,
        vocabularies: Vocabularies,
        prompt: str,
        *,
        samples: int = 1,
        max_tokens: int = 100,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 1,
    ) -> list[str]:
        """Sample continuations of a prompt (see `dynconv.decode.sample`); each includes it.

        A model that was trained on single lines ends a text with its line. One that was trained on
        blocks has learned how lines follow each other, so it goes on for `max_tokens`.
        """
        first, *later = vocabularies.target.encode(prompt.split("\n"))
        ids = [*first, *(token for line in later for token in (EOS, *line))]
        found = sample(
            model,
            ids,
            samples=samples,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            end=EOS if self.recipe.data.block is None else None,
        )
        return [decode_lines(vocabularies, [*ids, *more]) for more in found]

    def evaluate(
        self, model: nn.Module, vocabularies: Vocabularies, split: str, checkpoint: str
    ) -> Evaluation:
        data, config = self.recipe.data, self.recipe.decode
        lines = read_lines(find_split(corpus_dir(data.corpus), f"{split}.{data.target}"))
        vocabulary = vocabularies.target
        tokens = Excerpts.encode(lines, vocabulary, data.block, corpus_dir(data.corpus)).tokens[1:]
        start = time.perf_counter()
        reach = {"block": data.block, "context": config.context}
        nats = surprisal(model, tokens, **reach, batch_tokens=config.batch_tokens)
        found = perplexity(nats, lines, int((tokens == vocabulary.unknown).sum()))
        seconds = time.perf_counter() - start
        return Evaluation(
            split,
            f"{len(lines):,} lines of split {split} in {seconds:.0f} s, "
            f"{describe_windows(**reach)}, checkpoint {checkpoint}",
            [found],
            {
                "corpus": data.corpus,
                "split": split,
                "checkpoint": checkpoint,
                "seconds": round(seconds, 1),
                **reach,
                **found._asdict(),
                "scores": [
                    {"metric": "perplexity a word", "value": found.per_word},
                    {"metric": "perplexity a token", "value": found.per_token},
                ],
            },
        )

    def dummy_batch(self, ids: Tensor) -> Batch:
        nothing, places = ids[:, :0], torch.arange(ids.numel())
        return Batch(nothing, nothing.bool(), ids.clone(), places.clone(), places)


def describe_windows(block: int | None, context: int) -> str:
    """Say in words how the model read a text that it was scored on."""
    windows = "line by line" if block is None else f"in blocks of {block} tokens"
    return f"{windows}, each after up to {context} tokens before" if context else windows


def decode_lines(vocabularies: Vocabularies, tokens: list[int]) -> str:
    """Return the text of token ids in which <eos> ends a line."""
    ends = np.flatnonzero(np.array(tokens, dtype=np.int64) == EOS).tolist()
    starts = [0, *(end + 1 for end in ends)]
    lines = (tokens[start:end] for start, end in zip(starts, [*ends, len(tokens)], strict=True))
    return "\n".join(vocabularies.target.decode(line) for line in lines)
