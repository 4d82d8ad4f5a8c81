"""Attention within a sequence and from one sequence to another on the same grid.

What the papers of XML and ReLoCLNet call a transformer is one attention with its output layer and a residual
LayerNorm; there is no feed-forward part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from whenabouts.models._parts.dropout import Dropout, drop
from whenabouts.models._parts.packing import PackedBlock, Packing

RELEASED_PENALTY = -10000.0
"""What the released programs add to the scores of masked keys."""


class Attention(nn.Module):
    """Scaled dot-product attention with several heads and no output layer, on packed rows."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.heads = heads
        self.dropout = dropout

    def forward(
        self, rows: Tensor, others: Tensor, packing: Packing, *, product_mask: bool = False
    ) -> Tensor:
        """What each of `rows` (N, D) takes from the `others` (N, D) of its own sequence; (N, D).

        Both are packed the same way. With `product_mask` the penalty of the released programs is added
        where either side is padding, so that a padded row attends to everything, padding too; else the
        keys alone are masked.
        """
        projected = (self.query(rows), self.key(others), self.value(others))
        pieces = zip(packing.pieces, *map(packing.split, projected), strict=True)
        return torch.cat([self._mixed(piece, split, product_mask) for piece, *split in pieces])

    def _mixed(self, piece: Packing, projected: Sequence[Tensor], product_mask: bool) -> Tensor:
        """(n, D) of the packed queries, keys and values (n, D) of one piece of the batch."""
        queries, keys, values = (in_heads(piece.unpack(rows), self.heads) for rows in projected)
        seen = _product_penalty(piece.mask, queries) if product_mask else piece.mask[:, None, None]
        return piece.pack(self.mix(queries, keys, values, seen).transpose(1, 2).flatten(2))

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
        """(B, heads, T, d): softmax(queries keys^T / sqrt(d)) values, all of them (B, heads, T, d).

        `seen` (B, 1, 1 or T, T) is true where a key is seen, or is added to the scores.
        """
        return attend(queries, keys, values, seen, self.dropout if self.training else 0.0)


def attend(queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor, dropout: float) -> Tensor:
    """(B, heads, T, d): scaled dot-product attention, quicker than PyTorch's with dropout on a CPU.

    Queries are (B, heads, T, d), keys and values (B, heads, K, d). `seen` (B, 1, 1 or T, K) is true where a
    key is seen, or is added to the scores. Where no key is seen the result means nothing, but is a number.

    With dropout PyTorch has no fused kernel for a CPU; written out, with `drop`, it takes 2/3 of the time.
    """
    if not dropout or queries.device.type != "cpu":
        return scaled_dot_product_attention(queries, keys, values, seen, dropout)
    if seen.dtype == torch.bool:
        # Half of the lowest number: added to a score it is no infinity, of which softmax would make NaN.
        unseen = torch.finfo(queries.dtype).min / 2
        seen = torch.zeros_like(seen, dtype=queries.dtype).masked_fill_(~seen, unseen)
    penalty = seen.expand(*queries.shape[:2], -1, -1).flatten(0, 1)
    scale = 1 / math.sqrt(queries.shape[-1])
    # One product scales the scores and adds the penalty.
    scores = torch.baddbmm(penalty, queries.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2), alpha=scale)
    mixed = torch.bmm(drop(scores.softmax(-1), dropout), values.flatten(0, 1))
    return mixed.view(*queries.shape[:2], *mixed.shape[1:])


def in_heads(padded: Tensor, heads: int) -> Tensor:
    """(B, T, D) to (B, heads, T, D / heads)."""
    return padded.view(*padded.shape[:2], heads, -1).transpose(1, 2)


class AttentionBlock(PackedBlock):
    """Self-attention, output layer, dropout, residual LayerNorm."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.output = nn.Linear(width, width)
        self.dropout = Dropout(dropout, inplace=True)
        self.norm = nn.LayerNorm(width)

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, D) to (N, D), for packed rows."""
        mixed = self.dropout(self.output(self.attention(rows, rows, packing)))
        normed: Tensor = self.norm(mixed + rows)
        return normed


class CrossAttentionBlock(nn.Module):
    """Attention to another stream of the same video, residual LayerNorm; no output layer."""

    def __init__(self, width: int, heads: int, dropout: float, *, as_released: bool = False) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.norm = nn.LayerNorm(width)
        self.as_released = as_released

    def forward(self, rows: Tensor, others: Tensor, packing: Packing) -> Tensor:
        """(N, D) packed clips of one stream, informed by those of the other, packed the same way."""
        mixed = self.attention(rows, others, packing, product_mask=self.as_released)
        normed: Tensor = self.norm(mixed + rows)
        return normed


def _product_penalty(mask: Tensor, like: Tensor) -> Tensor:
    """(B, 1, T, T): the penalty where either of the two positions is padding."""
    both = mask[:, None, :, None] & mask[:, None, None, :]
    return (~both).to(like.dtype) * RELEASED_PENALTY
