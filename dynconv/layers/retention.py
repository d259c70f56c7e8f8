"""A layer of retention, linear attention that fades (Sun et al. 2023)."""

from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynconv import ops
from dynconv.dtypes import accumulator_dtype, upcast
from dynconv.layers.direction import count_forward, flip_rest
from dynconv.layers.padding import mask_padding
from dynconv.layers.projection import xavier_linear
from dynconv.layers.state import check_steppable, run_steps
from dynconv.ops.retnet import retention_step
from dynconv.value_checks import check_heads


class RetentionState(NamedTuple):
    """The matrices (N, H, R, R) after the last position."""

    S: Tensor


class Retention(nn.Module):
    """Attends to all earlier positions, with weights that fade by a fixed factor per head.

        q, k, v, g = W x;  y = W_o (silu(g) * norm(retention(q, k / sqrt(R), v)))

    Head h, from 0 to H - 1, keeps 1 - 2^(-5 - h) of its state at each position. `norm` divides each
    head's R channels by their root mean square. Unlike in the paper, q and k are not rotated. In a
    layer that is not causal, half of the heads run from right to left.
    """

    def __init__(self, channels: int, heads: int, *, causal: bool = False):
        super().__init__()
        check_heads(heads, channels)
        self.heads, self.causal = heads, causal
        self.forward_channels = count_forward(heads, "heads", causal) * (channels // heads)
        self.in_proj = xavier_linear(channels, 4 * channels, bias=False)
        self.out_proj = xavier_linear(channels, channels, bias=False)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return q, k divided by sqrt(R), v and the gate g, each (B, T, C)."""
        q, k, v, g = self.in_proj(x).chunk(4, dim=-1)
        return q, k * (k.shape[2] // self.heads) ** -0.5, v, g

    def _gamma(self, x: Tensor) -> Tensor:
        """Return the factors (H,) in the precision of sums."""
        h = torch.arange(self.heads, device=x.device, dtype=accumulator_dtype(x.dtype))
        return 1 - 2 ** (-5 - h)

    def _output(self, y: Tensor, g: Tensor) -> Tensor:
        R = y.shape[2] // self.heads
        heads = F.rms_norm(upcast(y).unflatten(2, (self.heads, R)), (R,), eps=1e-6)
        return self.out_proj(F.silu(g) * heads.flatten(2).to(y.dtype))

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        q, k, v, g = self._project(mask_padding(x, pad_mask))
        q, k, v = (flip_rest(z, self.forward_channels) for z in (q, k, v))
        y = ops.retention(q, k, v, self._gamma(q))
        return self._output(flip_rest(y, self.forward_channels), g)

    def step(self, x: Tensor, state: RetentionState | None = None) -> tuple[Tensor, RetentionState]:
        """Return the outputs (N, n, C) at n new positions, and the next state; see `layers`."""
        check_steppable(self, self.causal, x)
        *qkv, g = self._project(x)
        gamma = self._gamma(x)
        R = x.shape[2] // self.heads
        heads = (upcast(z).unflatten(2, (self.heads, R)) for z in qkv)  # (N, n, H, R)
        S = gamma.new_zeros(len(x), self.heads, R, R) if state is None else state.S
        y, S = run_steps(partial(retention_step, gamma=gamma), S, *heads)
        return self._output(y.flatten(2).to(x.dtype), g), RetentionState(S)
