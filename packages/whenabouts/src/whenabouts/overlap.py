"""Temporal IoU and non-maximum suppression of spans of time, on arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts.types import UsageError

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

Over = Literal["union", "hull"]
"""The denominator: the true union, or the hull from the first start to the last end.

They are equal for overlapping spans, and otherwise the quotient is 0, but they round differently; the
released evaluations of TVR, MMN and QVHighlights (at rank 1) use the hull.
"""


def temporal_iou(
    start: ArrayLike, end: ArrayLike, other_start: ArrayLike, other_end: ArrayLike, over: Over = "union"
) -> NDArray[Any]:
    """Intersection over union of spans in [0, 1], element by element; the four arguments are broadcast.

    Computed in the floating type of the arguments, so that float32 gives the results of a float32 program. If
    the denominator is 0 (two spans at the same point) the result is 0. A reversed span shares nothing.

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

    All arguments are (N,). The order does not depend on the order of input, except between spans that are
    equal in every respect.
    """
    order = np.argsort(-score, kind="stable")
    sorted_scores = score[order]
    if np.any(sorted_scores[1:] == sorted_scores[:-1]):
        order = np.lexsort((end, start, group, -score))
    return order.astype(np.int64)


def place_in_group(groups: Indices) -> Indices:
    """(N,) the place of each element in its run of equal group numbers, from 0. Numbers are 0 or more.

    >>> place_in_group(np.array([2, 2, 5, 2])).tolist()
    [0, 1, 0, 0]
    """
    opens = np.flatnonzero(np.diff(groups, prepend=-1))
    return np.asarray(np.arange(len(groups)) - np.repeat(opens, np.diff(opens, append=len(groups))), np.int64)


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

    A span is removed if a better surviving span of its group overlaps it by more than `iou` (temporal
    intersection over union); with 0 no two survivors of a group overlap, with 1 all survive. At most `limit`
    spans of a group survive. All arrays are (N,), times in seconds. To keep the order of a ranked list
    instead of its scores, give minus the rank as the score.

    Greedy, but many spans are settled in parallel: a span that is better than all open ones near it survives
    whatever happens elsewhere. For small groups or a `limit`, near means the whole group; in long lists it
    means a time range as long as the longest span, and its two neighbours. So the number of rounds is the
    number of survivors in one neighbourhood, not in the list.

    Raises UsageError for an `iou` outside [0, 1], a `limit` below 1, or a score that is NaN.
    """
    if not 0.0 <= iou <= 1.0:
        raise UsageError(f"iou is {iou!r}; it must lie between 0 and 1")
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit!r}; at least one moment must be allowed")
    if np.isnan(score).any():
        raise UsageError("a span has the score NaN, which cannot be ordered; give finite scores")
    best_first = total_order(score, group, start, end)
    near = _neighbourhoods(group, start, end, limit)
    # Sorted by neighbourhood, and within one best first: the first open row of each is its best.
    rank = np.argsort(near[best_first], kind="stable")
    order = best_first[rank]
    open_rows = _Open(near[order], start[order], end[order], rank)
    kept: list[Indices] = []
    while len(open_rows.rank) and (limit is None or len(kept) < limit):
        winners, open_rows = open_rows.settled(iou, over, alone=near is group)
        kept.append(winners)
    return best_first[np.sort(np.concatenate(kept))] if kept else np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class _Open:
    """Undecided spans, (N,), sorted by neighbourhood (`place`) and within one by rank."""

    place: Indices
    start: Floats
    end: Floats
    rank: Indices

    def settled(self, iou: float, over: Over, *, alone: bool) -> tuple[Indices, _Open]:
        """Ranks of spans that certainly survive, and the spans that stay open: neither these nor suppressed.

        `alone`: no two neighbourhoods are adjacent.
        """
        firsts = np.flatnonzero(np.diff(self.place, prepend=self.place[0] - 1))
        lead_of = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(self.place)))
        still = np.ones(len(self.place), dtype=bool)
        best = np.ones(len(firsts), dtype=bool) if alone else self._best_around(firsts)
        for step in (0,) if alone else (-1, 0, 1):
            lead = lead_of + step
            rows = np.flatnonzero((lead >= 0) & (lead < len(firsts))) if step else np.arange(len(lead))
            other = firsts[lead[rows]]
            if not alone:
                beside = best[lead[rows]] & (self.place[other] == self.place[rows] + step)
                rows, other = rows[beside], other[beside]
            shared = temporal_iou(self.start[rows], self.end[rows], self.start[other], self.end[other], over)
            still[rows[shared > iou]] = False
        still[firsts[best]] = False
        left = _Open(self.place[still], self.start[still], self.end[still], self.rank[still])
        return self.rank[firsts[best]], left

    def _best_around(self, firsts: Indices) -> NDArray[np.bool_]:
        """Which neighbourhoods' best rows are better than those of both neighbours."""
        place, rank = self.place[firsts], self.rank[firsts]
        best = np.ones(len(firsts), dtype=bool)
        adjacent = place[1:] == place[:-1] + 1
        best[1:] &= ~adjacent | (rank[1:] < rank[:-1])
        best[:-1] &= ~adjacent | (rank[:-1] < rank[1:])
        return best


# Smaller groups are processed whole: their rounds are few and cheap.
_LONG_LIST = 256


def _neighbourhoods(group: Indices, start: Floats, end: Floats, limit: int | None) -> Indices:
    """(N,) numbers of neighbourhoods: overlapping spans have equal or adjacent numbers.

    `group` itself if that is as good. Numbers of different groups are not adjacent.
    """
    groups, member = np.unique(group, return_inverse=True)
    longest = float((end - start).max(initial=0.0))
    if limit is not None or len(group) < _LONG_LIST * max(len(groups), 1) or not 0 < longest < np.inf:
        return group
    first = np.full(len(groups), np.inf)
    np.minimum.at(first, member, start)
    stretch = ((start - first[member]) / longest).astype(np.int64)
    last = np.zeros(len(groups), np.int64)
    np.maximum.at(last, member, stretch)
    offset = np.concatenate([[0], np.cumsum(last + 2)[:-1]])
    numbers: Indices = offset[member] + stretch
    return numbers
