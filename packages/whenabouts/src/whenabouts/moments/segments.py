"""All maximal-scoring segments of many number sequences at once.

W. L. Ruzzo and M. Tompa, "A linear time algorithm for finding all maximal scoring subsequences", ISMB 1999,
define them: take the contiguous segment with the largest sum, then search left and right of it, until nothing
positive is left. Their algorithm walks through one sequence with a stack. This one finds the same segments
with array operations: alternating runs of positive and other values are merged across the smallest runs
first, as the hills of a cumulative sum are simplified by persistence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Segments:
    """S segments of the values: `first`, `last` (inclusive) and `gain`, the sum inside; all (S,)."""

    first: Indices
    last: Indices
    gain: Floats


@dataclass(slots=True)
class _Runs:
    """Runs of neighbouring values of one sign: start, sum, sign, and whether each opens a sequence."""

    first: Indices
    total: Floats
    positive: Flags
    opens: Flags


def maximal_segments(values: Floats, opens: Flags) -> Segments:
    """Every maximal-scoring segment with a positive sum, ordered by place.

    `values` is (N,) and finite; `opens` (N,) is true where a new sequence starts (position 0 always does); no
    segment spans such a place. If a longer segment would gain nothing, the shorter one is taken, as in Ruzzo
    and Tompa. Segments do not overlap. Sums in one sequence do not depend on other sequences.
    """
    if not len(values):
        return Segments(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    runs = _runs_of(values, opens)
    first, last, gain = [], [], []
    while True:
        valley = _removable(runs)
        if not valley.any():
            break
        ends = np.append(runs.first[1:], len(values)) - 1
        finished = valley & runs.positive
        first.append(runs.first[finished])
        last.append(ends[finished])
        gain.append(runs.total[finished])
        runs = _merged(runs, valley)
    ends = np.append(runs.first[1:], len(values)) - 1
    first.append(runs.first[runs.positive])
    last.append(ends[runs.positive])
    gain.append(runs.total[runs.positive])
    return _outermost(Segments(np.concatenate(first), np.concatenate(last), np.concatenate(gain)))


def _runs_of(values: Floats, opens: Flags) -> _Runs:
    """Runs of values above 0 and of the others."""
    positive = values > 0
    starts = opens.copy()
    starts[0] = True
    starts[1:] |= positive[1:] != positive[:-1]
    first = np.flatnonzero(starts)
    total = np.add.reduceat(values, first)
    run_opens = opens[first]
    run_opens[0] = True
    return _Runs(first, total, positive[first], run_opens)


def _removable(runs: _Runs) -> Flags:
    """Runs no larger than both neighbours in their sequence: segments gain by spanning them.

    A gap must be strictly smaller than the hills beside it; a hill between gaps may be equal. Hence two
    neighbours are never removable together.
    """
    size = np.abs(runs.total)
    removable = np.zeros(len(size), dtype=bool)
    if len(size) < 3:
        return removable
    smaller = np.minimum(size[:-2], size[2:])
    middle = size[1:-1]
    inside = ~(runs.opens[1:-1] | runs.opens[2:])
    removable[1:-1] = inside & ((middle < smaller) | (runs.positive[1:-1] & (middle == smaller)))
    return removable


def _merged(runs: _Runs, valley: Flags) -> _Runs:
    """Each removable run joined with both neighbours; chains of them become one run."""
    joined = valley.copy()
    joined[1:] |= valley[:-1]
    keep = np.flatnonzero(~joined)
    total = np.add.reduceat(runs.total, keep)
    return _Runs(runs.first[keep], total, runs.positive[keep], runs.opens[keep])


def _outermost(segments: Segments) -> Segments:
    """Segments that are not inside another one, ordered by place; any two are nested or disjoint."""
    order = np.lexsort((-segments.last, segments.first))
    first, last, gain = segments.first[order], segments.last[order], segments.gain[order]
    outer = np.ones(len(first), dtype=bool)
    outer[1:] = last[1:] > np.maximum.accumulate(last)[:-1]
    return Segments(first[outer], last[outer], gain[outer])
