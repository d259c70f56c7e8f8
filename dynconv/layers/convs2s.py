"""ConvS2S's layers (Gehring et al. 2017, section 3; equations (5.1) to (5.5) of the book).

All weights but the embeddings are normalised: g v / |v|, with a length g and a direction v per
output (Salimans and Kingma 2016). Their initialisation keeps the variance of the layer's input,
which dropout multiplies by 1 / p if it retains inputs with probability p (section 3.5).
"""

import math
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from dynconv.errors import UserError
from dynconv.layers.convolution import PaddedConv

Layer = TypeVar("Layer", nn.Linear, nn.Conv1d)

SQRT_HALF = 0.5**0.5
"""the factor that scales the sum of two tensors of equal variance back to their variance"""


def init_weight_norm(layer: Layer, gain: float) -> Layer:
    """Draw weights from N(0, gain / n), for n inputs per output, and weight-normalise the layer."""
    nn.init.normal_(layer.weight, std=math.sqrt(gain / layer.weight[0].numel()))
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    weight_norm(layer)
    return layer


def weight_normed_linear(inputs: int, outputs: int, retained: float = 1.0) -> nn.Linear:
    """Return a weight-normalised linear layer; `retained` is 1 - p of the dropout before it."""
    return init_weight_norm(nn.Linear(inputs, outputs), gain=retained)


class PositionedEmbedding(nn.Module):
    """Embeds tokens and their positions, e_j = w_j + p_j (section 3.1).

    Both are learned and drawn from N(0, 0.1^2). If max_positions is None, there is no p_j.
    """

    def __init__(self, vocab_size: int, width: int, max_positions: int | None, dropout: float):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = None if max_positions is None else nn.Embedding(max_positions, width)
        for table in self.parameters():
            nn.init.normal_(table, std=0.1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, start: int = 0, pad_mask: Tensor | None = None) -> Tensor:
        """Embed tokens (B, T), the first of them at position `start`, as (B, T, C).

        A pad_mask (B, T) is True at padding, which then takes no position. Raises UserError for
        more tokens than there are positions.
        """
        x = self.tokens(tokens)
        if self.positions is not None:
            length, limit = start + tokens.shape[1], self.positions.num_embeddings
            if length > limit:
                raise UserError(
                    f"a sentence of {length} tokens, <eos> included, is longer than "
                    f"max_positions {limit}: raise that, or leave out or cut long sentences"
                )
            if pad_mask is None:
                position = torch.arange(start, length, device=tokens.device)
            else:
                position = ((~pad_mask).cumsum(1) - 1).clamp(min=0)
            x = x + self.positions(position)
        return self.dropout(x)


class GatedConv(PaddedConv):
    """Computes A * sigmoid(B) for [A B] = W X + b, a convolution and a GLU (section 3.2)."""

    def __init__(
        self, inputs: int, outputs: int, kernel_size: int, *, causal: bool, dropout: float
    ):
        # Near zero the gate is about 1/2, which divides the variance by 4.
        conv = init_weight_norm(nn.Conv1d(inputs, 2 * outputs, kernel_size), gain=4 * (1 - dropout))
        super().__init__(conv, causal, nn.GLU(dim=1))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        return super().forward(self.dropout(x), pad_mask)


class KeyedMemory(NamedTuple):
    """What the decoder attends to: the encoder's output z as keys, and values (B, S, C).

    The values are (z + e) sqrt(1/2), as in the released code; the paper has z + e.
    """

    keys: Tensor
    values: Tensor
    pad_mask: Tensor | None
    """mask (B, S) bool, True where padding"""


class MultiStepAttention(nn.Module):
    """Attends from one decoder layer to the source (section 3.3), keeping the variance (3.4).

        d_i = (W_d h_i + b_d + g_i) sqrt(1/2)
        a_ij = softmax_j(d_i . z_j)
        c_i = m sqrt(1/m) sum_j a_ij values_j
        h_i + c_i becomes (h_i + W_c c_i + b_c) sqrt(1/2)

    for m source tokens. The factor sqrt(1/2) in d and the matrix W_c, which lets c and h differ in
    width, come from the released code, not from the paper.
    """

    def __init__(self, channels: int, embedding: int):
        super().__init__()
        self.query_proj = weight_normed_linear(channels, embedding)
        self.out_proj = weight_normed_linear(embedding, channels)

    def forward(self, h: Tensor, g: Tensor, memory: KeyedMemory) -> tuple[Tensor, Tensor]:
        """Return the next h (N, T, C) and a (N, T, S), from h and target embeddings g (N, T, E).

        N is B, or B x beam, where the hypotheses of a sentence are consecutive rows and share its
        memory.
        """
        N, T, _ = h.shape
        B, S, E = memory.keys.shape
        d = ((self.query_proj(h) + g) * SQRT_HALF).reshape(B, -1, E)  # (B, beam x T, E)
        scores = d @ memory.keys.transpose(1, 2)
        m = memory.values.new_full((B, 1, 1), S)
        if memory.pad_mask is not None:
            pad = memory.pad_mask[:, None, :]
            scores = scores.masked_fill(pad, float("-inf"))
            m = (~pad).sum(2, keepdim=True).to(m.dtype)
        a = scores.softmax(dim=-1).to(memory.values.dtype)
        c = m * (1 / m).sqrt() * (a @ memory.values)
        return (h + self.out_proj(c.reshape(N, T, E))) * SQRT_HALF, a.reshape(N, T, S)
