"""Weigh streams for a query, from its words pooled by clusters (NetVLAD), as CONQUER and SQuiDNet do."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whenabouts_systems.models.parts.layers import Dropout, unit


class WordClusters(nn.Module):
    """Pools words to their differences from K centres (NetVLAD, Arandjelovic et al., CVPR 2016).

    A word is assigned to centres by the softmax of a LayerNorm of its K products with `assignment`. For each
    centre the weighted differences of all words are added up and normalised, then all centres together.
    """

    def __init__(self, width: int, clusters: int) -> None:
        super().__init__()
        self.assignment = nn.Parameter(torch.randn(width, clusters) / width**0.5)
        self.centres = nn.Parameter(torch.randn(1, width, clusters) / width**0.5)
        self.norm = nn.LayerNorm(clusters)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """(Q, D * K), the K values of each dimension side by side, from words (Q, L, D), `mask` (Q, L)."""
        shares = self.norm(words @ self.assignment).softmax(-1) * mask[..., None]
        gathered = torch.einsum("qld,qlk->qkd", words, shares)
        away = gathered - shares.sum(1)[..., None] * self.centres.transpose(1, 2)
        return unit(unit(away).transpose(1, 2).flatten(1))


class StreamWeights(nn.Module):
    """The weight of each stream for a query; the weights sum to 1."""

    def __init__(self, width: int, clusters: int, streams: int, dropout: float) -> None:
        super().__init__()
        self.clusters = WordClusters(width, clusters)
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(width * clusters, streams, bias=False)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """(Q, S) from words (Q, L, D) with `mask` (Q, L)."""
        weights: Tensor = self.linear(self.dropout(self.clusters(words, mask))).float()
        return weights.softmax(-1)


def weighed(clips: Tensor, weights: Tensor | None) -> Tensor:
    """(P, T, D): the sum of clips (S, P, T, D) weighted by (P, S); without weights their mean."""
    return clips.mean(0) if weights is None else (clips * weights.T[:, :, None, None]).sum(0)
