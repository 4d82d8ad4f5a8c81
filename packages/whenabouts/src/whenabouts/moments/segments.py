"""Finds all maximal-scoring segments of many number sequences at once.

W. L. Ruzzo and M. Tompa, "A linear time algorithm for finding all maximal scoring subsequences", ISMB 1999,
define them: take the contiguous segment with the largest sum, then search left and right of it, until nothing
positive is left. Their algorithm walks through one sequence with a stack. This one finds the same segments
with array operations. It splits each sequence into alternating runs of positive and other values. Each pass
joins every run that is smaller than both its neighbours with them, until none is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whenabouts.overlap import Floats, Indices

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Segments:
    """S segments of the values: `first`, `last` (inclusive) and `gain`, the sum inside; all (S,)."""

    first: Indices
    last: Indices
    gain: Floats


@dataclass(slots=True)
class _Runs:
    """Alternating runs of values above 0 and other values, (R,): `opens` if a run starts a sequence."""

    first: Indices
    total: Floats
    positive: Flags
    opens: Flags


def maximal_segments(values: Floats, opens: Flags) -> Segments:
    """Every maximal-scoring segment with a positive sum, ordered by place.

    `values` is (N,) and finite; `opens` (N,) is true where a new sequence starts (position 0 always does); no
    segment crosses the start of a sequence. If a longer segment would gain nothing, the shorter one is taken,
    as in Ruzzo and Tompa. Segments do not overlap. Rounding in one sequence does not depend on the others.
    """
    if not len(values):
        return Segments(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    runs = _runs_of(values, opens)
    parts = []
    while True:
        removable = _removable(runs)
        is_last = not removable.any()
        ends = np.append(runs.first[1:], len(values)) - 1
        # A positive run that is joined may still be a segment: `_outermost` drops it inside a larger one.
        candidates = runs.positive & (removable | is_last)
        parts.append((runs.first[candidates], ends[candidates], runs.total[candidates]))
        if is_last:
            first, last, gain = (np.concatenate(column) for column in zip(*parts, strict=True))
            return _outermost(Segments(first, last, gain))
        runs = _merged(runs, removable)


def _runs_of(values: Floats, opens: Flags) -> _Runs:
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
    """Runs to join with both neighbours: those smaller than both, in the same sequence.

    A positive run may also equal the smaller neighbour. Two neighbours are never removable together.
    """
    size = np.abs(runs.total)
    removable = np.zeros(len(size), dtype=bool)
    smaller = np.minimum(size[:-2], size[2:])
    middle = size[1:-1]
    inside = ~(runs.opens[1:-1] | runs.opens[2:])
    removable[1:-1] = inside & ((middle < smaller) | (runs.positive[1:-1] & (middle == smaller)))
    return removable


def _merged(runs: _Runs, removable: Flags) -> _Runs:
    """Each removable run joined with both neighbours; a chain of joined runs becomes one run."""
    joined = removable.copy()
    joined[1:] |= removable[:-1]
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
