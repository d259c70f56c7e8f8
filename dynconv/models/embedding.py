"""Token embeddings and position embeddings."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def token_embedding(vocab_size: int, channels: int) -> nn.Embedding:
    """Return embeddings drawn from N(0, 1 / C), which `embed_tokens` scales by sqrt(C)."""
    table = nn.Embedding(vocab_size, channels)
    nn.init.normal_(table.weight, std=channels**-0.5)
    return table


def sinusoids(positions: Tensor, channels: int) -> Tensor:
    """Return sinusoidal position embeddings (T, C) of positions (T,): sines, then cosines.

    The wavelengths of the C // 2 sines grow geometrically from 2 pi to 10,000 x 2 pi.
    """
    half = channels // 2
    rate = torch.exp(
        torch.arange(half, device=positions.device) * (-math.log(10_000) / max(half - 1, 1))
    )
    angle = positions[:, None] * rate
    return F.pad(torch.cat([angle.sin(), angle.cos()], dim=1), (0, channels % 2))


def embed_tokens(table: nn.Module, tokens: Tensor, start: int = 0) -> Tensor:
    """Return sqrt(C) times each token's embedding plus its position's: (B, T) to (B, T, C)."""
    x = table(tokens)
    C = x.shape[2]
    positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
    return x * C**0.5 + sinusoids(positions, C).to(x.dtype)
