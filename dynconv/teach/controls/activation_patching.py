"""Measures where a trained translator reads the two halves of a German verb, for lesson 22.

`python -m dynconv.teach.controls.activation_patching RUN`, where RUN is a trained German-English
encoder-decoder, writes data/results/activation-patching.json. It exchanges vectors of the memory
between two sentences that differ in one word: the particle (*Geben Sie ... ein* and *Geben Sie ...
an*) or the stem (*Geben Sie ... ein* and *Stellen Sie ... ein*).
"""

import argparse
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from dynconv.models.seq2seq import Memory, Seq2Seq
from dynconv.teach.checkout import run_tool
from dynconv.teach.controls.control import Control, record_control
from dynconv.text import EOS, load_parallel
from dynconv.text.vocabulary import Vocabulary
from dynconv.train import load_model

RECIPE = "help-de-en-tuned:dynamic train.seed=2 train.precision=bfloat16"
COMMAND = f"""dynconv train {RECIPE} --run runs/tuned-dynamic-2
python -m dynconv.teach.controls.activation_patching runs/tuned-dynamic-2"""
WHAT = (
    "vectors of the memory, exchanged in a trained DynamicConv between two German sentences that "
    "differ in one word. particle: Geben Sie ... ein and ... an, and log p(Enter) - log p(Specify) "
    "of the first English token; stem: Geben Sie ... ein and Stellen Sie ... ein, and log p(Enter) "
    "- log p(Set). difference: for both sentences; share: of the change between them, by the "
    "vectors that were exchanged; first: the most probable first token of both, and then of the "
    "first sentence with these vectors of the second. 54 sentences of the validation and test "
    "splits and, as the first, one of the training split, for which `each` vector is exchanged "
    "alone; position: where the particle is, `verb` in the original"
)
PATTERN = re.compile(r"Geben Sie .*? (ein|an)(?=[ .,])")
OPENING = "Geben Sie den gewünschten Vergr"
REACH = 11
"""tokens that the encoder's three layers, of 3, 7 and 15 taps, reach to each side"""


@torch.no_grad()
def first_scores(model: Seq2Seq, memory: Tensor) -> Tensor:
    """Return log p (V,) of each type as the first token, for a memory (1, S, C)."""
    prefix = torch.tensor([[EOS]])
    hidden = model.hidden_states(prefix, Memory(memory, None))  # (1, 1, C)
    return model.output(hidden)[0, 0].log_softmax(0)


def only_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the position of the one token that differs.

    Raises ValueError if there are several, or none, or if one of the sentences is longer.
    """
    (place,) = (s for s, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return place


@torch.no_grad()
def exchange(
    model: Seq2Seq,
    vocabulary: Vocabulary,
    sentences: tuple[str, str],
    words: tuple[str, str],
    groups: Mapping[str, Collection[int]],
) -> dict[str, Any]:
    """Put vectors of the second sentence's memory into the first's, and return what changes.

    sentences  two sentences that differ in one token
    words      we follow log p(first) - log p(second) for the first output token
    groups     positions that are exchanged together, by name
    """
    ids = [[*tokens, EOS] for tokens in vocabulary.encode([*sentences])]
    place = only_difference(*ids)
    one, other = (model.encode(torch.tensor([tokens])).hidden_states for tokens in ids)
    apart = (torch.arange(len(ids[0])) - place).abs()
    assert torch.allclose(one[:, apart > REACH], other[:, apart > REACH], atol=1e-5)
    plus, minus = (tokens[0] for tokens in vocabulary.encode([*words]))

    def read(memory: Tensor) -> tuple[float, str]:
        scores = first_scores(model, memory)
        first = vocabulary.decode([int(scores.argmax())]).strip()
        return float(scores[plus] - scores[minus]), first

    (before, first), (after, last) = read(one), read(other)
    found: dict[str, Any] = {"difference": [round(before, 3), round(after, 3)]}
    found |= {"first": [first, last], "share": {}, "patched_first": {}}
    for name, positions in groups.items():
        patched = one.clone()
        patched[:, list(positions)] = other[:, list(positions)]
        now, found["patched_first"][name] = read(patched)
        found["share"][name] = round((before - now) / (before - after), 3)
    return found


def verb_sentences() -> Iterator[tuple[str, str]]:
    """Yield a split and a German sentence with a separable verb: the lesson's, then all others."""
    for split in ("train", "valid", "test"):
        for line in load_parallel("libreoffice-de-en", "de", "en", split).source:
            if line.startswith(OPENING) if split == "train" else PATTERN.match(line):
                yield split, line


def measure(model: Seq2Seq, vocabulary: Vocabulary) -> dict[str, list[dict[str, Any]]]:
    """Exchange the particle and the stem of each sentence."""
    rows: list[dict[str, Any]] = []
    for split, line in verb_sentences():
        match = PATTERN.match(line)
        assert match
        end = match.start(1)
        with_ein, with_an = (line[:end] + word + line[match.end(1) :] for word in ("ein", "an"))
        stem = with_ein.replace("Geben", "Stellen", 1)
        ids, other_particle, other_stem = vocabulary.encode([with_ein, with_an, stem])
        at = only_difference(ids, other_particle)
        assert only_difference(ids, other_stem) == 0
        S = len(ids) + 1  # with <eos>
        rest = {*range(S)} - {0, at}
        groups = {"stem": {0}, "particle": {at}, "both": {0, at}, "all others": rest}
        groups["not stem"], groups["not particle"] = rest | {at}, rest | {0}
        row: dict[str, Any] = {"split": split, "german": line, "verb": match[1]}
        row |= {"position": at, "tokens": S}
        pairs = {
            "particle": ((with_ein, with_an), ("Enter", "Specify")),
            "stem": ((with_ein, stem), ("Enter", "Set")),
        }
        for name, (pair, words) in pairs.items():
            row[name] = exchange(model, vocabulary, pair, words, groups)
            if not rows:
                alone = {str(s): {s} for s in range(S)}
                shares = exchange(model, vocabulary, pair, words, alone)["share"]
                row[name]["each"] = [*shares.values()]
                (place,) = groups[name]
                assert all(shares[str(s)] == 0 for s in range(S) if abs(s - place) > REACH)
        rows.append(row)
    return {"sentences": rows}


def main() -> None:
    """Exchange the vectors and record what changes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="a trained translator")
    trained = load_model(parser.parse_args().run)
    model, vocabulary = cast(Seq2Seq, trained.model), trained.vocabularies.source
    seeds = [trained.recipe.train.seed]
    control = Control(WHAT, seeds, partial(measure, model, vocabulary))
    record_control("activation-patching", control, COMMAND)


if __name__ == "__main__":
    run_tool(main)
