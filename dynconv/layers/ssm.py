"""A layer of diagonal state-space models, S4D (Gu et al. 2022)."""

import math
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynconv import ops
from dynconv.dtypes import upcast
from dynconv.layers.direction import count_forward, flip_rest
from dynconv.layers.padding import mask_padding
from dynconv.layers.projection import xavier_linear
from dynconv.layers.state import check_steppable, run_steps
from dynconv.ops.ssm import discretize, ssm_step
from dynconv.value_checks import check_positive


class S4DState(NamedTuple):
    """The complex states (N, C, state_size) after the last position."""

    h: Tensor


class S4D(nn.Module):
    """Runs a state-space model over each channel, and then mixes the channels.

        y = GLU(W gelu(ssm(x) + D x))

    state_size  complex states per channel; state n starts as in S4D-Lin, A[n] = -1/2 + i pi n

    All of dt, A, C and D are learned: dt and the decay -Re A by their logarithms, because they are
    positive. In a layer that is not causal, half of the channels run from right to left.
    """

    def __init__(self, channels: int, state_size: int, *, causal: bool = False):
        super().__init__()
        self.causal = causal
        check_positive("channels", channels)
        check_positive("state_size", state_size)
        self.forward_channels = count_forward(channels, "channels", causal)
        n = torch.arange(state_size).expand(channels, state_size)
        self.log_dt = nn.Parameter(torch.empty(channels).uniform_(math.log(1e-3), math.log(1e-1)))
        self.log_decay = nn.Parameter(torch.full((channels, state_size), math.log(0.5)))
        self.frequency = nn.Parameter(math.pi * n)
        self.C = nn.Parameter(torch.randn(channels, state_size, 2) / math.sqrt(2))
        self.D = nn.Parameter(torch.ones(channels))
        self.out_proj = xavier_linear(channels, 2 * channels)

    def _system(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return dt (C,), A and C (C, state_size) in the precision of sums."""
        A = torch.complex(-upcast(self.log_decay).exp(), upcast(self.frequency))
        return upcast(self.log_dt).exp(), A, torch.view_as_complex(upcast(self.C))

    def _output(self, x: Tensor, y: Tensor) -> Tensor:
        return F.glu(self.out_proj(F.gelu(y + self.D.to(x.dtype) * x)), dim=-1)

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        x = mask_padding(x, pad_mask)
        y = ops.diagonal_ssm(flip_rest(x, self.forward_channels), *self._system())
        return self._output(x, flip_rest(y, self.forward_channels))

    def step(self, x: Tensor, state: S4DState | None = None) -> tuple[Tensor, S4DState]:
        """Return the outputs (N, n, C) at n new positions, and the next state; see `layers`."""
        check_steppable(self, self.causal, x)
        dt, A, C = self._system()
        decay, Bbar = discretize(dt, A)
        h = A.new_zeros(len(x), *A.shape) if state is None else state.h
        y, h = run_steps(partial(ssm_step, decay=decay, Bbar=Bbar, C=C), h, upcast(x))
        return self._output(x, y.to(x.dtype)), S4DState(h)
