"""Embeddings and log-softmax for large vocabularies, with fewer dimensions for rare types.

The vocabulary is split into bands by falling frequency. Band i contains the types w with
edges[i] <= w < edges[i + 1], and has embeddings E_i (V_i, w_i) and a projection P_i (C, w_i). Input
and output may share both (Baevski and Auli 2019, section 3).
"""

from functools import reduce
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynconv.dtypes import upcast
from dynconv.value_checks import check_probability


class AdaptiveEmbedding(nn.Module):
    """Embeds a type w of band i as P_i E_i[w - edges[i]] (Baevski and Auli 2019, section 3).

    edges   0, the first type of each further band, and V
    widths  w_i of each band

    E_i is drawn from N(0, 1 / w_i), P_i is Xavier-uniform. The result is not scaled: the model
    multiplies it by sqrt(C), as it does with other embeddings.
    """

    def __init__(self, channels: int, edges: tuple[int, ...], widths: tuple[int, ...]):
        super().__init__()
        self.edges = edges
        self.words = band_words(edges, widths)
        self.projections = band_projections(channels, widths)

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed tokens (...) int64 as (..., C), in the parameters' dtype even under autocast.

        A token outside [0, V) is an error, as in `nn.Embedding`.
        """
        parts = []
        known = inside(tokens, 0, self.edges[-1])
        bands = zip(pairwise(self.edges), self.words, self.projections, strict=True)
        for (start, end), E, P in bands:
            # Every band embeds all tokens and zeroes the ones from other bands, because then no
            # shape depends on the data.
            member = inside(tokens, start, end)
            x_band = F.embedding((tokens - start).masked_fill(known & ~member, 0), E)
            parts.append(F.linear(x_band * member.unsqueeze(-1), P))
        return reduce(torch.add, parts).to(self.words[0].dtype)


class AdaptiveLogSoftmax(nn.Module):
    """Computes log p(w | h) = log p(band of w | h) + log p(w | band of w, h) (Grave et al. 2017).

    The first softmax, the head, chooses among the types of the first band and one class for each
    further band (section 3.3); its logits are [E_0; classes] h. Band i has its own softmax, of
    E_i P_i^T h.

    tied     an embedding whose E_i and P_i are shared; the softmax has no P_0, so the first band
             must be C wide
    dropout  applied to P_i^T h
    """

    def __init__(
        self,
        channels: int,
        edges: tuple[int, ...],
        widths: tuple[int, ...],
        *,
        dropout: float = 0.0,
        tied: AdaptiveEmbedding | None = None,
    ):
        super().__init__()
        if widths[0] != channels:
            raise ValueError(f"the first band has width {widths[0]}: it must be {channels} wide")
        check_probability("dropout", dropout)
        self.edges = edges
        self.words = tied.words if tied else band_words(edges, widths)
        self.projections = tied.projections[1:] if tied else band_projections(channels, widths[1:])
        self.classes = nn.Parameter(torch.empty(len(widths) - 1, channels))
        nn.init.xavier_uniform_(self.classes)
        self.dropout = nn.Dropout(dropout)

    def _head(self, hidden: Tensor) -> Tensor:
        return upcast(F.linear(hidden, torch.cat([self.words[0], self.classes])))

    def _tail(self, i: int, hidden: Tensor) -> Tensor:
        projected = F.linear(hidden, self.projections[i].t())
        return upcast(F.linear(self.dropout(projected), self.words[i + 1]))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return log-probabilities (..., V) for hidden (..., C), in float32 or wider."""
        head = self._head(hidden).log_softmax(-1)
        words, classes = head.split([self.edges[1], len(self.classes)], dim=-1)
        tails = [
            classes[..., i, None] + self._tail(i, hidden).log_softmax(-1)
            for i in range(len(self.classes))
        ]
        return torch.cat([words, *tails], dim=-1)

    def nll(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Return -log p (N,) of target (N,) int64 given hidden (N, C), in float32 or wider.

        The softmax of a band is computed only for the targets in that band. A band without targets
        gets gradients of zero rather than None.
        """
        tails = list(pairwise(self.edges[1:]))
        rows = [inside(target, start, end).nonzero().squeeze(1) for start, end in tails]
        first = target.clone()  # the head's target
        for i, members in enumerate(rows):
            first[members] = self.edges[1] + i
        nll = F.cross_entropy(self._head(hidden), first, reduction="none")
        for i, (members, (start, _)) in enumerate(zip(rows, tails, strict=True)):
            logits = self._tail(i, hidden[members])
            second = F.cross_entropy(logits, target[members] - start, reduction="none")
            nll = nll.index_add(0, members, second)
        return nll

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Return the sum of -log p of target (N,)."""
        return self.nll(hidden, target).sum()


def band_words(edges: tuple[int, ...], widths: tuple[int, ...]) -> nn.ParameterList:
    """Return the embeddings E_i (V_i, w_i) of all bands."""
    if len(widths) != len(edges) - 1:
        raise ValueError(f"{len(widths)} widths for {len(edges) - 1} bands: give one for each")
    return nn.ParameterList(
        nn.Parameter(nn.init.normal_(torch.empty(end - start, width), std=width**-0.5))
        for (start, end), width in zip(pairwise(edges), widths, strict=True)
    )


def band_projections(channels: int, widths: tuple[int, ...]) -> nn.ParameterList:
    """Return the projections P_i (C, w_i) of all bands."""
    return nn.ParameterList(
        nn.Parameter(nn.init.xavier_uniform_(torch.empty(channels, width))) for width in widths
    )


def inside(tokens: Tensor, start: int, end: int) -> Tensor:
    """Return True where a token is in the band start <= token < end."""
    return (tokens >= start) & (tokens < end)
