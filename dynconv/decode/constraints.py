"""Constraints on beam search: functions that set the log p of forbidden next tokens to -inf.

Each takes log p (B, live, V) and the hypotheses so far (B, live, t), changes log p in place and
returns it. They apply one after another.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from dynconv.text import EOS
from dynconv.value_checks import check_positive

Constraint = Callable[[Tensor, Tensor], Tensor]


def no_repeat(n: int) -> Constraint:
    """Forbid an n-gram of ids that a hypothesis already has (Paulus et al. 2018, for n = 3).

    No earlier n-gram ends with <eos>, so that stays allowed when all else is blocked. Raises
    ValueError for n below 1.
    """
    check_positive("n", n)

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
    """Forbid outputs of fewer than n tokens, <eos> included, unless nothing else is allowed.

    It must be the last constraint.
    """

    def forbid(logp: Tensor, prefixes: Tensor) -> Tensor:
        if prefixes.shape[2] + 1 < n:
            others = logp[:, :, EOS + 1 :].amax(-1) > -torch.inf
            logp[:, :, EOS].masked_fill_(others, -torch.inf)
        return logp

    return forbid
