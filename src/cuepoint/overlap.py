"""How far spans of time overlap, and which of them survive: temporal IoU and suppression, on arrays."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuepoint.types import UsageError

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

Over = Literal["union", "hull"]
"""What the shared time is divided by: the true union, or the stretch from the first start to the last end.

They are the same for spans that overlap and the quotient is 0 for others, but they round differently;
the released evaluations of TVR, MMN and QVHighlights (at rank 1) use the hull.
"""


def temporal_iou(
    start: ArrayLike, end: ArrayLike, other_start: ArrayLike, other_end: ArrayLike, over: Over = "union"
) -> NDArray[Any]:
    """Intersection over union of spans in [0, 1], element by element; the four arguments are broadcast.

    Computed in the floating type of the arguments, so that float32 gives what a float32 program gives.
    Where the divisor is 0 (two spans at the same point) the answer is 0. A span that ends before it starts
    shares nothing.

    >>> temporal_iou([0, 0], [10, 10], [5, 12], [15, 20]).tolist()
    [0.3333333333333333, 0.0]
    """
    start, end, other_start, other_end = (
        np.asarray(a, None if np.asarray(a).dtype.kind == "f" else np.float64)
        for a in (start, end, other_start, other_end)
    )
    shared = np.maximum(np.minimum(end, other_end) - np.maximum(start, other_start), 0)
    if over == "hull":
        whole = np.maximum(end, other_end) - np.minimum(start, other_start)
    else:
        whole = (end - start) + (other_end - other_start) - shared
    quotient: NDArray[Any] = np.divide(shared, whole, out=np.zeros_like(shared), where=whole > 0)
    return quotient


def total_order(score: Floats, group: Indices, start: Floats, end: Floats) -> Indices:
    """Indices that sort spans by score descending, then group, start and end; equal spans by position.

    All arguments are (N,). The order is total: it does not depend on how the spans arrived, except
    between spans that are equal in every respect.
    """
    return np.lexsort((end, start, group, -score)).astype(np.int64)


def suppress(
    group: Indices,
    start: Floats,
    end: Floats,
    score: Floats,
    iou: float,
    limit: int | None = None,
    over: Over = "union",
) -> Indices:
    """Indices of the spans that survive, best first in `total_order`.

    A span goes when a better surviving span of its group shares more than `iou` (intersection over
    union, in seconds) with it; 0 lets no two survivors of a group overlap at all, 1 lets everything
    live. At most `limit` spans of a group survive. All arrays are (N,), times in seconds.

    Greedy, as usual, but every round settles the best open span of all groups together, so the number
    of rounds is that of the survivors of one group and does not grow with the number of groups.
    To keep the order of a ranked list instead of its scores, give minus the rank as the score.

    Raises UsageError for an `iou` outside [0, 1], a `limit` below 1, or a score that is NaN.
    """
    if not 0.0 <= iou <= 1.0:
        raise UsageError(f"iou is {iou!r}; it must lie between 0 and 1")
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit!r}; at least one moment must be allowed")
    if np.isnan(score).any():
        raise UsageError("a span has the score NaN, which has no place in any order; give finite scores")
    # Sorted by group, and within a group best first: the first open row of a group is its best.
    order = np.lexsort((end, start, -score, group)).astype(np.int64)
    kept: list[Indices] = []
    groups, starts, ends = group[order], start[order], end[order]
    while len(order) and (limit is None or len(kept) < limit):
        leads = np.ones(len(order), dtype=bool)
        np.not_equal(groups[1:], groups[:-1], out=leads[1:])
        firsts = np.flatnonzero(leads)
        kept.append(order[firsts])
        sizes = np.diff(firsts, append=len(order))
        shared = temporal_iou(
            starts, ends, np.repeat(starts[firsts], sizes), np.repeat(ends[firsts], sizes), over
        )
        still = (shared <= iou) & ~leads
        order, groups, starts, ends = order[still], groups[still], starts[still], ends[still]
    if not kept:
        return np.zeros(0, dtype=np.int64)
    survivors = np.concatenate(kept)
    return survivors[total_order(score[survivors], group[survivors], start[survivors], end[survivors])]
