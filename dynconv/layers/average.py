"""Average attention (Zhang et al. 2018, section 3), (13.1) to (13.3) of the book."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from dynconv import ops
from dynconv.dtypes import upcast
from dynconv.layers.padding import mask_padding
from dynconv.layers.projection import xavier_linear
from dynconv.layers.state import check_steppable
from dynconv.value_checks import check_positive


class AverageState(NamedTuple):
    """The sum (N, 1, C) and the number (N, 1, 1) of the positions so far."""

    total: Tensor
    positions: Tensor


class AverageAttention(nn.Module):
    """Averages all positions so far, and gates the result of a feed-forward network.

        g_t = FFN(mean(x_1 .. x_t));  i, f = sigmoid(W [x_t; g_t]);  y_t = i * x_t + f * g_t

    i is the input gate and f the forget gate. Unlike in the paper, a layer may also be non-causal;
    then it averages the whole sentence.
    """

    def __init__(self, channels: int, ffn: int, *, causal: bool = False):
        super().__init__()
        check_positive("channels", channels)
        check_positive("ffn", ffn)
        self.causal = causal
        self.ffn = nn.Sequential(
            xavier_linear(channels, ffn), nn.ReLU(), xavier_linear(ffn, channels)
        )
        self.gates = xavier_linear(2 * channels, 2 * channels)

    def _gated(self, x: Tensor, mean: Tensor) -> Tensor:
        g = self.ffn(mean)
        i, f = self.gates(torch.cat([x, g], dim=-1)).sigmoid().chunk(2, dim=-1)
        return i * x + f * g

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        if self.causal:
            mean = ops.cumulative_mean(mask_padding(x, pad_mask))
            if pad_mask is not None:  # divide by the tokens so far, not by all positions
                positions = torch.arange(1, x.shape[1] + 1, device=x.device)
                correction = positions / (~pad_mask).cumsum(dim=1).clamp(min=1)
                mean = mean * correction.unsqueeze(-1).to(x.dtype)
            return self._gated(x, mean)
        total = upcast(mask_padding(x, pad_mask)).sum(1, keepdim=True)
        count = x.shape[1] if pad_mask is None else (~pad_mask).sum(1).clamp(min=1).view(-1, 1, 1)
        return self._gated(x, (total / count).to(x.dtype).expand_as(x))

    def step(self, x: Tensor, state: AverageState | None = None) -> tuple[Tensor, AverageState]:
        """Return the outputs (N, n, C) at n new positions, and the next state; see `layers`."""
        check_steppable(self, self.causal, x)
        x_wide = upcast(x)  # bfloat16 represents integers exactly only up to 256
        if state is None:
            N, _, C = x.shape
            state = AverageState(x_wide.new_zeros(N, 1, C), x_wide.new_zeros(N, 1, 1))
        total = state.total + x_wide.cumsum(dim=1)
        count = state.positions + torch.arange(1, x.shape[1] + 1, device=x.device).view(1, -1, 1)
        y = self._gated(x, (total / count).to(x.dtype))
        return y, AverageState(total[:, -1:], count[:, -1:])
