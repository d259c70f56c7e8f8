"""Beam search with a stepwise length penalty, for summaries."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from dynconv.decode.constraints import Constraint, at_least
from dynconv.decode.search import Hypothesis, limits, next_logp
from dynconv.decode.state import Incremental
from dynconv.text import EOS, PAD


@torch.inference_mode()
@parametrize.cached()  # weights of a norm and a direction: once
def stepwise_search(
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
    """`beam_search`, but log p / length^lenpen ranks the hypotheses at each step.

    A finished hypothesis keeps its place in the beam, with the score it ended with, as long as it
    is among the `beam` best, finished or not; a sentence is done when all of its beam is. The
    unfinished ones are equally long, so the penalty decides between them and the finished ones.

    Wu et al. (2019, section 5.2) apply "a stepwise length penalty" to summaries and do not define
    it; of the papers they name, Wu et al. (2016, section 7) has a penalty, another function of the
    length, that finished hypotheses are scored and unfinished ones pruned by.
    """
    constraints = [*constraints, at_least(min_length)]
    step = stepper(model, source, pad_mask)
    limit = limits(model, pad_mask, max_length, min_length)
    results: list[list[Hypothesis]] = [[] for _ in source]
    alive = torch.arange(len(source), device=source.device)
    total = torch.zeros(len(source), 1, device=source.device)  # log p of each hypothesis (B, live)
    lengths = torch.zeros_like(total)  # <eos> counted
    done = torch.zeros_like(total, dtype=torch.bool)
    prefixes = source.new_empty(len(source), 1, 0)  # (B, live, t), PAD after <eos>
    tokens = torch.full_like(alive, EOS)
    while len(alive):
        live, last = prefixes.shape[1], limit == prefixes.shape[2] + 1
        logp = next_logp(step(tokens), prefixes, last, constraints)
        V = logp.shape[-1]
        logp.masked_fill_(done[:, :, None], -torch.inf)
        logp[:, :, PAD].masked_fill_(done, 0.0)  # what is finished goes on as it is
        logp += total[:, :, None]
        lengths = lengths + ~done
        ranked = logp / lengths[:, :, None] ** lenpen
        scores, where = ranked.flatten(1).topk(min(beam, live * V), dim=1)
        parent, token = where // V, where % V
        total, lengths = logp.flatten(1).gather(1, where), lengths.gather(1, parent)
        done = done.gather(1, parent) | (token == EOS)
        rows = torch.arange(len(alive), device=alive.device)[:, None]
        prefixes = torch.cat([prefixes[rows, parent], token[:, :, None]], dim=2)
        over = (done | scores.isneginf()).all(1)  # -inf fills a beam that has too few
        for b in over.nonzero().squeeze(1).tolist():
            found = zip(prefixes[b].tolist(), lengths[b].tolist(), scores[b].tolist(), strict=True)
            results[alive[b]] = [
                Hypothesis(ids[: int(length) - 1], score)
                for ids, length, score in found
                if score > -torch.inf
            ]
        kept = (~over).nonzero().squeeze(1)
        step.keep(kept, (rows * live + parent)[kept].flatten())
        alive, limit, tokens = alive[kept], limit[kept], token[kept].flatten()
        total, lengths, done, prefixes = total[kept], lengths[kept], done[kept], prefixes[kept]
    return results
