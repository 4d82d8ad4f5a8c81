"""Layers of BERT on packed rows: attention, a feed-forward part with GELU, a LayerNorm after each.

Shapes: N packed rows of a batch (see `packing`), D width.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.layers import AttentionBlock, Dropout, InputProjection, check_length
from whenabouts_systems.models.parts.packing import PackedBlock, PackedModule, Packing


class BertLayer(nn.Module):
    """Self-attention, then two linear layers with GELU (the exact one) between them; each with a residual.

    `epsilon` is that of the LayerNorms.
    """

    def __init__(
        self, width: int, heads: int, feedforward: int, dropout: float, epsilon: float = 1e-5
    ) -> None:
        super().__init__()
        self.attention = AttentionBlock(width, heads, dropout, epsilon)
        self.wide = nn.Linear(width, feedforward)
        self.narrow = nn.Linear(feedforward, width)
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(width, epsilon)

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, D) to (N, D)."""
        rows = self.attention(rows, packing)
        update = self.narrow(functional.gelu(self.wide(rows)))
        return cast("Tensor", self.norm(rows + self.dropout(update)))


class BertEncoder(PackedBlock):
    """Several layers, one after the other."""

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        feedforward: int,
        dropout: float,
        epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            BertLayer(width, heads, feedforward, dropout, epsilon) for _ in range(layers)
        )

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, D) to (N, D): rows attend to rows of their own sequence."""
        for layer in self.layers:
            rows = layer(rows, packing)
        return rows


class ProjectedEncoder(PackedBlock):
    """LayerNorm, linear layer and ReLU from `features` values to D, then layers of BERT."""

    def __init__(self, features: int, width: int, dropout: float, encoder: BertEncoder) -> None:
        super().__init__()
        self.projection = InputProjection(features, width, dropout)
        self.encoder = encoder

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, features) to (N, D), for packed rows."""
        return cast("Tensor", self.encoder(self.projection(rows, packing), packing))


class TypedPositions(PackedModule):
    """Adds a learned vector for the position and one for the type (of two) to each row; LayerNorm, dropout.

    `noun` names the elements of a sequence in the error for one with more than `places` positions.
    """

    def __init__(self, places: int, width: int, dropout: float, noun: str) -> None:
        super().__init__()
        self.places = nn.Embedding(places, width)
        self.types = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)
        self.noun = noun

    def forward(self, padded: Tensor, mask: Tensor, first_type: int = 0, each: int = 1) -> Tensor:
        """(B, T, D) to (B, T, D); UsageError where a sequence is too long.

        `each` consecutive rows share a position; the k-th of them, from 0, has type `first_type` + k.
        """
        packing = self.packing(mask)
        check_length(packing.steps // each, self.places.num_embeddings, self.noun)
        numbers = packing.positions()
        place = torch.div(numbers, each, rounding_mode="floor")
        kind = first_type + numbers % each
        placed = self.norm(packing.pack(padded) + self.places(place) + self.types(kind))
        return packing.unpack(self.dropout(placed))
