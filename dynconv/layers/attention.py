"""Multi-head attention, softmax(Q K^T / sqrt(d_k)) V (Vaswani et al. 2017, section 3.2;
equations (3.2) to (3.4) of the book)."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynconv.layers.history import require_causal
from dynconv.layers.projection import linear
from dynconv.ops.checks import require_heads


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, C) to (B, H, T, d_k), a view; head h has channels h d_k to (h + 1) d_k."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: nn.Dropout
) -> Tensor:
    """Attention of query (B, H, T, d_k) over key and value (B, H, S, d_k); returns (B, T, C).

    mask, if any, is bool, broadcast to (B, H, T, S), True where attention is forbidden.
    """
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)  # (B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    share = dropout(scores.softmax(dim=-1).to(value.dtype))
    return (share @ value).transpose(1, 2).flatten(2)


def project(layer: nn.Linear, x: Tensor, parts: int) -> tuple[Tensor, ...]:
    """Keys and values, or queries, keys and values, of x (B, T, C): each (B, T, C).

    The keys' bias adds one number to all scores of a query, which the softmax does not see. Its
    gradient would be rounding errors alone, of which Adam makes full steps: it gets none.
    """
    biases = list(layer.bias.chunk(parts))
    biases[-2] = biases[-2].detach()
    return F.linear(x, layer.weight, torch.cat(biases)).chunk(parts, dim=-1)


class KeysValues(NamedTuple):
    """The keys and values (N, S, C) of earlier positions, which decoding attends to."""

    keys: Tensor
    values: Tensor

    def select(self, rows: Tensor) -> "KeysValues":
        """Those of these rows; a row may appear several times."""
        return KeysValues(*(part.index_select(0, rows) for part in self))


class SelfAttention(nn.Module):
    """Self-attention over the whole sentence, or within a window of `kernel_size` positions.

    The window is centred, or, when causal, the last `kernel_size` positions. Decoding keeps the
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
        """(T, S), True where the last T of S positions must not look."""
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
    """Source-target attention: the decoder's positions look at the encoder's output."""

    def __init__(self, channels: int, heads: int, *, dropout: float = 0.0):
        super().__init__()
        require_heads(heads, channels)
        self.heads = heads
        self.query_proj = linear(channels, channels)
        self.memory_proj = linear(channels, 2 * channels)
        self.out_proj = linear(channels, channels)
        self.dropout = nn.Dropout(dropout)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, S, d_k) of the encoder's output; decoding computes them once.

        They are made contiguous, since matrix products would copy them at each step.
        """
        key, value = project(self.memory_proj, memory, 2)
        return tuple(split_heads(part, self.heads).contiguous() for part in (key, value))

    def forward(
        self, x: Tensor, projected: tuple[Tensor, Tensor], pad_mask: Tensor | None = None
    ) -> Tensor:
        """x (N, T, C) over `projected` (B, H, S, d_k); N is B, or B x beam with a sentence's
        beams side by side: they then share its keys and values."""
        N, T, C = x.shape
        key, value = projected
        mask = None if pad_mask is None else pad_mask[:, None, None, :]
        query = self.query_proj(x).reshape(len(key), -1, C)  # (B, beam x T, C)
        y = attend(split_heads(query, self.heads), key, value, mask, self.dropout)
        return self.out_proj(y.reshape(N, T, C))
