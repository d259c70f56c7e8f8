"""Greedy and beam search."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from dynconv.decode.state import Incremental
from dynconv.models import Seq2Seq
from dynconv.text import EOS, PAD


class Hypothesis(NamedTuple):
    """Target ids without <eos>, and their score, log p / length^lenpen with <eos> counted."""

    tokens: list[int]
    score: float


def longest(source: Tensor) -> int:
    """Most tokens of a translation, <eos> included, of a batch of sources (B, S)."""
    return 2 * source.shape[1] + 10


@torch.inference_mode()
def greedy(
    model: Seq2Seq, source: Tensor, pad_mask: Tensor, max_length: int | None = None
) -> list[list[int]]:
    """The likeliest token at each step; source (B, S), pad_mask (B, S) bool, True is padding."""
    stepper = Incremental(model, source, pad_mask)
    results: list[list[int]] = [[] for _ in source]
    alive = torch.arange(len(source), device=source.device)
    tokens = torch.full_like(alive, EOS)
    for _ in range((max_length or longest(source)) - 1):
        logits = stepper(tokens)
        logits[:, PAD] = -torch.inf
        tokens = logits.argmax(-1)
        going = (tokens != EOS).nonzero().squeeze(1)
        if len(going) < len(alive):
            stepper.keep(going, going)
            alive, tokens = alive[going], tokens[going]
        for i, token in zip(alive.tolist(), tokens.tolist(), strict=True):
            results[i].append(token)
        if not len(alive):
            break
    return results


@torch.inference_mode()
def beam_search(
    model: Seq2Seq,
    source: Tensor,
    pad_mask: Tensor,
    *,
    beam: int = 5,
    lenpen: float = 1.0,
    max_length: int | None = None,
    stepper: Callable = Incremental,
) -> list[list[Hypothesis]]:
    """The finished hypotheses of each sentence, best first, by log p / length^lenpen.

    source (B, S) int64; pad_mask (B, S) bool, True is padding. Each step extends the `beam`
    likeliest unfinished hypotheses of a sentence; it leaves the batch with its `beam`th finished
    one. At `max_length` tokens, <eos> included, everything must end.
    """
    step = stepper(model, source, pad_mask)
    limit = max_length or longest(source)
    finished: list[list[Hypothesis]] = [[] for _ in source]
    alive = list(range(len(source)))
    scores = torch.zeros(len(source), 1, device=source.device)  # (B, live hypotheses)
    prefixes = source.new_empty(len(source), 1, 0)  # (B, live, t)
    tokens = source.new_full((len(source),), EOS)
    for length in range(1, limit + 1):
        live = scores.shape[1]
        logp = step(tokens).float().log_softmax(-1)
        logp[:, PAD] = -torch.inf
        if length == limit:
            logp[:, :EOS] = logp[:, EOS + 1 :] = -torch.inf
        V = logp.shape[-1]
        total = (scores[:, :, None] + logp.view(-1, live, V)).flatten(1)  # (B, live * V)
        # 2 x beam candidates: at most `beam` of them end, so `beam` can go on
        best, where = total.topk(min(2 * beam, total.shape[1]), dim=1)
        parent, token = where // V, where % V
        ends = (token == EOS) & best.isfinite()
        for b, rank in ends[:, :beam].nonzero().tolist():
            ids = prefixes[b, parent[b, rank]].tolist()
            score = best[b, rank].item() / length**lenpen
            finished[alive[b]].append(Hypothesis(ids, score))
        going = [b for b, i in enumerate(alive) if len(finished[i]) < beam]
        if not going or length == limit:
            break
        alive = [alive[b] for b in going]
        kept = torch.tensor(going, device=source.device)
        best, parent, token = (
            z[kept] for z in (best.masked_fill(token == EOS, -torch.inf), parent, token)
        )
        scores, order = best.topk(min(beam, best.shape[1]), dim=1)  # the unfinished ones
        parent, token = parent.gather(1, order), token.gather(1, order)
        prefixes = torch.cat([prefixes[kept[:, None], parent], token[:, :, None]], dim=2)
        step.keep(kept, (kept[:, None] * live + parent).flatten())
        tokens = token.flatten()
    return [sorted(h, key=lambda h: -h.score) for h in finished]
