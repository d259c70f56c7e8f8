"""The convolutions of Wu et al. 2019 as layers: dense, depthwise, LightConv and DynamicConv.

While decoding, each keeps the K - 1 last inputs of its convolution in a `History`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynconv import ops
from dynconv.layers.history import History, require_causal
from dynconv.layers.projection import InputProjection, linear
from dynconv.ops.checks import require_heads
from dynconv.ops.dynamicconv import pad_time
from dynconv.ops.lightconv import same_kernel


def left_padding(kernel_size: int, causal: bool) -> int:
    """Return how many zeros precede position 0: K - 1 if causal, else K // 2. K must be odd."""
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f"kernel size {kernel_size} must be odd and positive")
    return kernel_size - 1 if causal else kernel_size // 2


class DenseConv(nn.Module):
    """Convolves all channels, with C x C x K weights (Wu et al., Table 3, "CNN").

    It has no projections before or after the convolution.
    """

    def __init__(self, channels: int, kernel_size: int, *, causal: bool = False):
        super().__init__()
        self.kernel_size = kernel_size
        self.causal, self.pad_left = causal, left_padding(kernel_size, causal)
        self.conv = nn.Conv1d(channels, channels, kernel_size)
        nn.init.xavier_uniform_(self.conv.weight)
        nn.init.zeros_(self.conv.bias)

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        x = x if pad_mask is None else x.masked_fill(pad_mask.unsqueeze(-1), 0)
        return self._mix(pad_time(x, self.kernel_size, self.pad_left))

    def step(self, x: Tensor, state: History | None = None) -> tuple[Tensor, History]:
        require_causal(self, self.causal)
        size = self.kernel_size - 1
        state = History.extend(state, x, size)
        return self._mix(state.window(size + x.shape[1])), state

    def _mix(self, window: Tensor) -> Tensor:
        return self.conv(window.transpose(1, 2)).transpose(1, 2)


class DepthwiseConv(nn.Module):
    """Convolves each channel with a kernel of its own, between projections (Wu et al., Table 3)."""

    def __init__(
        self,
        channels: int,
        kernel_size: int,
        *,
        causal: bool = False,
        glu: bool = False,
        weight_dropout: float = 0.0,
        input_dropout: float = 0.0,
    ):
        super().__init__()
        self.causal, self.pad_left = causal, left_padding(kernel_size, causal)
        self.weight_dropout = weight_dropout
        self.in_proj = InputProjection(channels, glu, input_dropout)
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(channels, kernel_size)))
        self.out_proj = linear(channels, channels)

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        x = self.in_proj(x, pad_mask)
        weight = F.dropout(self.weight, self.weight_dropout, self.training).to(x.dtype)
        return self.out_proj(ops.depthwise_conv(x, weight, pad_left=self.pad_left))

    def step(self, x: Tensor, state: History | None = None) -> tuple[Tensor, History]:
        require_causal(self, self.causal)
        x = self.in_proj(x)
        state = History.extend(state, x, self.weight.shape[1] - 1)
        return self.out_proj(state.mix(same_kernel(x, self.weight))), state


class LightConv(nn.Module):
    """Convolves with H normalised kernels, shared by C / H channels each (Wu et al., section 3).

    DropConnect drops entries of the normalised (H, K) weights, with one mask for the whole batch.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        kernel_size: int,
        *,
        causal: bool = False,
        normalize: str = "softmax",
        glu: bool = False,
        weight_dropout: float = 0.0,
        input_dropout: float = 0.0,
    ):
        super().__init__()
        require_heads(heads, channels)
        self.causal, self.pad_left = causal, left_padding(kernel_size, causal)
        self.normalize, self.weight_dropout = normalize, weight_dropout
        self.in_proj = InputProjection(channels, glu, input_dropout)
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, kernel_size)))
        self.out_proj = linear(channels, channels)

    def _kernel(self, dtype: torch.dtype) -> Tensor:
        weight = ops.normalize_kernel(self.weight, self.normalize)  # (H, K)
        return F.dropout(weight, self.weight_dropout, self.training).to(dtype)

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        x = self.in_proj(x, pad_mask)
        return self.out_proj(ops.light_conv(x, self._kernel(x.dtype), pad_left=self.pad_left))

    def step(self, x: Tensor, state: History | None = None) -> tuple[Tensor, History]:
        require_causal(self, self.causal)
        x = self.in_proj(x)
        state = History.extend(state, x, self.weight.shape[1] - 1)
        return self.out_proj(state.mix(same_kernel(x, self._kernel(x.dtype)))), state


class DynamicConv(nn.Module):
    """Convolves with kernels (H, K) that each position predicts (Wu et al., section 4).

    W^Q, of H * K rows and without bias, predicts them from the input as it is after projection,
    gate and padding mask; row h * K + j gives tap j of head h. DropConnect draws a mask for each
    position: entry (b, t, h, j) is dropped independently of all others.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        kernel_size: int,
        *,
        causal: bool = False,
        normalize: str = "softmax",
        glu: bool = False,
        weight_dropout: float = 0.0,
        input_dropout: float = 0.0,
    ):
        super().__init__()
        require_heads(heads, channels)
        self.heads, self.kernel_size = heads, kernel_size
        self.causal, self.pad_left = causal, left_padding(kernel_size, causal)
        self.normalize, self.weight_dropout = normalize, weight_dropout
        self.in_proj = InputProjection(channels, glu, input_dropout)
        self.kernel_proj = linear(channels, heads * kernel_size, bias=False)
        self.out_proj = linear(channels, channels)

    def _logits(self, x: Tensor) -> Tensor:
        return self.kernel_proj(x).unflatten(2, (self.heads, self.kernel_size))  # (B, T, H, K)

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        x = self.in_proj(x, pad_mask)
        logits, pad_left = self._logits(x), self.pad_left
        if self.normalize == "softmax":
            dropout = self.weight_dropout if self.training else 0.0
            y = ops.dynamic_conv_softmax(x, logits, pad_left=pad_left, dropout=dropout)
        else:
            kernel = ops.normalize_kernel(logits, self.normalize).to(x.dtype)
            kernel = F.dropout(kernel, self.weight_dropout, self.training)
            y = ops.dynamic_conv(x, kernel, pad_left=pad_left)
        return self.out_proj(y)

    def step(self, x: Tensor, state: History | None = None) -> tuple[Tensor, History]:
        require_causal(self, self.causal)
        x = self.in_proj(x)
        state = History.extend(state, x, self.kernel_size - 1)
        kernel = ops.normalize_kernel(self._logits(x), self.normalize).to(x.dtype)
        return self.out_proj(state.mix(kernel)), state
