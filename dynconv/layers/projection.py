"""Linear layers with the papers' initialisation, and the input projection of a convolution."""

import torch.nn.functional as F
from torch import Tensor, nn


def linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
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
        self.glu = glu
        self.dropout = nn.Dropout(dropout)
        self.linear = linear(channels, 2 * channels if glu else channels)

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        x = self.linear(self.dropout(x))
        x = F.glu(x, dim=-1) if self.glu else x
        return x if pad_mask is None else x.masked_fill(pad_mask.unsqueeze(-1), 0)
