"""Attention that keeps to the neighbourhood: GMMFormer's Gaussian blocks (Wang et al., AAAI 2024).

Scores are multiplied, before the softmax, by a Gaussian of the distance between two places of a sequence.
Several widths at once, averaged, see moments of several lengths without a list of proposals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts.models._parts.attention import Attention, AttentionBlock
from whenabouts.models._parts.packing import Packing

_PER_WIDTH = 1 / 9
"""The standard deviation of a window of width 1, as a share of the sequence."""


def windows(lengths: Tensor, steps: int, width: float, *, as_released: bool = False) -> Tensor:
    """(B, T, T): how much row t of a sequence of `lengths` (B,) rows heeds row k; 1 at most in each row.

    exp(-d^2 / (2 (width / 9)^2)), where d is the distance as a share of the sequence: 1 from its first row to
    its last. `as_released`: row t stands at t / length but k at k / (length - 1), so that the middle lies
    before t. What lies behind the end of a sequence means nothing.
    """
    place = torch.arange(steps, device=lengths.device)
    last = (lengths - 1).clamp(min=1)[:, None, None]
    middle = place[:, None] / (lengths[:, None, None] if as_released else last)
    there = place < lengths[:, None, None]
    exponent = ((place / last - middle) / (width * _PER_WIDTH)) ** 2 / -2
    highest = exponent.masked_fill(~there, -torch.inf).amax(-1, keepdim=True)
    return (exponent - highest).clamp(max=0).exp()


class GaussianAttention(Attention):
    """Attention whose scores a window of `width` multiplies; as it is where that is None.

    `as_released` the window's sequence is the padded batch, which is to be packed with `everything`.
    """

    def __init__(
        self, width: int, heads: int, dropout: float, window: float, *, as_released: bool = False
    ) -> None:
        super().__init__(width, heads, dropout)
        self.window, self.as_released = window, as_released

    def _mixed(self, piece: Packing, rows: tuple[Tensor, Tensor, Tensor], product_mask: bool) -> Tensor:
        queries, keys, values = (self._in_heads(piece.unpack(one)) for one in rows)
        lengths = piece.mask.sum(1)
        seen = torch.full_like(lengths, piece.steps) if self.as_released else lengths
        near = windows(seen, piece.steps, self.window, as_released=self.as_released)
        scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[-1]) * near[:, None]
        weights = scores.masked_fill(~piece.mask[:, None, None], -torch.inf).softmax(-1)
        weights = functional.dropout(weights, self.dropout, self.training)
        return piece.pack((weights.to(values.dtype) @ values).transpose(1, 2).flatten(2))


class GaussianBlock(nn.Module):
    """The mean of several attention blocks: one as it is, and one for each width of `widths`."""

    def __init__(
        self, width: int, heads: int, dropout: float, widths: Sequence[float], *, as_released: bool = False
    ) -> None:
        super().__init__()
        blocks = [AttentionBlock(width, heads, dropout) for _ in range(1 + len(widths))]
        for block, window in zip(blocks[1:], widths, strict=True):
            block.attention = GaussianAttention(width, heads, dropout, window, as_released=as_released)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, D) to (N, D), for a packed batch."""
        return torch.stack([block(rows, packing) for block in self.blocks]).mean(0)


class GaussianEncoder(nn.Module):
    """Gaussian blocks one after the other."""

    def __init__(self, blocks: Sequence[GaussianBlock]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, D) to (N, D), for a packed batch."""
        for block in self.blocks:
            rows = block(rows, packing)
        return rows
