"""Bidirectional attention flow between clips and words (Seo et al., ICLR 2017), for CONQUER and SQuiDNet.

Shapes: P pairs of a video's T clips and a query's L words, D width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from whenabouts_systems.models.parts.borders import MASKED


class Flow(NamedTuple):
    """`of_words` (P, T, D): words as each clip attends to them; `of_clips` (P, 1, D): clips, by the query."""

    of_words: Tensor
    of_clips: Tensor


def attention_flow(table: Tensor, clips: Tensor, words: Tensor, clip_mask: Tensor, attended: Tensor) -> Flow:
    """Attention of clips (P, T, D) to words (P, L, D), and the reverse, by similarities `table` (P, T, L).

    A clip attends to the words by its similarities; the query attends to the clips by each clip's best word.
    `clip_mask` is (P, T); `attended` (P, T or 1, L) marks the words that clips attend to. A clip without such
    words attends to all words equally, padded ones included.
    """
    table = table.float().masked_fill(~attended, MASKED)
    of_words = torch.bmm(table.softmax(2).to(words.dtype), words)
    best = table.amax(2).masked_fill(~clip_mask, MASKED).softmax(1)
    return Flow(of_words, torch.einsum("pt,ptd->pd", best.to(clips.dtype), clips)[:, None])
