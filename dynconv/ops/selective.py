"""Mamba's selective state space (Gu and Dao 2023, section 3.2).

    h[b, t, c, n] = exp(dt[b, t, c] A[c, n]) h[b, t - 1, c, n] + dt[b, t, c] B[b, t, n] x[b, t, c]
    out[b, t, c]  = sum_n C[b, t, n] h[b, t, c, n],   h[b, -1] = 0

B and C keep the names of the paper here, although elsewhere they are sizes. Every token sets its
own dt, B and C: with a large dt the token overwrites the state, with a dt of 0 the state ignores
it. A is real and negative.
"""

import torch
from torch import Tensor

from dynconv.dtypes import upcast, without_autocast
from dynconv.ops.checks import check_selective
from dynconv.ops.derivatives import first_derivative_only
from dynconv.ops.operator import Operator, Rule


def selective_step(
    h: Tensor, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, A: Tensor
) -> tuple[Tensor, Tensor]:
    """Evaluate the equation at one position; return its output (batch, channels) and the state.

    h (batch, channels, N) is the state before the position; x and dt (batch, channels), B and C
    (batch, N) are its inputs.
    """
    h = (dt.unsqueeze(-1) * A).exp() * h + (dt * x).unsqueeze(-1) * B.unsqueeze(1)
    return (h * C.unsqueeze(1)).sum(-1), h


def selective_scan_loop(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Evaluate the equation one position at a time: the oracle."""
    h = A.new_zeros(x.shape[0], *A.shape)
    rows = []
    for t in range(x.shape[1]):
        row, h = selective_step(h, x[:, t], dt[:, t], B[:, t], C[:, t], A)
        rows.append(row)
    return torch.stack(rows, dim=1)


def selective_scan_doubling(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Scan in log2(T) rounds, because two steps of the recurrence are one step of the same kind.

    h -> a1 h + u1 -> a2 (a1 h + u1) + u2 = (a2 a1) h + (a2 u1 + u2). Each round joins every
    position's steps with those just before them, and so doubles how many steps are joined.
    """
    a = (dt.unsqueeze(-1) * A).exp()  # (batch, T, channels, N)
    u = (dt * x).unsqueeze(-1) * B.unsqueeze(2)
    joined = 1
    while joined < max(2, x.shape[1]):  # one round even for T = 1, or A would get no gradient
        u = torch.cat([u[:, :joined], u[:, joined:] + a[:, joined:] * u[:, :-joined]], dim=1)
        a = torch.cat([a[:, :joined], a[:, joined:] * a[:, :-joined]], dim=1)
        joined *= 2
    return (u * C.unsqueeze(2)).sum(-1)


class Scan(torch.autograd.Function):
    """Runs the recurrence position by position, forward and backward, in place.

    What one position needs, tensors (batch, N, channels), stays in the cache. Only the states are
    saved; exp(dt A) is computed again.
    """

    @staticmethod
    def forward(ctx, x, dt, A, B, C):
        A = A.t().contiguous()  # (N, channels)
        x, dt, B, C = (z.transpose(0, 1).contiguous() for z in (x, dt, B, C))  # time first
        T, batch, channels = x.shape
        u = dt * x
        out = torch.empty_like(x)
        h = x.new_empty(T + 1, batch, len(A), channels)  # h[t] is the state before position t
        h[0] = 0
        decay = torch.empty_like(h[0])
        for t in range(T):
            torch.mul(dt[t].unsqueeze(1), A, out=decay).exp_()
            torch.mul(decay, h[t], out=h[t + 1]).addcmul_(u[t].unsqueeze(1), B[t].unsqueeze(2))
            torch.bmm(C[t].unsqueeze(1), h[t + 1], out=out[t].unsqueeze(1))
        ctx.save_for_backward(x, dt, A, B, C, u, h)
        return out.transpose(0, 1)

    @staticmethod
    @first_derivative_only("selective_scan with impl='in_place'", "use impl='doubling'")
    def backward(ctx, g):
        x, dt, A, B, C, u, h = ctx.saved_tensors
        g = g.transpose(0, 1).contiguous()
        du, ddt, dB, dC = (torch.empty_like(z) for z in (u, dt, B, C))
        dA, dh = torch.zeros_like(A), torch.zeros_like(h[0])
        part, gradient = torch.empty_like(dh), torch.empty_like(dh)
        for t in reversed(range(len(x))):
            dh.addcmul_(C[t].unsqueeze(2), g[t].unsqueeze(1))
            torch.bmm(h[t + 1], g[t].unsqueeze(2), out=dC[t].unsqueeze(2))
            torch.bmm(dh, u[t].unsqueeze(2), out=dB[t].unsqueeze(2))
            torch.bmm(B[t].unsqueeze(1), dh, out=du[t].unsqueeze(1))
            dh *= torch.mul(dt[t].unsqueeze(1), A, out=part).exp_()
            torch.mul(dh, h[t], out=gradient)  # with respect to dt A
            torch.sum(torch.mul(gradient, A, out=part), dim=1, out=ddt[t])
            dA += gradient.mul_(dt[t].unsqueeze(1)).sum(0)
        ddt += du * x
        back = (z.transpose(0, 1) for z in (du.mul_(dt), ddt))
        return *back, dA.t(), dB.transpose(0, 1), dC.transpose(0, 1)


def selective_scan_in_place(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Run the recurrence position by position, with a backward pass written by hand."""
    return Scan.apply(x, dt, A, B, C)


OPERATOR = Operator(
    "selective_scan",
    {
        "loop": selective_scan_loop,
        "doubling": selective_scan_doubling,
        "in_place": selective_scan_in_place,
    },
    (Rule("in_place"),),
    transformable_impl="doubling",
)


def selective_scan(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, *, impl: str = "auto"
) -> Tensor:
    """Run Mamba's recurrence, whose coefficients depend on the token (Gu and Dao 2023).

    x, dt     (batch, T, channels)  real; dt is not negative
    A         (channels, N)         negative, so that states fade
    B, C      (batch, T, N)         input and output weights of the N states of each channel
    returns   (batch, T, channels)  causal, differentiable in all five

    A has the precision of sums: float32, or float64 for a float64 x. Raises TypeError for mixed
    dtypes, and ValueError for shapes that do not fit, or when `impl` is unknown. For a second
    derivative give impl="doubling", because the implementation that "auto" takes has none.
    """
    check_selective(x, dt, A, B, C)
    implementation = OPERATOR.choose(impl, x, x.shape[1])
    with without_autocast(x):
        out = implementation(upcast(x), upcast(dt), A, upcast(B), upcast(C))
    return out.to(x.dtype)
