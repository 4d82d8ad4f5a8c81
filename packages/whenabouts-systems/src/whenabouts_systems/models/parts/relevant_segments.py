"""Find the segments of a video that overlap a moment, and pool a segment to one vector (PREM, section 3.4).

Shapes: Q queries, P pairs of a query and a video, T clips, M segments (first and last clip, both inclusive),
D width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def overlapping_segments(spans: Tensor, mask: Tensor, above: float) -> tuple[Tensor, Tensor]:
    """All segments whose IoU with their query's moment is more than `above`: queries (M,), segments (M, 2).

    `spans` (Q, 2) int64 are the moments, `mask` (Q, T) the clips that their videos have. IoU counts clips:
    with the moment [5, 8], [4, 8], [5, 7], [6, 8] and [5, 9] have more than 0.7 (the paper's example).
    """
    at = torch.arange(mask.shape[1], device=mask.device)
    first, last = at[:, None], at[None, :]
    true_first, true_last = spans[:, 0, None, None], spans[:, 1, None, None]
    shared = torch.minimum(last, true_last) - torch.maximum(first, true_first) + 1
    whole = torch.maximum(last, true_last) - torch.minimum(first, true_first) + 1
    # In float64: a quotient of whole numbers that equals `above` is then the same number.
    answers = (shared.double() / whole > above) & (last >= first) & mask[:, None]
    query, begins, ends = answers.nonzero().unbind(1)
    return query, torch.stack([begins, ends], 1)


def segment_maxima(clips: Tensor, pairs: Tensor, segments: Tensor) -> Tensor:
    """(M, D): the largest value of each dimension over a segment's clips (max-pooling).

    `clips` (P, T, D); `pairs` (M,) and `segments` (M, 2) int64. A segment is covered by two runs of clips
    whose length is a power of two, and maxima of such runs come from those of half the length: a segment
    costs the same however long it is.
    """
    length = segments[:, 1] - segments[:, 0] + 1
    level = (length.double().log2() + 1e-9).long()
    pooled = clips.new_zeros(len(segments), clips.shape[2])
    runs = clips
    for power in range(int(level.max()) + 1 if len(level) else 0):
        if power:
            half = 1 << (power - 1)
            runs = torch.maximum(runs[:, :-half], runs[:, half:])
        mine = (level == power).nonzero()[:, 0]
        begin, end = segments[mine, 0], segments[mine, 1] + 1 - (1 << power)
        rows = pairs[mine] * runs.shape[1]
        flat = runs.flatten(0, 1)
        best = torch.maximum(flat.index_select(0, rows + begin), flat.index_select(0, rows + end))
        pooled = pooled.index_copy(0, mine, best)
    return pooled
