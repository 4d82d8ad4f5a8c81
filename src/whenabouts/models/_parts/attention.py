"""Attention within a sequence and from one sequence to another on the same grid.

What the papers of XML and ReLoCLNet call a transformer is one attention with its output layer and a residual
LayerNorm; there is no feed-forward part.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts.models._parts.dropout import Dropout, dropped
from whenabouts.models._parts.packing import Packing

RELEASED_PENALTY = -10000.0
"""What the released programs add to the scores of masked keys."""


class Attention(nn.Module):
    """Scaled dot-product attention with several heads and no output layer."""

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
        """What each of `rows` (N, D) finds among `others` (N, D) of its own sequence; (N, D).

        Both are packed the same way. With `product_mask` the penalty of the released programs is added
        where either side is padding, so that a padded row attends to everything, padding too; else the
        keys alone are masked.
        """
        queries, keys, values = (
            packing.split(one) for one in (self.query(rows), self.key(others), self.value(others))
        )
        mixed = [
            self._mixed(piece, (queries[number], keys[number], values[number]), product_mask)
            for number, piece in enumerate(packing.pieces)
        ]
        return torch.cat(mixed)

    def _mixed(self, piece: Packing, rows: tuple[Tensor, Tensor, Tensor], product_mask: bool) -> Tensor:
        """(N, D) for the packed queries, keys and values of one piece of the batch."""
        queries, keys, values = (self._in_heads(piece.unpack(one)) for one in rows)
        mask = _product_penalty(piece.mask, queries) if product_mask else piece.mask[:, None, None]
        mixed = attend(queries, keys, values, mask, self.dropout if self.training else 0.0)
        return piece.pack(mixed.transpose(1, 2).flatten(2))

    def _in_heads(self, padded: Tensor) -> Tensor:
        """(B, T, D) to (B, heads, T, D / heads)."""
        return padded.view(*padded.shape[:2], self.heads, -1).transpose(1, 2)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dropout: float) -> Tensor:
    """(B, heads, T, d): softmax(queries keys^T / sqrt(d)) values, of queries (B, heads, T, d).

    Keys and values are (B, heads, K, d). `mask` (B, 1, 1 or T, K) is true where a key is seen, or is added to
    the scores. Where no key is seen the result means nothing, but is a number.

    PyTorch's own, but for training on a CPU: with dropout it has no fused kernel there, and draws a random
    number for every weight (see `dropout`). Written out, an attention with its linear layers is 4 to 9 %
    quicker.
    """
    if not dropout or queries.device.type != "cpu":
        return functional.scaled_dot_product_attention(queries, keys, values, mask, dropout)
    if mask.dtype == torch.bool:
        unseen = torch.finfo(queries.dtype).min / 2
        mask = torch.zeros_like(mask, dtype=queries.dtype).masked_fill_(~mask, unseen)
    rows, seen = queries.shape[2], keys.shape[2]
    penalty = mask.expand(*queries.shape[:2], -1, -1).reshape(-1, mask.shape[2], seen)
    scale = 1 / math.sqrt(queries.shape[-1])
    scores = torch.baddbmm(penalty, queries.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2), alpha=scale)
    weights = dropped(scores.softmax(-1), dropout)
    return torch.bmm(weights, values.flatten(0, 1)).view(*queries.shape[:2], rows, -1)


class AttentionBlock(nn.Module):
    """Self-attention, output layer, dropout, residual LayerNorm."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.output = nn.Linear(width, width)
        self.dropout = Dropout(dropout, inplace=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, D) to (N, D), for a packed batch."""
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
        """(N, D) rows of one stream, informed by those of the other; both packed the same way."""
        found = self.attention(rows, others, packing, product_mask=self.as_released)
        normed: Tensor = self.norm(found + rows)
        return normed


def _product_penalty(mask: Tensor, like: Tensor) -> Tensor:
    """(B, 1, T, T): the penalty where either of the two positions is padding."""
    both = mask[:, None, :, None] & mask[:, None, None, :]
    return (~both).to(like.dtype) * RELEASED_PENALTY
