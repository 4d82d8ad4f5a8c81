"""Transformer encoder of "Attention Is All You Need": attention and feed-forward part, each with a residual.

Shapes: N packed rows of a batch (see `packing`), D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

from whenabouts_systems.models.parts.layers import Attention, Dropout
from whenabouts_systems.models.parts.packing import PackedBlock, Packing

Norm = Literal["before", "after"]
"""Whether LayerNorm is before each part of a layer (and once after the last layer), or after each part."""


class TransformerLayer(nn.Module):
    """Self-attention and a feed-forward part of two linear layers with ReLU between them."""

    def __init__(self, width: int, heads: int, feedforward: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, feedforward)
        self.narrow = nn.Linear(feedforward, width)
        self.feedforward_norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)
        self.norm = norm

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        """The encoded rows (N, D), from rows (N, D)."""
        if self.norm == "before":
            rows = rows + self._attended(self.attention_norm(rows), packing)
            return rows + self._widened(self.feedforward_norm(rows))
        rows = self.attention_norm(rows + self._attended(rows, packing))
        encoded: Tensor = self.feedforward_norm(rows + self._widened(rows))
        return encoded

    def _attended(self, rows: Tensor, packing: Packing) -> Tensor:
        mixed: Tensor = self.dropout(self.output(self.attention(rows, rows, packing)))
        return mixed

    def _widened(self, rows: Tensor) -> Tensor:
        hidden = self.dropout(self.wide(rows).relu())
        narrowed: Tensor = self.dropout(self.narrow(hidden))
        return narrowed


class TransformerEncoder(PackedBlock):
    """Several layers, one after the other."""

    def __init__(
        self, layers: int, width: int, heads: int, feedforward: int, dropout: float, norm: Norm
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            TransformerLayer(width, heads, feedforward, dropout, norm) for _ in range(layers)
        )
        self.last_norm = nn.LayerNorm(width) if norm == "before" else None

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """The encoded rows (N, D); each row attends to the rows of its own sequence."""
        for layer in self.layers:
            rows = layer(rows, packing)
        return rows if self.last_norm is None else self.last_norm(rows)


def perceptron(width: int, out: int, inner: Sequence[int] | None = None) -> nn.Sequential:
    """Linear layers with ReLU between them, from `width` to `out` values; `inner` None: (width, width)."""
    widths = (width, *((width, width) if inner is None else inner), out)
    steps = [step for sizes in pairwise(widths) for step in (nn.Linear(*sizes), nn.ReLU())]
    return nn.Sequential(*steps[:-1])
