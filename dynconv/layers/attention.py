"""Multi-head attention, softmax(Q K^T / sqrt(d_k)) V (Vaswani et al. 2017, section 3.2).

These are equations (3.2) to (3.4) of the book, computed by PyTorch's fused kernels.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynconv.dtypes import upcast, without_autocast
from dynconv.layers.projection import xavier_linear
from dynconv.layers.state import check_steppable
from dynconv.ops.shapes import split_heads
from dynconv.value_checks import check_heads, check_odd, check_probability


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Attend from query (B, H, T, d_k) to key and value (B, H, S, d_k); return (B, T, C).

    allowed  bool, broadcasts to (B, H, T, S), True where a query may attend to a key; a query that
             may attend to no key returns zeros
    causal   lets position t attend to positions up to t; only without `allowed`
    dropout  probability with which an attention weight is dropped
    """
    dtype = value.dtype
    with without_autocast(query):
        if query.device.type == "cpu":
            # In bfloat16 the backward pass is up to eight times slower than in float32.
            query, key, value = upcast(query), upcast(key), upcast(value)
        y = F.scaled_dot_product_attention(
            query, key, value, attn_mask=allowed, is_causal=causal, dropout_p=dropout
        )
    return y.to(dtype).transpose(1, 2).flatten(2)


def project_parts(layer: nn.Linear, x: Tensor, parts: int) -> tuple[Tensor, ...]:
    """Project x (B, T, C) to keys and values, or to queries, keys and values: each (B, T, C).

    The bias of the keys adds the same value to all scores of a query, so it cancels in the softmax.
    Its gradient would be pure rounding error, which Adam would scale up to full steps, so it gets
    no gradient.
    """
    biases = list(layer.bias.chunk(parts))
    biases[-2] = biases[-2].detach()
    return F.linear(x, layer.weight, torch.cat(biases)).chunk(parts, dim=-1)


class KVCache(NamedTuple):
    """The keys and values of S positions, in one of two layouts.

    `SelfAttention.step` keeps earlier positions as (N, S, C), because each step appends to them.
    `CrossAttention.project` splits the source's positions into heads once: (B, H, S, d_k).
    """

    keys: Tensor
    values: Tensor


class SelfAttention(nn.Module):
    """Attends to the whole sentence, or to a window of `window` positions, an odd number.

    The window is centred on the position, or ends there in a causal layer. Decoding keeps the keys
    and values of the window, or of all positions so far.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        window: int | None = None,
        *,
        causal: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_heads(heads, channels)
        if window is not None:
            check_odd("window", window)
        self.heads, self.window, self.causal = heads, window, causal
        self.in_proj = xavier_linear(channels, 3 * channels)
        self.out_proj = xavier_linear(channels, channels)
        check_probability("dropout", dropout)
        self.dropout = dropout

    def _allowed(self, T: int, S: int, device: torch.device) -> Tensor:
        """Return a mask (T, S), True where the last T of S positions may attend."""
        ahead = torch.arange(S, device=device) - torch.arange(S - T, S, device=device)[:, None]
        K = self.window or 2 * S + 1
        if self.causal:
            return (ahead <= 0) & (ahead > -K)
        return ahead.abs() <= K // 2

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        projected = project_parts(self.in_proj, x, 3)
        if pad_mask is None and self.window is None:
            return self._attend(projected, causal=self.causal)
        allowed = self._allowed(x.shape[1], x.shape[1], x.device)
        if pad_mask is not None:
            # The window of a padding position may contain only padding, so it also sees itself.
            itself = torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
            allowed = allowed & ~pad_mask[:, None, None, :] | itself
        return self._attend(projected, allowed)

    def _attend(
        self, projected: tuple[Tensor, ...], allowed: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Attend from queries (B, T, C) to keys and values (B, S, C); `projected` is all three."""
        query, key, value = (split_heads(x, self.heads) for x in projected)
        dropout = self.dropout if self.training else 0.0
        return self.out_proj(attend(query, key, value, allowed, causal=causal, dropout=dropout))

    def step(self, x: Tensor, state: KVCache | None = None) -> tuple[Tensor, KVCache]:
        """Return the outputs (N, n, C) at n new positions, and the next state; see `layers`."""
        check_steppable(self, self.causal, x)
        query, key, value = project_parts(self.in_proj, x, 3)
        if state is not None:
            key, value = torch.cat([state.keys, key], 1), torch.cat([state.values, value], 1)
        # A single new position may attend to itself and to all positions in the state.
        allowed = None if x.shape[1] == 1 else self._allowed(x.shape[1], key.shape[1], x.device)
        y = self._attend((query, key, value), allowed)
        keep = key.shape[1] if self.window is None else self.window - 1
        start = max(0, key.shape[1] - keep)
        return y, KVCache(key[:, start:], value[:, start:])


class CrossAttention(nn.Module):
    """Lets the decoder's positions attend to the encoder's output."""

    def __init__(self, channels: int, heads: int, *, dropout: float = 0.0):
        super().__init__()
        check_heads(heads, channels)
        self.heads = heads
        self.query_proj = xavier_linear(channels, channels)
        self.memory_proj = xavier_linear(channels, 2 * channels)
        self.out_proj = xavier_linear(channels, channels)
        check_probability("dropout", dropout)
        self.dropout = dropout

    def project(self, memory: Tensor) -> KVCache:
        """Return the keys and values (B, H, S, d_k) of the encoder's output.

        They are contiguous because otherwise each decoding step would copy them.
        """
        key, value = project_parts(self.memory_proj, memory, 2)
        return KVCache(*(split_heads(part, self.heads).contiguous() for part in (key, value)))

    def forward(self, x: Tensor, projected: KVCache, pad_mask: Tensor | None = None) -> Tensor:
        """Attend from x (N, T, C) to `projected` keys and values (B, H, S, d_k); return (N, T, C).

        N is B, or B x beam, where the hypotheses of a sentence are consecutive rows and share its
        keys and values.
        """
        N, T, C = x.shape
        key, value = projected
        allowed = None if pad_mask is None else ~pad_mask[:, None, None, :]
        query = self.query_proj(x).reshape(len(key), -1, C)  # (B, beam x T, C)
        dropout = self.dropout if self.training else 0.0
        y = attend(split_heads(query, self.heads), key, value, allowed, dropout=dropout)
        return self.out_proj(y.reshape(N, T, C))
