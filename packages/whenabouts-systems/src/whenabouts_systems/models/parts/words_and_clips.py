"""Encode clips of a video by attention to each other and to the words of a query (PREM, section 3.4).

Shapes: P pairs of a video's T clips and a query's L words, N packed clips of all pairs (see `packing`), D
width, F layers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.layers import Attention, Dropout, attend, in_heads
from whenabouts_systems.models.parts.packing import PackedModule, Packing


class WordAttention(nn.Module):
    """Scaled dot-product attention of clips to the words of their own pair, with several heads."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.heard = nn.Linear(width, 2 * width)
        """Keys and values of the words; they depend on no video. The name is that in files of weights."""
        self.heads = heads
        self.dropout = dropout

    def forward(self, rows: Tensor, packing: Packing, keys_and_values: Tensor, mask: Tensor) -> Tensor:
        """(N, D): the attended words of each clip (N, D), from (P, L, 2 D) keys and values, `mask` (P, L)."""
        padded = (packing.unpack(self.query(rows)), *keys_and_values.chunk(2, dim=-1))
        queries, keys, values = (in_heads(projected, self.heads) for projected in padded)
        dropout = self.dropout if self.training else 0.0
        mixed = attend(queries, keys, values, mask[:, None, None], dropout)
        return packing.pack(mixed.transpose(1, 2).flatten(2))


class FusionLayer(nn.Module):
    """Attention among clips, attention to words, two linear layers with ReLU; a LayerNorm after each.

    It is the decoder's layer of "Attention Is All You Need", with clips as the decoded sequence.
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

    def forward(self, rows: Tensor, packing: Packing, keys_and_values: Tensor, mask: Tensor) -> Tensor:
        """The encoded clips (N, D), from clips (N, D) and their words' keys and values (P, L, 2 D)."""
        rows = self.attention_norm(rows + self.dropout(self.output(self.attention(rows, rows, packing))))
        of_words = self.words_output(self.words(rows, packing, keys_and_values, mask))
        rows = self.words_norm(rows + self.dropout(of_words))
        widened = self.narrow(self.dropout(self.wide(rows).relu()))
        normed: Tensor = self.feedforward_norm(rows + self.dropout(widened))
        return normed


class WordsAndClips(PackedModule):
    """Several `FusionLayer`s, one after the other."""

    def __init__(self, layers: int, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(FusionLayer(width, heads, feedforward, dropout) for _ in range(layers))

    def keys_and_values(self, words: Tensor) -> Tensor:
        """(Q, L, F, 2 D): each layer's keys and values of words (Q, L, D), once for all videos of a query."""
        # The layers' linear maps in one product.
        maps = [layer.words.heard for layer in self.layers if isinstance(layer, FusionLayer)]
        weight = torch.cat([layer.weight for layer in maps])
        bias = torch.cat([layer.bias for layer in maps])
        return functional.linear(words, weight, bias).view(*words.shape[:2], len(maps), -1)

    def forward(self, clips: Tensor, clip_mask: Tensor, keys_and_values: Tensor, word_mask: Tensor) -> Tensor:
        """(P, T, D) from clips (P, T, D) and the words' keys and values (P, L, F, 2 D), with their masks."""
        packing = self.packing(clip_mask)
        rows = packing.pack(clips)
        for layer, of_words in zip(self.layers, keys_and_values.unbind(2), strict=True):
            rows = layer(rows, packing, of_words, word_mask)
        return packing.unpack(rows)
