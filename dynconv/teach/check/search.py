"""The check of the exercise on search."""

from collections.abc import Callable

import torch
from torch import Tensor

CASES = {
    "an empty prefix": [[]],
    "a prefix of one token": [[5]],
    "a prefix of two tokens": [[5, 5]],
    "one trigram": [[5, 6, 7, 5, 6]],
    "only a bigram again": [[5, 6, 5]],
    "three times the same": [[4, 4, 4]],
    "two that it began": [[5, 6, 7, 5, 6, 3, 5, 6]],
    "the first trigram of many": [[3, 4, 5, 6, 7, 2, 3, 4]],
    "each hypothesis has its own": [[5, 6, 7, 5, 6], [5, 6, 3, 5, 6], [7, 6, 5, 6, 7]],
}
"""the hypotheses of one sentence; ids of 8 types"""


def block_trigrams(mine: Callable[[Tensor, Tensor], Tensor]) -> None:
    """mine(logp, prefixes) returns log p (B, live, V) with -inf for each token that would end a
    trigram which its prefix (B, live, t) has had already; all else stays as it is."""
    for name, prefixes in CASES.items():
        _judge(mine, torch.tensor([prefixes, prefixes[::-1]], dtype=torch.int64), name)
    print(f"right: {len(CASES)} cases, each for two sentences")


def _judge(mine: Callable, prefixes: Tensor, name: str) -> None:
    B, live, t = prefixes.shape
    logp = torch.randn(B, live, 8, generator=torch.Generator().manual_seed(t)).log_softmax(-1)
    logp[0, 0, 2] = -torch.inf  # forbidden before
    try:
        got = mine(logp.clone(), prefixes.clone())
    except Exception as error:
        raise AssertionError(f"{name}: {type(error).__name__}: {error}") from None
    if not isinstance(got, Tensor):
        raise AssertionError(f"it returns a {type(got).__name__}, not a tensor")
    if got.shape != logp.shape:
        raise AssertionError(f"{name}: shape {(*got.shape,)}, not {(*logp.shape,)}")
    for b in range(B):
        for h in range(live):
            ids = prefixes[b, h].tolist()
            had = {tuple(ids[i : i + 3]) for i in range(t - 2)}
            for token in range(8):
                _entry(ids, token, had, got[b, h, token].item(), logp[b, h, token].item())


def _entry(ids: list[int], token: int, had: set, got: float, given: float) -> None:
    """One log p: of `token` after the prefix `ids`, which has had the trigrams `had`."""
    new = (*ids[-2:], token)
    spelled = " ".join(map(str, new))
    if len(new) == 3 and new in had:
        if got != -torch.inf:
            why = f"makes {spelled} again, and is not blocked: log p {got:.3g}, not -inf"
            raise AssertionError(f"prefix {ids}: {token} {why}")
    elif got == -torch.inf and given != -torch.inf:
        raise AssertionError(f"prefix {ids}: {token} is blocked, and {spelled} is no repetition")
    elif got != given:
        raise AssertionError(f"prefix {ids}: log p of {token} is {got:.3g}, and was {given:.3g}")
