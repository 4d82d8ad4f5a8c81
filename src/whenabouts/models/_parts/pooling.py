"""From the words of a query to one vector for each stream."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Pooled(NamedTuple):
    """`vectors` (Q, M, D), one for each of M streams; `weights` (Q, L, M) of the words, 0 behind the end."""

    vectors: Tensor
    weights: Tensor


class ModularPooling(nn.Module):
    """Each stream has its own attention over the words of the query (XML, "modular" queries)."""

    def __init__(self, width: int, streams: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, streams, bias=False)

    def forward(self, words: Tensor, mask: Tensor) -> Pooled:
        """From the words (Q, L, D) of Q queries with their mask (Q, L)."""
        weights = self.linear(words).masked_fill(~mask[..., None], -1e10).softmax(1)
        return Pooled(torch.bmm(weights.transpose(1, 2), words), weights)


class MaxPooling(nn.Module):
    """The largest value of each dimension over the words, the same for every stream."""

    def __init__(self, streams: int) -> None:
        super().__init__()
        self.streams = streams

    def forward(self, words: Tensor, mask: Tensor) -> Pooled:
        """From the words (Q, L, D) of Q queries; the weights count how often a word is the largest."""
        values, places = words.masked_fill(~mask[..., None], -torch.inf).max(1)
        counts = torch.zeros_like(mask, dtype=words.dtype)
        counts.scatter_add_(1, places, torch.ones_like(values).detach())
        weights = counts / counts.sum(1, keepdim=True)
        return Pooled(
            values[:, None].expand(-1, self.streams, -1), weights[:, :, None].expand(-1, -1, self.streams)
        )


class MeanPooling(nn.Module):
    """The mean of the words, the same for every stream."""

    def __init__(self, streams: int) -> None:
        super().__init__()
        self.streams = streams

    def forward(self, words: Tensor, mask: Tensor) -> Pooled:
        """From the words (Q, L, D) of Q queries; every word counts the same."""
        weights = mask / mask.sum(1, keepdim=True).clamp(min=1)
        vectors = torch.einsum("ql,qld->qd", weights.to(words.dtype), words)
        return Pooled(
            vectors[:, None].expand(-1, self.streams, -1), weights[:, :, None].expand(-1, -1, self.streams)
        )
