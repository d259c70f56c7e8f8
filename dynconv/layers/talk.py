"""TaLK as a layer (Lioutas and Guo 2020, section 3)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynconv import ops
from dynconv.layers.history import History, require_causal
from dynconv.layers.projection import InputProjection, linear
from dynconv.ops.checks import require_heads


class TaLKConv(nn.Module):
    """Sums windows whose edges each position and head predicts: time-aware large kernels.

    The offsets sigmoid(W x + b) say how far a window reaches, as a share of max_left and of
    max_right: H of them for the left edge and H for the right, or none if the layer is causal
    (max_right == 0). Dropout acts on the offsets; those that it scales up beyond 1 are cut back to
    1, so no window outgrows max_left or max_right. With `normalize`, sums are divided by
    max_left + max_right + 1. Decoding keeps the max_left last inputs.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        max_left: int,
        max_right: int,
        *,
        normalize: bool = True,
        glu: bool = False,
        weight_dropout: float = 0.0,
        input_dropout: float = 0.0,
    ):
        super().__init__()
        require_heads(heads, channels)
        self.max_left, self.max_right = max_left, max_right
        self.normalize, self.weight_dropout = normalize, weight_dropout
        self.in_proj = InputProjection(channels, glu, input_dropout)
        self.offset_proj = linear(channels, heads if max_right == 0 else 2 * heads)
        self.out_proj = linear(channels, channels)

    def _offsets(self, x: Tensor) -> Tensor:
        """Return the offsets (B, T, H) or (B, T, 2 H), in float32 or wider."""
        offsets = self.offset_proj(x).to(torch.promote_types(x.dtype, torch.float32)).sigmoid()
        return F.dropout(offsets, self.weight_dropout, self.training).clamp(max=1)

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        x = self.in_proj(x, pad_mask)
        offsets = self._offsets(x)
        left, right = (offsets, None) if self.max_right == 0 else offsets.chunk(2, dim=-1)
        y = ops.talk_conv(x, left, right, max_left=self.max_left, max_right=self.max_right)
        return self.out_proj(self._scaled(y))

    def _scaled(self, y: Tensor) -> Tensor:
        return y if self.normalize else y * (self.max_left + self.max_right + 1)

    def step(self, x: Tensor, state: History | None = None) -> tuple[Tensor, History]:
        require_causal(self, self.max_right == 0)
        # Zeros before the sentence change no sum, so the window's own start needs no care.
        x = self.in_proj(x)
        state = History.extend(state, x, self.max_left)
        behind = torch.arange(self.max_left, -1, -1, device=x.device)
        reach = self._offsets(x).unsqueeze(-1) * self.max_left  # (N, n, H, 1)
        share = (1 - behind + reach).clamp(0, 1) / (self.max_left + 1)  # (N, n, H, max_left + 1)
        return self.out_proj(self._scaled(state.mix(share.to(x.dtype)))), state
