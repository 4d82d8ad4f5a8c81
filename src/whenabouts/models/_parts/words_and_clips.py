"""Clips of a video that look at each other and at the words of a query, layer by layer (PREM, section 3.4).

Shapes: P pairs of a video's T clips and a query's L words, N packed clips of all pairs (see `packing`), D
width, F layers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts.models._parts.attention import Attention, attend
from whenabouts.models._parts.dropout import Dropout
from whenabouts.models._parts.packing import Packing


class WordAttention(nn.Module):
    """Scaled dot-product attention of clips to the words of their own pair, with several heads."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.heard = nn.Linear(width, 2 * width)
        """Keys and values of the words; they depend on no video."""
        self.heads = heads
        self.dropout = dropout

    def forward(self, rows: Tensor, packing: Packing, heard: Tensor, mask: Tensor) -> Tensor:
        """(N, D): what each of the clips (N, D) finds among its words, `heard` (P, L, 2 D), `mask` (P, L)."""
        keys, values = heard.chunk(2, dim=-1)
        mixed = attend(
            self._in_heads(packing.unpack(self.query(rows))),
            self._in_heads(keys),
            self._in_heads(values),
            mask[:, None, None],
            self.dropout if self.training else 0.0,
        )
        return packing.pack(mixed.transpose(1, 2).flatten(2))

    def _in_heads(self, padded: Tensor) -> Tensor:
        """(P, T, D) to (P, heads, T, D / heads)."""
        return padded.view(*padded.shape[:2], self.heads, -1).transpose(1, 2)


class FusionLayer(nn.Module):
    """Attention among clips, attention to words, two linear layers with ReLU; a LayerNorm after each.

    The decoder's layer of "Attention Is All You Need", with the clips as what is decoded.
    """

    def __init__(self, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.words = WordAttention(width, heads, dropout)
        self.words_output = nn.Linear(width, width)
        self.words_norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, feedforward)
        self.narrow = nn.Linear(feedforward, width)
        self.feedforward_norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, rows: Tensor, packing: Packing, heard: Tensor, mask: Tensor) -> Tensor:
        """(N, D) to (N, D)."""
        seen = self.dropout(self.output(self.attention(rows, rows, packing)))
        rows = self.attention_norm(rows + seen)
        found = self.dropout(self.words_output(self.words(rows, packing, heard, mask)))
        rows = self.words_norm(rows + found)
        widened = self.narrow(self.dropout(self.wide(rows).relu()))
        normed: Tensor = self.feedforward_norm(rows + self.dropout(widened))
        return normed


class WordsAndClips(nn.Module):
    """Several such layers, one after the other."""

    def __init__(self, layers: int, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(FusionLayer(width, heads, feedforward, dropout) for _ in range(layers))

    def heard(self, words: Tensor) -> Tensor:
        """(Q, L, F, 2 D): what each layer hears of the words (Q, L, D); once a query, for all its videos."""
        # The layers' linear maps in one product.
        maps = [layer.words.heard for layer in self.layers if isinstance(layer, FusionLayer)]
        weight, bias = torch.cat([one.weight for one in maps]), torch.cat([one.bias for one in maps])
        return functional.linear(words, weight, bias).view(*words.shape[:2], len(maps), -1)

    def forward(self, rows: Tensor, packing: Packing, heard: Tensor, mask: Tensor) -> Tensor:
        """(N, D) to (N, D), from clips, what is `heard` (P, L, F, 2 D) of words, and their mask (P, L)."""
        for layer, words in zip(self.layers, heard.unbind(2), strict=True):
            rows = layer(rows, packing, words, mask)
        return rows
