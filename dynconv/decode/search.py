"""Greedy and beam search."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from dynconv.decode.constraints import Constraint, at_least
from dynconv.decode.state import Incremental
from dynconv.text import EOS, PAD


class Hypothesis(NamedTuple):
    """Target ids without <eos>, and their score, log p / length^lenpen with <eos> counted."""

    tokens: list[int]
    score: float


def limits(
    model: nn.Module, pad_mask: Tensor, max_length: int | None, min_length: int = 0
) -> Tensor:
    """Most tokens of each translation, <eos> included: by default twice the source's and ten.

    Never more than the model's `max_positions`, where it has them; the default leaves room for
    `min_length`.
    """
    lengths = (~pad_mask).sum(1)
    if max_length is None:
        limit = (2 * lengths + 10).clamp(min=min_length + 1)
    else:
        limit = torch.full_like(lengths, max_length)
    most = getattr(model, "max_positions", None)
    return limit if most is None else limit.clamp(max=most)


@torch.inference_mode()
@parametrize.cached()  # weights of a norm and a direction: once
def greedy(
    model: nn.Module, source: Tensor, pad_mask: Tensor, max_length: int | None = None
) -> list[list[int]]:
    """The likeliest token at each step; source (B, S), pad_mask (B, S) bool, True is padding."""
    stepper = Incremental(model, source, pad_mask)
    results: list[list[int]] = [[] for _ in source]
    alive = torch.arange(len(source), device=source.device)
    room = limits(model, pad_mask, max_length) - 1  # the last token is <eos>
    tokens = torch.full_like(alive, EOS)
    while len(alive):
        logits = stepper(tokens)
        logits[:, PAD] = -torch.inf
        tokens = logits.argmax(-1)
        going = ((tokens != EOS) & (room > 0)).nonzero().squeeze(1)
        if len(going) < len(alive):
            stepper.keep(going, going)
            alive, tokens, room = alive[going], tokens[going], room[going]
        room = room - 1
        for i, token in zip(alive.tolist(), tokens.tolist(), strict=True):
            results[i].append(token)
    return results


def next_logp(
    logits: Tensor, prefixes: Tensor, last: Tensor, constraints: Sequence[Constraint]
) -> Tensor:
    """log p (B, live, V) of what may come after the prefixes (B, live, t); -inf of all else.

    logits (B x live, V); last (B,) bool: the sentences that must end now.
    """
    logp = logits.float().log_softmax(-1).unflatten(0, prefixes.shape[:2])
    logp[:, :, PAD] = -torch.inf
    if last.any():
        logp[last, :, EOS + 1 :] = -torch.inf
    for constraint in constraints:
        logp = constraint(logp, prefixes)
    return logp


@torch.inference_mode()
@parametrize.cached()  # weights of a norm and a direction: once
def beam_search(
    model: nn.Module,
    source: Tensor,
    pad_mask: Tensor,
    *,
    beam: int = 5,
    lenpen: float = 1.0,
    min_length: int = 0,
    max_length: int | None = None,
    constraints: Sequence[Constraint] = (),
    stepper: Callable = Incremental,
) -> list[list[Hypothesis]]:
    """The finished hypotheses of each sentence, best first, by log p / length^lenpen.

    source (B, S) int64; pad_mask (B, S) bool, True is padding. Each step extends the `beam`
    likeliest unfinished hypotheses of a sentence; it leaves the batch with its `beam`th finished
    one. At its `max_length`, <eos> included, a sentence must end; `min_length` is without <eos>.
    """
    constraints = [*constraints, at_least(min_length)]
    step = stepper(model, source, pad_mask)
    limit = limits(model, pad_mask, max_length, min_length)
    finished: list[list[Hypothesis]] = [[] for _ in source]
    alive = torch.arange(len(source), device=source.device)
    scores = torch.zeros(len(source), 1, device=source.device)  # (B, live hypotheses)
    prefixes = source.new_empty(len(source), 1, 0)  # (B, live, t)
    tokens = torch.full_like(alive, EOS)
    while len(alive):
        live, length = prefixes.shape[1], prefixes.shape[2] + 1
        last = limit == length
        logp = next_logp(step(tokens), prefixes, last, constraints)
        V = logp.shape[-1]
        logp += scores[:, :, None]  # in place: this is the largest tensor of a step
        # of 2 x beam candidates at most one a live hypothesis ends, so `beam` can go on
        best, where = logp.flatten(1).topk(min(2 * beam, live * V), dim=1)
        parent, token = where // V, where % V
        ends = (token == EOS) & best.isfinite()
        b, rank = ends[:, :beam].nonzero(as_tuple=True)
        normalised = best[b, rank] / length**lenpen
        ids = prefixes[b, parent[b, rank]]
        ended = (alive[b].tolist(), ids.tolist(), normalised.tolist())
        for i, tokens_of_i, score in zip(*ended, strict=True):
            finished[i].append(Hypothesis(tokens_of_i, score))
        full = torch.tensor([len(finished[i]) >= beam for i in alive.tolist()], device=alive.device)
        kept = (~(full | last)).nonzero().squeeze(1)
        alive, limit, parent, token = alive[kept], limit[kept], parent[kept], token[kept]
        best = best[kept].masked_fill(token == EOS, -torch.inf)
        scores, order = best.topk(min(beam, best.shape[1]), dim=1)  # the unfinished ones
        parent, token = parent.gather(1, order), token.gather(1, order)
        prefixes = torch.cat([prefixes[kept[:, None], parent], token[:, :, None]], dim=2)
        step.keep(kept, (kept[:, None] * live + parent).flatten())
        tokens = token.flatten()
    return [sorted(h, key=lambda h: -h.score) for h in finished]
