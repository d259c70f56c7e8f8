"""A layer of selective state spaces, as in Mamba (Gu and Dao 2023)."""

import math
from functools import partial
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynconv import ops
from dynconv.dtypes import upcast
from dynconv.layers.direction import count_forward
from dynconv.layers.padding import mask_padding
from dynconv.layers.projection import xavier_linear
from dynconv.layers.state import check_steppable, run_steps
from dynconv.ops.selective import selective_step
from dynconv.value_checks import check_positive

KERNEL_SIZE = 4
"""taps of the short convolution, as in Mamba"""


class SelectiveState(NamedTuple):
    """The states (N, C, state_size), and the last inputs (N, 3, C) of the convolution."""

    h: Tensor
    past: Tensor


class SelectiveScan(nn.Module):
    """Convolves the last 4 positions, and runs a state space whose coefficients follow from them.

        u = silu(conv(x));  dt = softplus(W_dt u + b);  B, C = W_B u, W_C u
        y = selective_scan(u, dt, A, B, C) + D u

    W_dt has rank channels / 16. State n (from 1) starts with A[n] = -n, and dt in [0.001, 0.1].
    """

    def __init__(self, channels: int, state_size: int):
        super().__init__()
        rank = math.ceil(channels / 16)
        self.sizes = (rank, state_size, state_size)
        bound = KERNEL_SIZE**-0.5
        self.kernel = nn.Parameter(torch.empty(channels, KERNEL_SIZE).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.parameter_proj = xavier_linear(channels, sum(self.sizes), bias=False)
        self.dt_proj = xavier_linear(rank, channels)
        dt = torch.empty(channels).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.dt_proj.bias = nn.Parameter(dt + (-(-dt).expm1()).log())  # its softplus is dt
        self.log_decay = nn.Parameter(torch.arange(1.0, state_size + 1).log().repeat(channels, 1))
        self.D = nn.Parameter(torch.ones(channels))

    def convolve(self, x: Tensor) -> Tensor:
        """Return u (B, T, channels) for x (B, T, channels)."""
        y = ops.depthwise_conv(x, self.kernel.to(x.dtype), pad_left=KERNEL_SIZE - 1)
        return F.silu(y + self.bias.to(x.dtype))

    def coefficients(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return u, dt, A, B and C, all in the precision of sums."""
        dt, B, C = self.parameter_proj(u).split(self.sizes, dim=-1)
        dt = F.softplus(upcast(self.dt_proj(dt)))
        return upcast(u), dt, -upcast(self.log_decay).exp(), upcast(B), upcast(C)

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """Return y (B, T, channels) for x (B, T, channels), which is zero at padding."""
        # The convolution carries the last words into the padding after them.
        u = mask_padding(self.convolve(x), pad_mask)
        y = ops.selective_scan(*self.coefficients(u))
        return y.to(x.dtype) + self.D.to(u.dtype) * u


class SelectiveSSM(nn.Module):
    """Projects the input, scans it, and multiplies by a gate, as Mamba's block does.

        x, g = W x;  y = W_o (silu(g) * scan(x))

    state_size  number of states per channel

    Unlike in the paper, the block is as wide as its input, not twice as wide. In a layer that is
    not causal, half of the channels run from right to left, in a scan of their own.
    """

    def __init__(self, channels: int, state_size: int, *, causal: bool = False):
        super().__init__()
        self.causal = causal
        check_positive("channels", channels)
        check_positive("state_size", state_size)
        forwards = count_forward(channels, "channels", causal)
        self.widths = [forwards] if causal else [forwards, channels - forwards]
        self.in_proj = xavier_linear(channels, 2 * channels, bias=False)
        self.scans = nn.ModuleList(SelectiveScan(width, state_size) for width in self.widths)
        self.out_proj = xavier_linear(channels, channels, bias=False)

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        x, g = self.in_proj(mask_padding(x, pad_mask)).chunk(2, dim=-1)
        ahead, *back = x.split(self.widths, dim=-1)
        parts = [self.scans[0](ahead, pad_mask)]
        for part in back:
            flipped = None if pad_mask is None else pad_mask.flip(1)
            parts.append(self.scans[1](part.flip(1), flipped).flip(1))
        y = torch.cat(parts, dim=-1)
        return self.out_proj(F.silu(g) * y)

    def step(self, x: Tensor, state: SelectiveState | None = None) -> tuple[Tensor, SelectiveState]:
        """Return the outputs (N, n, C) at n new positions, and the next state; see `layers`."""
        check_steppable(self, self.causal, x)
        scan = cast(SelectiveScan, self.scans[0])  # a causal layer has no other
        x, g = self.in_proj(x).chunk(2, dim=-1)
        past = x.new_zeros(len(x), KERNEL_SIZE - 1, x.shape[2]) if state is None else state.past
        x = torch.cat([past, x], dim=1)
        u = scan.convolve(x)[:, KERNEL_SIZE - 1 :]
        u_wide, dt, A, B, C = scan.coefficients(u)
        h = A.new_zeros(len(x), *A.shape) if state is None else state.h
        y, h = run_steps(partial(selective_step, A=A), h, u_wide, dt, B, C)
        y = y.to(x.dtype) + scan.D.to(u.dtype) * u
        return self.out_proj(F.silu(g) * y), SelectiveState(h, x[:, 1 - KERNEL_SIZE :])
