"""Linear layers, and the base class of mixers that lie between two of them."""

from abc import ABC, abstractmethod

import torch.nn.functional as F
from torch import Tensor, nn

from dynconv.layers.history import History
from dynconv.layers.padding import mask_padding
from dynconv.layers.state import check_steppable
from dynconv.value_checks import check_probability


def xavier_linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """Return a linear layer with Xavier-uniform weights and a bias of zero."""
    layer = nn.Linear(inputs, outputs, bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class InputProjection(nn.Module):
    """Projects C channels to C, or to 2 C that a GLU halves (Wu et al. 2019, Figure 2b).

    The GLU multiplies the first half by the sigmoid of the second. Padding is set to zero *after*
    the projection, because otherwise its bias would leak into the windows of real positions.
    """

    def __init__(self, channels: int, glu: bool, dropout: float = 0.0):
        super().__init__()
        check_probability("input_dropout", dropout)
        self.glu = glu
        self.dropout = nn.Dropout(dropout)
        self.linear = xavier_linear(channels, 2 * channels if glu else channels)

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        x = self.linear(self.dropout(x))
        x = F.glu(x, dim=-1) if self.glu else x
        return mask_padding(x, pad_mask)


class ProjectedMixer(nn.Module, ABC):
    """Projects the input, mixes positions, and projects the result (Wu et al. 2019, Figure 2).

    past_size       number of earlier inputs that `step` keeps
    glu             whether a gate follows the input projection
    weight_dropout  probability with which a kernel weight, or an offset of TaLK, is dropped
    input_dropout   probability with which an input of the projection is dropped

    A subclass creates the parameters of its kernel and, last, `out_proj`, and defines `_mix` and
    `_mix_step`.
    """

    out_proj: nn.Linear

    def __init__(
        self,
        channels: int,
        past_size: int,
        causal: bool,
        glu: bool,
        weight_dropout: float,
        input_dropout: float,
    ):
        super().__init__()
        check_probability("weight_dropout", weight_dropout)
        self.past_size, self.causal, self.weight_dropout = past_size, causal, weight_dropout
        self.in_proj = InputProjection(channels, glu, input_dropout)

    @abstractmethod
    def _mix(self, x: Tensor) -> Tensor:
        """Return the mixed positions (B, T, C) of projected inputs x (B, T, C)."""

    @abstractmethod
    def _mix_step(self, x: Tensor, history: History) -> Tensor:
        """Return the mixed positions (N, n, C) of x (N, n, C), which are the last of `history`."""

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        return self.out_proj(self._mix(self.in_proj(x, pad_mask)))

    def step(self, x: Tensor, state: History | None = None) -> tuple[Tensor, History]:
        """Return the outputs (N, n, C) at n new positions, and the next state; see `layers`."""
        check_steppable(self, self.causal, x)
        x = self.in_proj(x)
        state = History.extended(state, x, self.past_size)
        return self.out_proj(self._mix_step(x, state)), state
