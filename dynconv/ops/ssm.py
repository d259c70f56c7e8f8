"""A diagonal state-space model, S4D (Gu et al. 2022, section 3).

    h[b, t, c, n] = exp(dt[c] A[c, n]) h[b, t - 1, c, n] + Bbar[c, n] x[b, t, c],   h[b, -1] = 0
    out[b, t, c]  = 2 Re sum_n C[c, n] h[b, t, c, n]

    Bbar[c, n]    = (exp(dt[c] A[c, n]) - 1) / A[c, n]

A and C are complex; B and C keep the names of the papers here, although elsewhere they are sizes.
The input matrix B is 1, because only its product with C matters. Bbar follows from it by zero-order
hold: between two positions the input is constant. Each number n stands for itself and its complex
conjugate, which is why the sum is twice its real part.

Unrolled, the recurrence is a convolution with a kernel as long as the sentence:

    out[b, t, c] = sum_{s <= t} kernel[c, t - s] x[b, s, c]
    kernel[c, j] = 2 Re sum_n C[c, n] Bbar[c, n] exp(dt[c] A[c, n] j)

The layer `S4D` and the mixer `ssm` use this operator, `diagonal_ssm`.
"""

import torch
from torch import Tensor

from dynconv.dtypes import upcast
from dynconv.ops.checks import check_ssm
from dynconv.ops.depthwise import depthwise_conv
from dynconv.ops.operator import Operator, Rule


def discretize(dt: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
    """Return exp(dt A) and Bbar, both (channels, N), for dt (channels,) and A (channels, N)."""
    dtA = dt.unsqueeze(-1) * A
    return dtA.exp(), dtA.expm1() / A


def ssm_step(h: Tensor, x: Tensor, decay: Tensor, Bbar: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
    """Evaluate the equation at one position: return its output (B, channels) and the next state.

    h (B, channels, N) is the state before the position, and x (B, channels) its input.
    """
    h = decay * h + Bbar * x.unsqueeze(-1)
    return 2 * (C * h).sum(-1).real, h


def diagonal_ssm_loop(x: Tensor, dt: Tensor, A: Tensor, C: Tensor) -> Tensor:
    """Evaluate the equation one position at a time: the oracle."""
    decay, Bbar = discretize(dt, A)
    h = A.new_zeros(x.shape[0], *A.shape)
    rows = []
    for x_t in upcast(x).unbind(1):
        row, h = ssm_step(h, x_t, decay, Bbar, C)
        rows.append(row)
    return torch.stack(rows, dim=1).to(x.dtype)


def ssm_kernel(dt: Tensor, A: Tensor, C: Tensor, T: int) -> Tensor:
    """Return the kernel (channels, T) of a sentence with T positions."""
    _, Bbar = discretize(dt, A)
    j = torch.arange(T, device=dt.device, dtype=dt.dtype)
    powers = (dt[:, None, None] * A.unsqueeze(-1) * j).exp()  # (channels, N, T)
    return 2 * torch.einsum("cn,cnj->cj", C * Bbar, powers).real


def diagonal_ssm_fft(x: Tensor, dt: Tensor, A: Tensor, C: Tensor) -> Tensor:
    """Multiply the Fourier transforms of sequence and kernel, both padded with T zeros.

    Without the zeros, the end of the sentence would flow round to its beginning.
    """
    T = x.shape[1]
    kernel = ssm_kernel(dt, A, C, T).t()  # (T, channels)
    if len(x) == 0:  # MKL transforms no empty tensor
        return x * kernel.to(x.dtype)
    spectrum = torch.fft.rfft(upcast(x), n=2 * T, dim=1) * torch.fft.rfft(kernel, n=2 * T, dim=0)
    return torch.fft.irfft(spectrum, n=2 * T, dim=1)[:, :T].to(x.dtype)


def diagonal_ssm_direct(x: Tensor, dt: Tensor, A: Tensor, C: Tensor) -> Tensor:
    """Call the depthwise convolution with the kernel, whose taps run from old to new."""
    T = x.shape[1]
    kernel = ssm_kernel(dt, A, C, T).flip(1)
    return depthwise_conv(upcast(x), kernel, pad_left=T - 1).to(x.dtype)


OPERATOR = Operator(
    "diagonal_ssm",
    {"loop": diagonal_ssm_loop, "direct": diagonal_ssm_direct, "fft": diagonal_ssm_fft},
    (Rule("direct", max_T=256), Rule("fft")),
)


def diagonal_ssm(x: Tensor, dt: Tensor, A: Tensor, C: Tensor, *, impl: str = "auto") -> Tensor:
    """Run a diagonal state-space model with complex states over each channel (S4D, Gu et al. 2022).

    x         (B, T, channels)  real
    dt        (channels,)       real: time between two positions
    A         (channels, N)     complex, nowhere 0: exp(dt A) is what a state keeps from position
                                to position
    C         (channels, N)     complex: reads the output from the states
    returns   (B, T, channels)  causal, differentiable in all four

    dt, A and C have the precision of sums: float32 and complex64, or for a float64 x float64 and
    complex128. Raises TypeError for other dtypes, and ValueError for shapes that do not fit, or
    when `impl` is unknown.
    """
    check_ssm(x, dt, A, C)
    return OPERATOR.choose(impl, x, x.shape[1])(x, dt, A, C)
