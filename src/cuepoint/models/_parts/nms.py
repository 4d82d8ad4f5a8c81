"""Non-maximum suppression of spans of time, several groups (videos) at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cuepoint.types import UsageError

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def total_order(score: Floats, group: Indices, start: Floats, end: Floats) -> Indices:
    """Indices that sort spans by score descending, then group, start and end; equal spans by position.

    All arguments are (N,). The order is total: it does not depend on how the spans arrived, except
    between spans that are equal in every respect.
    """
    return np.lexsort((end, start, group, -score)).astype(np.int64)


def suppress(group: Indices, start: Floats, end: Floats, score: Floats, iou: float, limit: int) -> Indices:
    """Indices of the spans that survive, best first in `total_order`.

    A span goes when a better surviving span of its group shares more than `iou` (intersection over
    union, in seconds) with it; 0 lets no two survivors of a group overlap at all, 1 lets everything
    live. At most `limit` spans of a group survive. All arrays are (N,), times in seconds.

    Greedy, as usual, but every round settles the best open span of all groups together, so the number
    of rounds is `limit` at most and does not grow with the number of groups.

    Raises UsageError for an `iou` outside [0, 1], a `limit` below 1, or a score that is NaN.
    """
    if not 0.0 <= iou <= 1.0:
        raise UsageError(f"iou is {iou!r}; it must lie between 0 and 1")
    if limit < 1:
        raise UsageError(f"limit is {limit!r}; at least one moment must be allowed")
    if np.isnan(score).any():
        raise UsageError("a span has the score NaN, which has no place in any order; give finite scores")
    # Sorted by group, and within a group best first: the first open row of a group is its best.
    order = np.lexsort((end, start, -score, group)).astype(np.int64)
    kept: list[Indices] = []
    for _ in range(limit):
        if not len(order):
            break
        groups = group[order]
        leads = np.ones(len(order), dtype=bool)
        leads[1:] = groups[1:] != groups[:-1]
        winners = order[leads]
        kept.append(winners)
        winner = winners[np.cumsum(leads) - 1]
        shared = np.minimum(end[order], end[winner]) - np.maximum(start[order], start[winner])
        union = (end[order] - start[order]) + (end[winner] - start[winner]) - shared
        order = order[~leads & (np.maximum(shared, 0.0) <= iou * union)]
    if not kept:
        return np.zeros(0, dtype=np.int64)
    survivors = np.concatenate(kept)
    return survivors[total_order(score[survivors], group[survivors], start[survivors], end[survivors])]
