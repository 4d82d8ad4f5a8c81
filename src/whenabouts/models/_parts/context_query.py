"""Clips and words that look at each other (bidirectional attention flow, Seo et al., ICLR 2017).

Shapes: P pairs of a video's T clips and a query's L words, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

MASKED = -1e10


class ContextQueryAttention(nn.Module):
    """Four vectors for each clip: itself, the words that suit it, and its products with words and clips."""

    def __init__(self, width: int, *, as_released: bool = False) -> None:
        super().__init__()
        self.similarity = nn.Linear(3 * width, 1, bias=False)
        self.as_released = as_released

    def forward(self, clips: Tensor, words: Tensor, clip_mask: Tensor, word_mask: Tensor) -> Tensor:
        """(P, T, 4 D) from clips (P, T, D) and words (P, L, D).

        The similarity of clip v and word q is w . [v; q; v * q]. A clip attends to the words by it; the
        query attends to the clips by each clip's best word. With `as_released` a padded clip attends to all
        words alike, padded ones too; else what stands there means nothing.
        """
        table = self._similarity(clips, words).float()
        seen = clip_mask[:, :, None] & word_mask[:, None] if self.as_released else word_mask[:, None]
        table = table.masked_fill(~seen, MASKED)
        of_words = torch.bmm(table.softmax(2).to(words.dtype), words)
        best = table.amax(2).masked_fill(~clip_mask, MASKED).softmax(1)
        of_clips = torch.einsum("pt,ptd->pd", best.to(clips.dtype), clips)[:, None]
        return torch.cat([clips, of_words, clips * of_words, clips * of_clips], dim=2)

    def _similarity(self, clips: Tensor, words: Tensor) -> Tensor:
        """(P, T, L), without ever laying clips and words side by side."""
        of_clip, of_word, of_both = self.similarity.weight[0].chunk(3)
        products = torch.bmm(clips * of_both, words.transpose(1, 2))
        return products + (clips @ of_clip)[:, :, None] + (words @ of_word)[:, None]
