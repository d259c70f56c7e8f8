"""The layer of TaLK (Lioutas and Guo 2020, section 3)."""

import torch.nn.functional as F
from torch import Tensor

from dynconv import ops
from dynconv.dtypes import upcast
from dynconv.layers.history import History
from dynconv.layers.projection import ProjectedMixer, xavier_linear
from dynconv.ops.talk import causal_talk_weights
from dynconv.value_checks import check_heads, check_reach


class TaLKConv(ProjectedMixer):
    """Sums windows whose two edges each position predicts.

    The offsets sigmoid(W x + b), one pair per head, are the reach of a window as a fraction of
    max_left and max_right. A layer with max_right = 0 is causal and predicts only the left edges.
    `weight_dropout`, named as in the paper's code, drops offsets, because there are no weights to
    drop; the offsets are then clamped to 1. With `divide_by_max_length`, sums are divided by
    max_left + max_right + 1, the length of the longest window.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        max_left: int,
        max_right: int,
        *,
        divide_by_max_length: bool = True,
        glu: bool = False,
        weight_dropout: float = 0.0,
        input_dropout: float = 0.0,
    ):
        check_heads(heads, channels)
        check_reach(max_left, max_right)
        causal = max_right == 0
        super().__init__(channels, max_left, causal, glu, weight_dropout, input_dropout)
        self.max_left, self.max_right = max_left, max_right
        self.divide_by_max_length = divide_by_max_length
        self.offset_proj = xavier_linear(channels, heads if self.causal else 2 * heads)
        self.out_proj = xavier_linear(channels, channels)

    def _offsets(self, x: Tensor) -> Tensor:
        """Return the offsets (B, T, H) or (B, T, 2 H), in float32 or wider."""
        offsets = upcast(self.offset_proj(x)).sigmoid()
        return F.dropout(offsets, self.weight_dropout, self.training).clamp(max=1)

    def _mix(self, x: Tensor) -> Tensor:
        offsets = self._offsets(x)
        left, right = (offsets, None) if self.causal else offsets.chunk(2, dim=-1)
        y = ops.talk_conv(x, left, right, max_left=self.max_left, max_right=self.max_right)
        return self._scaled(y)

    def _mix_step(self, x: Tensor, history: History) -> Tensor:
        weights = causal_talk_weights(self._offsets(x), self.max_left)
        return self._scaled(history.convolve(weights.to(x.dtype)))

    def _scaled(self, y: Tensor) -> Tensor:
        return y if self.divide_by_max_length else y * (self.max_left + self.max_right + 1)
