"""Averaging attention (Zhang et al. 2018, section 3; equations (13.1) to (13.3) of the book)."""

import torch
from torch import Tensor, nn

from dynconv import ops
from dynconv.layers.projection import linear


class AverageAttention(nn.Module):
    """The mean of the past through a feed-forward module, then an input and a forget gate.

        g_t = FFN(mean(x_1 .. x_t));  i, f = sigmoid(W [x_t; g_t]);  y_t = i * x_t + f * g_t

    A layer that is not causal takes the mean of the whole sentence (not published). Decoding
    keeps the running sum and the number of positions: two tensors, (B, 1, C) and (B, 1, 1).
    """

    def __init__(self, channels: int, ffn: int, *, causal: bool = False):
        super().__init__()
        self.causal = causal
        self.ffn = nn.Sequential(linear(channels, ffn), nn.ReLU(), linear(ffn, channels))
        self.gates = linear(2 * channels, 2 * channels)

    def _gated(self, x: Tensor, mean: Tensor) -> Tensor:
        past = self.ffn(mean)
        keep, take = self.gates(torch.cat([x, past], dim=-1)).sigmoid().chunk(2, dim=-1)
        return keep * x + take * past

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        if self.causal:
            return self._gated(x, ops.cumulative_mean(x))
        real = torch.ones_like(x[..., :1]) if pad_mask is None else (~pad_mask).unsqueeze(-1)
        mean = (x * real).sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)
        return self._gated(x, mean.to(x.dtype).expand_as(x))

    def step(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # bfloat16 counts to 256
        if state is None:
            state = wide.new_zeros(x.shape[0], 1, x.shape[2]), wide.new_zeros(x.shape[0], 1, 1)
        total = state[0] + wide.cumsum(dim=1)
        count = state[1] + torch.arange(1, x.shape[1] + 1, device=x.device).view(1, -1, 1)
        return self._gated(x, (total / count).to(x.dtype)), (total[:, -1:], count[:, -1:])
