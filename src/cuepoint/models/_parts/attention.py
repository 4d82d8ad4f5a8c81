"""Attention within a sequence and from one sequence to another on the same grid.

What the papers of XML and ReLoCLNet call a transformer is one attention with its output layer and a residual
LayerNorm; there is no feed-forward part.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from cuepoint.models._parts.packing import Packing

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
        if rows is others:
            queries, keys, values = self._from_one(rows, packing)
        else:
            queries, keys, values = (
                self._in_heads(packing.unpack(one))
                for one in (self.query(rows), self.key(others), self.value(others))
            )
        mixed = functional.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=_product_penalty(packing.mask, queries)
            if product_mask
            else packing.mask[:, None, None],
            dropout_p=self.dropout if self.training else 0.0,
        )
        return packing.pack(mixed.transpose(1, 2).flatten(2))

    def _from_one(self, rows: Tensor, packing: Packing) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the same rows, by one product."""
        layers = (self.query, self.key, self.value)
        joint = functional.linear(
            rows, torch.cat([one.weight for one in layers]), torch.cat([one.bias for one in layers])
        )
        queries, keys, values = packing.unpack(joint).chunk(3, dim=-1)
        return self._in_heads(queries), self._in_heads(keys), self._in_heads(values)

    def _in_heads(self, padded: Tensor) -> Tensor:
        """(B, T, D) to (B, heads, T, D / heads)."""
        return padded.view(*padded.shape[:2], self.heads, -1).transpose(1, 2)


class AttentionBlock(nn.Module):
    """Self-attention, output layer, dropout, residual LayerNorm."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.output = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
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
