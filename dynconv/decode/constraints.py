"""What a search may not produce: functions from the next tokens' log p to the same with -inf.

Each takes log p (B, live, V) and the hypotheses so far (B, live, t), writes into the first and
returns it. Later constraints see what earlier ones left.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from dynconv.text import EOS

Constraint = Callable[[Tensor, Tensor], Tensor]


def no_repeat(n: int) -> Constraint:
    """No n-gram of ids twice in a hypothesis; n = 3 is Paulus et al.'s (2018) trigram blocking.

    <eos> closes no n-gram that was there before, so it stays allowed when all else is blocked.
    """

    def forbid(logp: Tensor, prefixes: Tensor) -> Tensor:
        t = prefixes.shape[2]
        if t < n:
            return logp
        ngrams = prefixes.unfold(2, n, 1)  # (B, live, t - n + 1, n)
        newest = prefixes[:, :, None, t - n + 1 :]  # the n - 1 tokens that a new n-gram begins with
        seen = (ngrams[..., :-1] == newest).all(-1)
        blocked = torch.zeros_like(seen, dtype=logp.dtype).masked_fill_(seen, -torch.inf)
        return logp.scatter_add_(2, ngrams[..., -1], blocked)

    return forbid


def at_least(n: int) -> Constraint:
    """No <eos> before n tokens, unless nothing else is allowed; so it goes last."""

    def forbid(logp: Tensor, prefixes: Tensor) -> Tensor:
        if prefixes.shape[2] < n:
            others = logp[:, :, EOS + 1 :].amax(-1) > -torch.inf
            logp[:, :, EOS].masked_fill_(others, -torch.inf)
        return logp

    return forbid
