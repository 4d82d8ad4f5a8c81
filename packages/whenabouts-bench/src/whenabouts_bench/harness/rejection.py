"""Measure how well a system recognises queries without an answer.

Queries with an answer are positives, those without are negatives; each has the score of its first row, or its
probability. A query without a row is rejected with certainty.

- AUROC: how often a positive scores above a negative, ties counting half.
- false match at 95 % recall: the share of negatives at or above the highest threshold that at least 95 % of
  the positives reach.
- ECE: expected calibration error over ten equal bins of probability; an answer is right if the first row
  overlaps a right moment with an IoU of at least 0.5 (of a task of videos: lies in a right video). An answer
  to a negative is wrong.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts_bench.evaluation.significance import Floats, Indices, drawn_times, tail_share
from whenabouts_bench.harness.results import Measured, OfRejection

MEASURES = ("AUROC", "false match at 95 % recall", "ECE")
RECALL = 0.95
BINS = 10
_DRAWS = 1000


def rejection_of(
    scores: Floats,
    probabilities: Floats | None,
    has_answer: NDArray[np.bool_],
    right: NDArray[np.bool_],
    clusters: Indices,
) -> OfRejection:
    """The measures over Q queries, with intervals from draws of whole videos; None if one cannot be measured.

    `scores` (Q,) are the scores of first rows, minus infinity without a row. `probabilities` (Q,) are in
    [0, 1], None if the system gives none. `right` (Q,): whether the first row is right. `clusters` (Q,) are
    numbers of videos.
    """
    ranked_by = scores if probabilities is None else probabilities

    def measured(weights: Floats) -> tuple[float, float, float]:
        error = np.nan if probabilities is None else calibration_error(probabilities, right, weights)
        return auroc(ranked_by, has_answer, weights), false_match(ranked_by, has_answer, weights), error

    point = measured(np.ones(len(ranked_by)))
    _, codes = np.unique(clusters, return_inverse=True)
    count = int(codes.max()) + 1
    drawn = np.array([measured(row[codes]) for times in drawn_times(count, _DRAWS) for row in times])
    tail = tail_share(count, 0.95)

    def with_ends(column: int) -> Measured | None:
        values = drawn[~np.isnan(drawn[:, column]), column]
        if np.isnan(point[column]) or not len(values):
            return None
        low, high = np.quantile(values, (tail, 1 - tail)).tolist()
        return Measured(float(point[column]), low, high)

    metrics = {name: with_ends(column) for column, name in enumerate(MEASURES)}
    return OfRejection(int(has_answer.sum()), int((~has_answer).sum()), metrics)


def auroc(scores: Floats, positive: NDArray[np.bool_], weights: Floats) -> float:
    """The weighted share of (positive, negative) pairs in the right order; NaN if a side weighs nothing.

    >>> auroc(np.array([3.0, 1.0, 2.0]), np.array([True, True, False]), np.ones(3))
    0.5
    """
    values, codes = np.unique(scores, return_inverse=True)
    above = np.bincount(codes, weights * positive, len(values))
    below = np.bincount(codes, weights * ~positive, len(values))
    pairs = above.sum() * below.sum()
    if pairs == 0:
        return float("nan")
    return float((above * (np.cumsum(below) - below / 2)).sum() / pairs)


def false_match(scores: Floats, positive: NDArray[np.bool_], weights: Floats) -> float:
    """The weighted share of negatives at or above the highest threshold that keeps 95 % of the positives.

    NaN if a side weighs nothing.

    >>> false_match(np.array([3.0, 1.0, 2.0]), np.array([True, True, False]), np.ones(3))
    1.0
    """
    values, codes = np.unique(-scores, return_inverse=True)
    kept = np.cumsum(np.bincount(codes, weights * positive, len(values)))
    let_through = np.cumsum(np.bincount(codes, weights * ~positive, len(values)))
    if kept[-1] == 0 or let_through[-1] == 0:
        return float("nan")
    enough = int(np.argmax(kept >= RECALL * kept[-1] - 1e-9))
    return float(let_through[enough] / let_through[-1])


def calibration_error(probabilities: Floats, right: NDArray[np.bool_], weights: Floats) -> float:
    """The weighted mean distance of stated probability and share of right answers, over ten bins.

    >>> calibration_error(np.array([0.9, 0.9]), np.array([True, False]), np.ones(2))
    0.4
    """
    bins = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
    stated = np.bincount(bins, weights * probabilities, BINS)
    right_share = np.bincount(bins, weights * right, BINS)
    return float(np.abs(stated - right_share).sum() / weights.sum())
