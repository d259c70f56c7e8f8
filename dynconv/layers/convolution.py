"""The convolutions of Wu et al. 2019: dense, depthwise, LightConv and DynamicConv.

Decoding keeps the last K - 1 inputs of the convolution in a `History`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynconv import ops
from dynconv.choices import Normalization
from dynconv.layers.history import History
from dynconv.layers.padding import mask_padding
from dynconv.layers.projection import ProjectedMixer, xavier_linear
from dynconv.layers.state import check_steppable
from dynconv.ops.lightconv import repeat_kernel
from dynconv.ops.normalize import check_normalization
from dynconv.ops.shapes import pad_time
from dynconv.value_checks import check_heads, check_odd, check_positive


def left_padding(kernel_size: int, causal: bool) -> int:
    """Return how many zeros precede position 0: K - 1 if causal, else K // 2. K must be odd."""
    check_odd("kernel size", kernel_size)
    return kernel_size - 1 if causal else kernel_size // 2


class PaddedConv(nn.Module):
    """Applies an `nn.Conv1d` and an activation to x (B, T, C), whose padding is set to zero.

    A causal layer pads K - 1 zeros on the left; any other layer pads (K - 1) // 2 on the left and
    K // 2 on the right.
    """

    def __init__(self, conv: nn.Conv1d, causal: bool, activation: nn.Module | None = None):
        super().__init__()
        self.conv, self.causal = conv, causal
        self.activation = activation or nn.Identity()
        self.kernel_size = conv.kernel_size[0]
        self.pad_left = self.kernel_size - 1 if causal else (self.kernel_size - 1) // 2

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        return self._convolve(pad_time(mask_padding(x, pad_mask), self.kernel_size, self.pad_left))

    def step(self, x: Tensor, state: History | None = None) -> tuple[Tensor, History]:
        """Return the outputs (N, n, C) at n new positions, and the next state; see `layers`."""
        check_steppable(self, self.causal, x)
        past_size = self.kernel_size - 1
        state = History.extended(state, x, past_size)
        return self._convolve(state.last(past_size + x.shape[1])), state

    def _convolve(self, padded: Tensor) -> Tensor:
        return self.activation(self.conv(padded.transpose(1, 2))).transpose(1, 2)


class DenseConv(PaddedConv):
    """Convolves with C x C x K weights, without projections (Wu et al., Table 3, "CNN")."""

    def __init__(self, channels: int, kernel_size: int, *, causal: bool = False):
        check_positive("channels", channels)
        check_odd("kernel size", kernel_size)
        conv = nn.Conv1d(channels, channels, kernel_size)
        nn.init.xavier_uniform_(conv.weight)
        nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        super().__init__(conv, causal)


class LightConv(ProjectedMixer):
    """Projects, convolves with H normalised kernels, and projects (Wu et al., section 3).

    Each kernel is shared by C / H channels. The projections have C x C weights each, with `glu` the
    first one 2 C x C.

    DropConnect drops entries of the normalised kernels (H, K), with one mask for the whole batch.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        kernel_size: int,
        *,
        causal: bool = False,
        normalize: Normalization = "softmax",
        glu: bool = False,
        weight_dropout: float = 0.0,
        input_dropout: float = 0.0,
    ):
        check_heads(heads, channels)
        check_normalization(normalize)
        past_size = kernel_size - 1
        super().__init__(channels, past_size, causal, glu, weight_dropout, input_dropout)
        self.pad_left = left_padding(kernel_size, causal)
        self.normalize = normalize
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, kernel_size)))
        self.out_proj = xavier_linear(channels, channels)

    def kernel(self, dtype: torch.dtype) -> Tensor:
        """Return the normalised kernels, in train mode after DropConnect."""
        weight = ops.normalize_kernel(self.weight, self.normalize)  # (H, K)
        return F.dropout(weight, self.weight_dropout, self.training).to(dtype)

    def _mix(self, x: Tensor) -> Tensor:
        return ops.light_conv(x, self.kernel(x.dtype), pad_left=self.pad_left)

    def _mix_step(self, x: Tensor, history: History) -> Tensor:
        return history.convolve(repeat_kernel(x, self.kernel(x.dtype)))


class DepthwiseConv(LightConv):
    """Projects, convolves each channel with its own kernel, and projects (Wu et al., Table 3).

    The kernels are not normalised. Without the two projections it would be `nn.Conv1d` with
    `groups=C`.
    """

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
        super().__init__(
            channels,
            channels,
            kernel_size,
            causal=causal,
            normalize="none",
            glu=glu,
            weight_dropout=weight_dropout,
            input_dropout=input_dropout,
        )

    def _mix(self, x: Tensor) -> Tensor:
        return ops.depthwise_conv(x, self.kernel(x.dtype), pad_left=self.pad_left)


class DynamicConv(ProjectedMixer):
    """Projects, convolves with kernels (H, K) that each position predicts, and projects.

    This is section 4 of Wu et al. The matrix W^Q (H K, C), without bias, predicts the kernels from
    the input after projection, gate and padding mask; row h K + j predicts tap j of head h.
    DropConnect drops each entry (b, t, h, j) independently.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        kernel_size: int,
        *,
        causal: bool = False,
        normalize: Normalization = "softmax",
        glu: bool = False,
        weight_dropout: float = 0.0,
        input_dropout: float = 0.0,
    ):
        check_heads(heads, channels)
        check_normalization(normalize)
        past_size = kernel_size - 1
        super().__init__(channels, past_size, causal, glu, weight_dropout, input_dropout)
        self.heads, self.kernel_size = heads, kernel_size
        self.pad_left = left_padding(kernel_size, causal)
        self.normalize = normalize
        self.kernel_proj = xavier_linear(channels, heads * kernel_size, bias=False)
        self.out_proj = xavier_linear(channels, channels)

    def logits(self, x: Tensor) -> Tensor:
        """Return the kernels (B, T, H, K) that x predicts, before they are normalised."""
        return self.kernel_proj(x).unflatten(2, (self.heads, self.kernel_size))

    def _mix(self, x: Tensor) -> Tensor:
        logits = self.logits(x)
        if self.normalize == "softmax":
            dropout = self.weight_dropout if self.training else 0.0
            return ops.softmax_conv(x, logits, pad_left=self.pad_left, dropout=dropout)
        kernel = ops.normalize_kernel(logits, self.normalize).to(x.dtype)
        kernel = F.dropout(kernel, self.weight_dropout, self.training)
        return ops.dynamic_conv(x, kernel, pad_left=self.pad_left)

    def _mix_step(self, x: Tensor, history: History) -> Tensor:
        return history.convolve(ops.normalize_kernel(self.logits(x), self.normalize).to(x.dtype))
