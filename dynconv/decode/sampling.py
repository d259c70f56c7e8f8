"""Samples text from a language model, token by token."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dynconv.errors import NotFiniteOutputError, UserError
from dynconv.models import LanguageModel
from dynconv.text import EOS, PAD


@torch.inference_mode()
def sample(
    model: LanguageModel,
    prompt: Sequence[int],
    *,
    samples: int = 1,
    max_tokens: int = 100,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 1,
    end: int | None = EOS,
) -> list[list[int]]:
    """Return continuations of a prompt, in ids without the prompt, all computed at once.

    prompt       token ids, may be empty; <eos> is prepended
    samples      how many continuations
    max_tokens   maximum tokens of each
    temperature, top_k, top_p   see `next_probabilities`
    seed         the same seed gives the same samples, on the same device
    end          a token that ends a sample and is not part of it; None: all have max_tokens

    The prompt is read once; after it, each step computes one position per sample from the mixers'
    states. Leaves the model in eval mode. Raises UserError for an invalid option.
    """
    if samples < 1 or max_tokens < 1:
        raise UserError(f"samples {samples} and max_tokens {max_tokens} must be at least 1")
    if temperature == 0 and samples > 1:
        raise UserError(
            f"samples {samples} has no effect: temperature 0 gives the same text each time; "
            "leave it out"
        )
    model.eval()
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    results: list[list[int]] = [[] for _ in range(samples)]
    alive = torch.arange(samples, device=device)
    logp, state = model.step(torch.tensor([[EOS, *prompt]], device=device), model.start())
    rows = torch.zeros_like(alive)  # every sample continues the prompt, which is row 0
    logp, state = logp[rows, -1], state.select(rows)
    for length in range(1, max_tokens + 1):
        probabilities = next_probabilities(logp, temperature, top_k, top_p)  # (live, V)
        tokens = torch.multinomial(probabilities, 1, generator=generator)  # (live, 1)
        if end is not None:
            rows = (tokens[:, 0] != end).nonzero().squeeze(1)
            if len(rows) < len(alive):
                alive, tokens, state = alive[rows], tokens[rows], state.select(rows)
        for i, token in zip(alive.tolist(), tokens[:, 0].tolist(), strict=True):
            results[i].append(token)
        if length == max_tokens or not len(alive):
            break
        logp, state = model.step(tokens, state)
        logp = logp[:, -1]
    return results


def next_probabilities(
    logp: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> Tensor:
    """Return the probabilities (N, V) to draw the next token from, given log p (N, V).

    temperature  divides log p: below 1 sharpens the distribution, 0 leaves the likeliest token
    top_k        keeps the k likeliest tokens (Fan et al. 2018)
    top_p        keeps the fewest tokens, likeliest first, that have at least this probability
                 together (Holtzman et al. 2020)

    They apply in this order, each to what the one before leaves. Padding is never drawn. Raises
    UserError for an invalid option, and NotFiniteOutputError for NaN.
    """
    check_filters(temperature, top_k, top_p)
    if logp.isnan().any():
        raise NotFiniteOutputError
    logp = logp.float().index_fill(1, torch.tensor([PAD], device=logp.device), -torch.inf)
    if temperature == 0:
        return torch.zeros_like(logp).scatter_(1, logp.argmax(1, keepdim=True), 1.0)
    logp, order = logp.sort(dim=1, descending=True)
    logp = (logp - logp[:, :1]) / max(temperature, torch.finfo(logp.dtype).tiny)
    if top_k is not None:
        logp[:, top_k:] = -torch.inf
    p = logp.softmax(1)
    if top_p < 1:
        likelier = p.cumsum(1) - p  # the probability of all likelier tokens
        p = p.masked_fill((likelier >= top_p) & (likelier > 0), 0.0)  # a tiny top_p rounds to 0
    return torch.zeros_like(p).scatter_(1, order, p / p.sum(1, keepdim=True))


def check_filters(temperature: float, top_k: int | None, top_p: float) -> None:
    """Raise UserError if an option of `next_probabilities` is out of range, or has no effect."""
    if top_k is not None and top_k < 1:
        raise UserError(f"top_k {top_k} must be at least 1")
    if not 0 <= temperature < float("inf"):
        raise UserError(f"temperature {temperature} must be at least 0, and finite")
    if not 0 < top_p <= 1:
        raise UserError(f"top_p {top_p} must be above 0, and at most 1")
    if temperature == 0 and (top_k is not None or top_p < 1):
        option = f"top_p {top_p}" if top_k is None else f"top_k {top_k}"
        raise UserError(
            f"{option} has no effect: temperature 0 always takes the likeliest token; leave it out"
        )
