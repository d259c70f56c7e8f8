"""Multi-head attention computes softmax(Q K^T / sqrt(d_k)) V (Vaswani et al. 2017, section 3.2).

Equations (3.2) to (3.4) of the book.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynconv.layers.history import require_causal
from dynconv.layers.projection import linear
from dynconv.ops.checks import require_heads


def split_heads(x: Tensor, heads: int) -> Tensor:
    """View x (B, T, C) as (B, H, T, d_k); head h gets the channels from h d_k to (h + 1) d_k."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: nn.Dropout
) -> Tensor:
    """Attend from query (B, H, T, d_k) to key and value (B, H, S, d_k); return (B, T, C).

    mask, if given, is bool, broadcasts to (B, H, T, S), and is True where attention is forbidden.
    """
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)  # (B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    share = dropout(scores.softmax(dim=-1).to(value.dtype))
    return (share @ value).transpose(1, 2).flatten(2)


def project(layer: nn.Linear, x: Tensor, parts: int) -> tuple[Tensor, ...]:
    """Project x (B, T, C) to keys and values, or to queries, keys and values: each (B, T, C).

    The keys' bias adds the same number to all scores of a query, which cancels in the softmax. Its
    gradient would consist of rounding errors, which Adam would scale up to full steps, so it gets
    none.
    """
    biases = list(layer.bias.chunk(parts))
    biases[-2] = biases[-2].detach()
    return F.linear(x, layer.weight, torch.cat(biases)).chunk(parts, dim=-1)


class KeysValues(NamedTuple):
    """Keeps the keys and values (N, S, C) of earlier positions while decoding: a KV cache."""

    keys: Tensor
    values: Tensor

    def select(self, rows: Tensor) -> "KeysValues":
        """Return the keys and values of these rows; a row may appear several times."""
        return KeysValues(*(part.index_select(0, rows) for part in self))


class SelfAttention(nn.Module):
    """Attends to the whole sentence, or only within a window of `kernel_size` positions.

    The window is centred on each position; a causal layer's window ends there. Decoding keeps the
    keys and values of the window, or of all positions so far.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        kernel_size: int | None = None,
        *,
        causal: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        require_heads(heads, channels)
        self.heads, self.kernel_size, self.causal = heads, kernel_size, causal
        self.in_proj = linear(channels, 3 * channels)
        self.out_proj = linear(channels, channels)
        self.dropout = nn.Dropout(dropout)

    def _forbidden(self, T: int, S: int, device: torch.device) -> Tensor:
        """Return (T, S), True where the last T of S positions must not look."""
        ahead = torch.arange(S, device=device) - torch.arange(S - T, S, device=device)[:, None]
        K = self.kernel_size or 2 * S + 1
        if self.causal:
            return (ahead > 0) | (ahead <= -K)
        return ahead.abs() > K // 2

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        query, key, value = project(self.in_proj, x, 3)
        mask = None
        if self.causal or self.kernel_size is not None:
            mask = self._forbidden(x.shape[1], x.shape[1], x.device)
        if pad_mask is not None:
            pad = pad_mask[:, None, None, :]
            mask = pad if mask is None else mask | pad
            # A padding position may have nothing but padding in its window: it may see itself.
            mask = mask & ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        return self._attend(query, key, value, mask)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        heads = (split_heads(x, self.heads) for x in (query, key, value))
        return self.out_proj(attend(*heads, mask, self.dropout))

    def step(self, x: Tensor, state: KeysValues | None = None) -> tuple[Tensor, KeysValues]:
        require_causal(self, self.causal)
        query, key, value = project(self.in_proj, x, 3)
        if state is not None:
            key, value = torch.cat([state.keys, key], 1), torch.cat([state.values, value], 1)
        mask = self._forbidden(x.shape[1], key.shape[1], x.device)
        y = self._attend(query, key, value, mask)
        keep = key.shape[1] if self.kernel_size is None else self.kernel_size - 1
        start = max(0, key.shape[1] - keep)
        return y, KeysValues(key[:, start:], value[:, start:])


class CrossAttention(nn.Module):
    """Lets the decoder's positions attend to the encoder's output."""

    def __init__(self, channels: int, heads: int, *, dropout: float = 0.0):
        super().__init__()
        require_heads(heads, channels)
        self.heads = heads
        self.query_proj = linear(channels, channels)
        self.memory_proj = linear(channels, 2 * channels)
        self.out_proj = linear(channels, channels)
        self.dropout = nn.Dropout(dropout)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values (B, H, S, d_k) of the encoder's output; decoding needs them once.

        They are made contiguous, because every step's matrix products would copy them otherwise.
        """
        key, value = project(self.memory_proj, memory, 2)
        return tuple(split_heads(part, self.heads).contiguous() for part in (key, value))

    def forward(
        self, x: Tensor, projected: tuple[Tensor, Tensor], pad_mask: Tensor | None = None
    ) -> Tensor:
        """Attend from x (N, T, C) to `projected` keys and values (B, H, S, d_k); return (N, T, C).

        N is B, or B x beam, where the hypotheses of a sentence are consecutive rows and share its
        keys and values.
        """
        N, T, C = x.shape
        key, value = projected
        mask = None if pad_mask is None else pad_mask[:, None, None, :]
        query = self.query_proj(x).reshape(len(key), -1, C)  # (B, beam x T, C)
        y = attend(split_heads(query, self.heads), key, value, mask, self.dropout)
        return self.out_proj(y.reshape(N, T, C))
