"""Retention: linear attention with one decay per head (Sun et al. 2023, section 2.1).

    S[b, t, h]   = gamma[h] S[b, t - 1, h] + k[b, t, h]^T v[b, t, h],   S[b, -1] = 0
    out[b, t, h] = q[b, t, h] S[b, t, h]

q, k and v are rows of R channels, so the state S is an R x R matrix for each head. Unrolled, the
output is a sum over earlier positions, like attention's, without a softmax:

    out[b, t, h] = sum_{s <= t} gamma[h]^(t - s) (q[b, t, h] . k[b, s, h]) v[b, s, h]

The paper also rotates q and k by an angle that grows with the position; this function does not.

RetNet is the paper's network. The layer `Retention` and the mixer `retention` use this operator.
"""

import torch
from torch import Tensor

from dynconv.dtypes import upcast, without_autocast
from dynconv.ops.checks import check_retention
from dynconv.ops.operator import Operator, Rule
from dynconv.ops.shapes import split_heads

CHUNK = 64
"""positions of a chunk: within it, all pairs are multiplied"""


def retention_step(
    S: Tensor, q: Tensor, k: Tensor, v: Tensor, gamma: Tensor
) -> tuple[Tensor, Tensor]:
    """Evaluate the equation at one position: return its output (B, H, R) and the next state.

    S (B, H, R, R) is the state before the position, and q, k and v (B, H, R) its inputs.
    """
    S = gamma[:, None, None] * S + k.unsqueeze(-1) * v.unsqueeze(-2)
    return (q.unsqueeze(-2) @ S).squeeze(-2), S


def retention_loop(q: Tensor, k: Tensor, v: Tensor, gamma: Tensor) -> Tensor:
    """Evaluate the equation one position at a time: the oracle."""
    B, H, _, R = q.shape
    S = q.new_zeros(B, H, R, R)
    rows = []
    for q_t, k_t, v_t in zip(q.unbind(2), k.unbind(2), v.unbind(2), strict=True):
        row, S = retention_step(S, q_t, k_t, v_t, gamma)
        rows.append(row)
    return torch.stack(rows, dim=2)


def retention_parallel(q: Tensor, k: Tensor, v: Tensor, gamma: Tensor) -> Tensor:
    """Multiply the T x T matrix of all products q . k by its decays, then by v."""
    t = torch.arange(q.shape[2], device=q.device)
    behind = t[:, None] - t  # t - s
    decay = (gamma[:, None, None] ** behind.clamp(min=0)).tril()  # (H, T, T)
    return (q @ k.transpose(-1, -2) * decay) @ v


def retention_chunked(q: Tensor, k: Tensor, v: Tensor, gamma: Tensor) -> Tensor:
    """Multiply all pairs within a chunk, and reach earlier chunks through the state."""
    B, H, T, R = q.shape
    S = q.new_zeros(B, H, R, R)
    outs = []
    for start in range(0, T, CHUNK):
        q_i, k_i, v_i = (z[:, :, start : start + CHUNK] for z in (q, k, v))
        size = q_i.shape[2]
        i = torch.arange(size, device=q.device)
        since_start, until_end = (
            (gamma[:, None] ** n).unsqueeze(-1) for n in (i + 1, size - 1 - i)
        )
        outs.append(retention_parallel(q_i, k_i, v_i, gamma) + (q_i * since_start) @ S)
        S = (gamma**size)[:, None, None] * S + (k_i * until_end).transpose(-1, -2) @ v_i
    return torch.cat(outs, dim=2)


OPERATOR = Operator(
    "retention",
    {"loop": retention_loop, "parallel": retention_parallel, "chunked": retention_chunked},
    (Rule("parallel", max_T=64), Rule("chunked")),
)


def retention(q: Tensor, k: Tensor, v: Tensor, gamma: Tensor, *, impl: str = "auto") -> Tensor:
    """Attend to all positions so far, each weighted by a decay to the power of its distance.

    q, k, v   (B, T, C)  real
    gamma     (H,)       decay of each head, from 0 to 1; channel c uses head c // (C // H)
    returns   (B, T, C)  causal, differentiable in all four

    gamma has the precision of sums: float32, or float64 for a float64 q. Raises TypeError for
    mixed dtypes, and ValueError for shapes that do not fit, or when `impl` is unknown.
    """
    check_retention(q, k, v, gamma)
    implementation = OPERATOR.choose(impl, q, q.shape[1])
    with without_autocast(q):
        heads = (split_heads(upcast(z), len(gamma)) for z in (q, k, v))
        out = implementation(*heads, gamma)  # (B, H, T, R)
    return out.transpose(1, 2).flatten(2).to(q.dtype)
