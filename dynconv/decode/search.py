"""Greedy search, and beam search with a length penalty at the end or at every step."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from dynconv.decode.constraints import Constraint, at_least
from dynconv.decode.stepper import IncrementalStepper, MakeStepper
from dynconv.models import Translator
from dynconv.text import EOS, PAD
from dynconv.value_checks import check_positive


class Hypothesis(NamedTuple):
    """A translation without <eos>, and its score, log p / length^lenpen; length counts <eos>."""

    tokens: list[int]
    score: float


def max_lengths(
    pad_mask: Tensor, max_positions: int | None, max_tokens: int | None, min_tokens: int = 1
) -> Tensor:
    """Return the maximum number of tokens (B,) of each translation, with <eos>.

    The default is twice the source's plus ten, but at least min_tokens. The number never
    exceeds the model's `max_positions`, if it has any. Raises ValueError for max_tokens below 1.
    """
    lengths = (~pad_mask).sum(1)
    if max_tokens is not None:
        check_positive("max_tokens", max_tokens)
        limit = torch.full_like(lengths, max_tokens)
    else:
        limit = (2 * lengths + 10).clamp(min=min_tokens)
    return limit if max_positions is None else limit.clamp(max=max_positions)


@torch.inference_mode()
@parametrize.cached()  # normalised weights are computed once
def greedy(
    model: Translator, source: Tensor, pad_mask: Tensor, max_tokens: int | None = None
) -> list[list[int]]:
    """Return each row's greedy translation as ids: the most likely token at every step.

    source (B, S) int64; pad_mask (B, S) bool, True is padding. Leaves the model in eval mode.
    """
    stepper = IncrementalStepper(model, source, pad_mask)
    results: list[list[int]] = [[] for _ in source]
    alive = torch.arange(len(source), device=source.device)
    room = max_lengths(pad_mask, model.max_positions, max_tokens) - 1  # the last token is <eos>
    tokens = torch.full_like(alive, EOS)
    while len(alive):
        logits = stepper(tokens)
        logits[:, PAD] = -torch.inf
        tokens = logits.argmax(-1)
        rows = ((tokens != EOS) & (room > 0)).nonzero().squeeze(1)
        if len(rows) < len(alive):
            stepper.keep(rows, rows)
            alive, tokens, room = alive[rows], tokens[rows], room[rows]
        room = room - 1
        for i, token in zip(alive.tolist(), tokens.tolist(), strict=True):
            results[i].append(token)
    return results


def next_logp(
    logits: Tensor, prefixes: Tensor, last: Tensor, constraints: Sequence[Constraint]
) -> Tensor:
    """Return log p (B, live, V) of the next tokens, -inf for forbidden ones.

    logits (B x live, V); prefixes (B, live, t); last (B,) bool: the sentences that must end now.
    """
    logp = logits.float().log_softmax(-1).unflatten(0, prefixes.shape[:2])
    logp[:, :, PAD] = -torch.inf
    if last.any():
        logp[last, :, EOS + 1 :] = -torch.inf
    for constraint in constraints:
        logp = constraint(logp, prefixes)
    return logp


@torch.inference_mode()
@parametrize.cached()  # normalised weights are computed once
def beam_search(
    model: Any,
    source: Tensor,
    pad_mask: Tensor,
    *,
    beam: int = 5,
    lenpen: float = 1.0,
    stepwise: bool = False,
    min_tokens: int = 1,
    max_tokens: int | None = None,
    constraints: Sequence[Constraint] = (),
    make_stepper: MakeStepper = IncrementalStepper,
) -> list[list[Hypothesis]]:
    """Return the finished hypotheses of each sentence, best first, by log p / length^lenpen.

    source (B, S) int64; pad_mask (B, S) bool, True is padding. min_tokens and max_tokens count the
    <eos> of an output. Unless `stepwise`, the score compares only finished hypotheses: see `Beams`
    and `StepwiseBeams`. Leaves the model in eval mode. Raises ValueError for a beam or max_tokens
    below 1.

    model is a `Translator` or, with a make_stepper of your own, anything: a table of probabilities.
    make_stepper(model, source, pad_mask) returns the decoder to search. No output has more tokens
    than the model's `max_positions`, if it has any.
    """
    check_positive("beam", beam)
    constraints = [*constraints, at_least(min_tokens)]
    limit = max_lengths(pad_mask, getattr(model, "max_positions", None), max_tokens, min_tokens)
    stepper = make_stepper(model, source, pad_mask)
    ranking = StepwiseBeams if stepwise else Beams
    beams = ranking(source, beam, lenpen)
    tokens = torch.full_like(limit, EOS)
    while len(tokens):
        last = limit == beams.prefixes.shape[2] + 1
        logp = next_logp(stepper(tokens), beams.prefixes, last, constraints)
        kept, rows, tokens = beams.advance(logp, last)
        stepper.keep(kept, rows)
        limit = limit[kept]
    return beams.results


class Beams:
    """Ranks unfinished hypotheses by log p, finished ones by log p / length^lenpen.

    Each step extends the `beam` most likely unfinished hypotheses, which all have the same length.
    A sentence is done when it has `beam` finished hypotheses; a step may add several, so there
    can be more.
    """

    def __init__(self, source: Tensor, beam: int, lenpen: float):
        B = len(source)
        self.beam, self.lenpen = beam, lenpen
        self.finished: list[list[Hypothesis]] = [[] for _ in range(B)]
        self.alive = torch.arange(B, device=source.device)  # the sentences that are not done
        self.total = torch.zeros(B, 1, device=source.device)  # log p of each hypothesis (B, live)
        self.prefixes = source.new_empty(B, 1, 0)  # (B, live, t)

    @property
    def results(self) -> list[list[Hypothesis]]:
        return [sorted(each, key=lambda h: -h.score) for each in self.finished]

    def advance(self, logp: Tensor, last: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Extend the hypotheses by log p (B, live, V), which is overwritten, of the next tokens.

        last (B,) bool: the sentences that must end now. Returns the unfinished sentences, and for
        each of their hypotheses the row (b * live + hypothesis) it continues and its newest token.
        """
        beam, length = self.beam, self.prefixes.shape[2] + 1
        _, live, V = logp.shape
        logp += self.total[:, :, None]  # in place: this is the largest tensor of a step
        # Each live hypothesis contributes at most one <eos>, so at least `beam` of the 2 x beam
        # candidates are unfinished.
        best, where = logp.flatten(1).topk(min(2 * beam, live * V), dim=1)
        parent, token = where // V, where % V
        ends = (token == EOS) & best.isfinite()
        b, rank = ends[:, :beam].nonzero(as_tuple=True)
        scores = best[b, rank] / length**self.lenpen
        ids = self.prefixes[b, parent[b, rank]]
        ended = (self.alive[b].tolist(), ids.tolist(), scores.tolist())
        for i, tokens, score in zip(*ended, strict=True):
            self.finished[i].append(Hypothesis(tokens, score))
        full = [len(self.finished[i]) >= beam for i in self.alive.tolist()]
        kept = (~(torch.tensor(full, device=last.device) | last)).nonzero().squeeze(1)
        self.alive, parent, token = self.alive[kept], parent[kept], token[kept]
        best = best[kept].masked_fill(token == EOS, -torch.inf)
        self.total, order = best.topk(min(beam, best.shape[1]), dim=1)  # the unfinished ones
        parent, token = parent.gather(1, order), token.gather(1, order)
        self.prefixes = torch.cat([self.prefixes[kept[:, None], parent], token[:, :, None]], dim=2)
        return kept, (kept[:, None] * live + parent).flatten(), token.flatten()


class StepwiseBeams(Beams):
    """Ranks all hypotheses, finished or not, by log p / length^lenpen at every step, for summaries.

    A finished hypothesis stays in the beam while it is among the `beam` best. A sentence is done
    when its whole beam is finished.

    Wu et al. (2019, section 5.2) apply "a stepwise length penalty" to summaries without defining
    it. Wu et al. (2016, section 7), which they cite, score finished hypotheses and prune unfinished
    ones by another function of the length.
    """

    def __init__(self, source: Tensor, beam: int, lenpen: float):
        super().__init__(source, beam, lenpen)
        self.lengths = torch.zeros_like(self.total)  # <eos> counted
        self.done = torch.zeros_like(self.total, dtype=torch.bool)

    def advance(self, logp: Tensor, last: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        beam, (B, live, V) = self.beam, logp.shape
        logp.masked_fill_(self.done[:, :, None], -torch.inf)
        logp[:, :, PAD].masked_fill_(self.done, 0.0)  # a finished one continues with PAD, for free
        logp += self.total[:, :, None]
        lengths = self.lengths + ~self.done
        ranked = logp / lengths[:, :, None] ** self.lenpen
        scores, where = ranked.flatten(1).topk(min(beam, live * V), dim=1)
        parent, token = where // V, where % V
        total, lengths = logp.flatten(1).gather(1, where), lengths.gather(1, parent)
        done = self.done.gather(1, parent) | (token == EOS)
        rows = torch.arange(B, device=logp.device)[:, None]
        prefixes = torch.cat([self.prefixes[rows, parent], token[:, :, None]], dim=2)
        over = last | (done | scores.isneginf()).all(1)  # -inf fills a beam that has too few
        for b in over.nonzero().squeeze(1).tolist():
            ended = (prefixes[b].tolist(), lengths[b].tolist(), scores[b].tolist())
            self.finished[self.alive[b]] = [
                Hypothesis(ids[: int(length) - 1], score)
                for ids, length, score in zip(*ended, strict=True)
                if score > -torch.inf
            ]
        kept = (~over).nonzero().squeeze(1)
        self.alive, self.total, self.lengths = self.alive[kept], total[kept], lengths[kept]
        self.done, self.prefixes = done[kept], prefixes[kept]
        return kept, (rows * live + parent)[kept].flatten(), token[kept].flatten()
