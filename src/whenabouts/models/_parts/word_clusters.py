"""From the words of a query to one vector by way of clusters (NetVLAD, Arandjelovic et al., CVPR 2016)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whenabouts.models._parts.projection import unit


class WordClusters(nn.Module):
    """How far words lie from K learned centres, each word shared out over the centres.

    A word's shares are the softmax of a LayerNorm of its K products with `assignment`. For each centre the
    shared distances of all words are added up and brought to length 1, then the whole is.
    """

    def __init__(self, width: int, clusters: int) -> None:
        super().__init__()
        self.assignment = nn.Parameter(torch.randn(width, clusters) / width**0.5)
        self.centres = nn.Parameter(torch.randn(1, width, clusters) / width**0.5)
        self.norm = nn.LayerNorm(clusters)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """(Q, D * K), each dimension's K values side by side, from words (Q, L, D) with `mask` (Q, L)."""
        shares = self.norm(words @ self.assignment).softmax(-1) * mask[..., None]
        gathered = torch.einsum("qld,qlk->qkd", words, shares)
        away = gathered - shares.sum(1)[..., None] * self.centres.transpose(1, 2)
        return unit(unit(away).transpose(1, 2).flatten(1))
