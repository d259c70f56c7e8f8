"""Multi-head attention, softmax(Q K^T / sqrt(d_k)) V (Vaswani et al. 2017, section 3.2)."""

import torch
from torch import Tensor, nn

from dynconv.layers.projection import linear
from dynconv.ops.checks import require_heads


def attend(
    query: Tensor, key: Tensor, value: Tensor, heads: int, mask: Tensor | None, dropout: nn.Dropout
) -> Tensor:
    """Attention of query (B, T, C) over key and value (B, S, C); returns (B, T, C).

    mask, if any, is bool, broadcast to (B, H, T, S), True where attention is forbidden.
    """
    q, k, v = (z.unflatten(2, (heads, -1)).transpose(1, 2) for z in (query, key, value))
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(2, 3)  # (B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    share = dropout(scores.softmax(dim=-1).to(v.dtype))
    return (share @ v).transpose(1, 2).flatten(2)


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
        query, key, value = self.in_proj(x).chunk(3, dim=-1)
        mask = None
        if self.causal or self.kernel_size is not None:
            mask = self._forbidden(x.shape[1], x.shape[1], x.device)
        if pad_mask is not None:
            pad = pad_mask[:, None, None, :]
            mask = pad if mask is None else mask | pad
            # A padding position may have nothing but padding in its window: it may see itself.
            mask = mask & ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        return self.out_proj(attend(query, key, value, self.heads, mask, self.dropout))

    def step(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        query, key, value = self.in_proj(x).chunk(3, dim=-1)
        if state is not None:
            key, value = torch.cat([state[0], key], 1), torch.cat([state[1], value], 1)
        mask = self._forbidden(x.shape[1], key.shape[1], x.device)
        y = self.out_proj(attend(query, key, value, self.heads, mask, self.dropout))
        keep = key.shape[1] if self.kernel_size is None else self.kernel_size - 1
        start = max(0, key.shape[1] - keep)
        return y, (key[:, start:], value[:, start:])


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
        """Keys and values (B, S, C) of the encoder's output; decoding computes them once."""
        return self.memory_proj(memory).chunk(2, dim=-1)

    def forward(
        self, x: Tensor, projected: tuple[Tensor, Tensor], pad_mask: Tensor | None = None
    ) -> Tensor:
        """x (N, T, C) over `projected` (B, S, C); N is B, or B x beam with a sentence's beams
        side by side: they then share its keys and values."""
        N, T, C = x.shape
        key, value = projected
        mask = None if pad_mask is None else pad_mask[:, None, None, :]
        query = self.query_proj(x).reshape(len(key), -1, C)  # (B, beam x T, C)
        y = attend(query, key, value, self.heads, mask, self.dropout)
        return self.out_proj(y.reshape(N, T, C))
