"""Bound a metric over all possible grades of answers that nobody judged.

Judged answers keep their values. An unjudged answer may have any grade up to the highest; it then counts as a
judged moment with its own borders, which matches itself only and enters the ideal list. Over all grades of
the unjudged answers up to the metric's depth the bounds are exact (test_unjudged.py enumerates them). They do
not cover unjudged moments outside the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from whenabouts.overlap import place_in_group
from whenabouts_bench.evaluation.matching import Mask
from whenabouts_bench.evaluation.metrics import Listing, Metric, average_precision, discounted, gains_of
from whenabouts_bench.formats.annotations import Floats, Indices

_MOST_STEPS = 100


def bounds_of(
    listing: Listing, metric: Metric, unjudged: Mask, plain: Floats, most_grade: float
) -> tuple[Floats, Floats]:
    """(B,) lower and upper bound of each query's value; `plain` (B,) is the value as judged.

    `unjudged` (N,) marks unjudged rows up to the metric's depth that could be right.
    """
    if not unjudged.any():
        return plain, plain
    lower, upper = BOUNDS[metric.measure](listing, metric, unjudged, plain, most_grade)
    # The judged value lies between, up to rounding.
    return np.minimum(lower, plain), np.maximum(upper, plain)


def _of_a_hit(
    listing: Listing, metric: Metric, unjudged: Mask, plain: Floats, most_grade: float
) -> tuple[Floats, Floats]:
    """The bounds of R@K and mIoU: one right answer yields 1, a wrong one changes nothing."""
    can_hit = np.bincount(listing.rows.query[unjudged], minlength=listing.queries) > 0
    return plain, np.where(can_hit, 1.0, plain)


def _of_average_precision(
    listing: Listing, metric: Metric, unjudged: Mask, plain: Floats, most_grade: float
) -> tuple[Floats, Floats]:
    """The bounds of AP: for each number n of right unjudged rows, the first n or the last n are right.

    For fixed n the denominator is fixed, and the sum of precisions grows as any right row moves up.
    """
    rows = listing.by_score.rows
    query = rows.query[unjudged]
    place, count = place_in_group(query), np.bincount(query, minlength=listing.queries)
    lower, upper = plain.copy(), plain.copy()
    for right in range(1, int(count.max()) + 1):
        enough = count >= right
        for chosen in (place < right, place >= count[query] - right):
            also = np.zeros(len(unjudged), bool)
            also[np.flatnonzero(unjudged)[chosen]] = True
            value = average_precision(listing, metric, also)
            lower[enough] = np.minimum(lower, value)[enough]
            upper[enough] = np.maximum(upper, value)[enough]
    return lower, upper


def _of_ndcg(
    listing: Listing, metric: Metric, unjudged: Mask, plain: Floats, most_grade: float
) -> tuple[Floats, Floats]:
    """The bounds of nDCG@K (equation 1 of the TVR-Ranking paper) over all grades of the unjudged rows."""
    gains = _Gains.of(listing, metric, unjudged, most_grade)
    lower, upper = plain.copy(), plain.copy()
    for value in gains.with_the_last():
        lower = np.fmin(lower, value)
    # Dinkelbach's method maximises the ratio: the value rises with each step until it is maximal.
    for _ in range(_MOST_STEPS):
        value = np.fmax(upper, gains.best_beyond(upper))
        if np.array_equal(value, upper):
            break
        upper = value
    return lower, upper


@dataclass(frozen=True)
class _Gains:
    """DCG of a list and of the ideal list as functions of the grades of unjudged rows.

    The DCG of a descending list is the sum over levels of (level - next lower level) * C(number of gains at
    or above the level), where C(n) sums the first n discounts; so levels are independent. `met` (B,) is the
    DCG of judged rows, `steps` (L,) the differences of levels, `judged` (L, B) the number of judged moments
    at or above each, `first` and `last` (B, U + 1) the discounts of the first and last n unjudged rows (NaN
    beyond their number), `ideal` is C.
    """

    met: Floats
    steps: Floats
    judged: Indices
    first: Floats
    last: Floats
    ideal: Floats

    @classmethod
    def of(cls, listing: Listing, metric: Metric, unjudged: Mask, most_grade: float) -> _Gains:
        k, rows = cast(int, metric.k), listing.rows
        query = rows.query[unjudged]
        place, count = place_in_group(query), np.bincount(query, minlength=listing.queries)
        discounts = np.full((listing.queries, int(count.max()) + 1), np.nan)
        discounts[:, 0] = 0.0
        discounts[query, place + 1] = 1 / np.log2(rows.rank[unjudged] + 2)
        first = np.cumsum(discounts, axis=1)
        total = first[np.arange(listing.queries), count]
        places = count[:, None] - np.arange(discounts.shape[1])
        last = total[:, None] - np.take_along_axis(first, np.maximum(places, 0), axis=1)
        gained, (judged_query, _, judged_gain) = gains_of(listing, metric)
        top = most_grade if listing.protocol.gain == "linear" else np.exp2(most_grade) - 1
        levels = np.union1d(judged_gain[judged_gain > 0], [top])
        most = int(np.bincount(judged_query, minlength=1).max()) + discounts.shape[1]
        ideal = 1 / np.log2(np.arange(most) + 2)
        ideal[k:] = 0.0
        met = discounted(*gained, k, listing.queries)
        steps, last = np.diff(levels, prepend=0.0), np.where(places >= 0, last, np.nan)
        judged = [np.bincount(judged_query[judged_gain >= g], minlength=listing.queries) for g in levels]
        return cls(met, steps, np.array(judged), first, last, np.concatenate([[0.0], np.cumsum(ideal)]))

    def with_the_last(self) -> Iterator[Floats]:
        """(B,) the value with the last n unjudged rows at the highest grade, for each n; NaN without n rows.

        The value is a linear over a convex function of the gains, so it is minimal where each gain is 0 or
        the highest. Then the ideal list depends on their number only, and the last rows add least.
        """
        top = self.steps.sum()
        for right in range(self.last.shape[1]):
            best = (self.steps[:, None] * self.ideal[self.judged + right]).sum(axis=0)
            yield np.divide(
                self.met + top * self.last[:, right], best, out=np.zeros(len(best)), where=best > 0
            )

    def best_beyond(self, value: Floats) -> Floats:
        """(B,) the value with the grades that most exceed `value` (B,) times the ideal list.

        Higher grades go to higher ranks, so each level is reached by the first n unjudged rows. The best n of
        each level can be found separately: it never grows with the level.
        """
        met, best = self.met.copy(), np.zeros_like(self.met)
        queries, numbers = np.arange(len(met)), np.arange(self.first.shape[1])
        for step, judged in zip(self.steps, self.judged, strict=True):
            ideal = self.ideal[judged[:, None] + numbers]
            gain = self.first - value[:, None] * ideal
            right = np.where(np.isnan(gain), -np.inf, gain).argmax(axis=1)
            met += step * self.first[queries, right]
            best += step * ideal[queries, right]
        return np.divide(met, best, out=np.zeros(len(met)), where=best > 0)


Bound = Callable[[Listing, Metric, Mask, Floats, float], tuple[Floats, Floats]]
BOUNDS: Mapping[str, Bound] = {
    "R": _of_a_hit,
    "mIoU": _of_a_hit,
    "nDCG": _of_ndcg,
    "mAP": _of_average_precision,
}
