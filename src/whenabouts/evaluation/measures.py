"""What each metric says of the queries of one block; every function gives (B,) fractions in [0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.evaluation.matching import (
    Pairs,
    Rows,
    first_ranks,
    matched_one_to_one,
    passes,
)
from whenabouts.evaluation.protocols import Protocol
from whenabouts.evaluation.truth import Truth
from whenabouts.formats.annotations import Floats, Indices

MEAN_IOUS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""The thresholds over which mAP is averaged."""


def recall(first_hit: Indices, k: int) -> Floats:
    """R@K: whether a hit is among the first k rows; `first_hit` (B,) is the rank of the first, from 0."""
    return (first_hit < k).astype(np.float64)


def first_hit(rows: Rows, best: NDArray[Any], threshold: float, protocol: Protocol) -> Indices:
    """(B,) rank of the first row that overlaps a judged moment enough; `best` is `best_iou` of the rows."""
    return first_ranks(rows, passes(best, threshold, protocol))


def mean_iou(rows: Rows, best: NDArray[Any]) -> Floats:
    """IoU of the first row with the judged moment it overlaps most; 0 where there is no row."""
    values = np.zeros(len(rows.queries))
    leads = rows.rank == 0
    values[rows.query[leads]] = best[leads]
    return values


def ndcg(
    rows: Rows, matched: Indices, truth: Truth, ks: tuple[int, ...], protocol: Protocol
) -> dict[int, Floats]:
    """nDCG@K for several K (equation 1 of the TVR-Ranking paper, discount log2(rank + 1), rank from 1).

    `matched` (N,) is the judged moment each row took. The ideal list holds the highest grades of the
    query, whether a row met them or not; a query without a grade above 0 scores 0.
    """
    gains = _gain(truth.relevance, protocol)
    hit = np.flatnonzero(matched >= 0)
    query, rank = rows.query[hit], rows.rank[hit]
    gained = gains[matched[hit]] / np.log2(rank + 2)
    ideal_query, ideal_rank, ideal_gain = _ideal(rows, truth, gains)
    values = {}
    for k in ks:
        size = len(rows.queries)
        real = np.bincount(query[rank < k], gained[rank < k], size)
        best = np.bincount(ideal_query[ideal_rank < k], ideal_gain[ideal_rank < k], size)
        values[k] = np.divide(real, best, out=np.zeros(size), where=best > 0)
    return values


def _gain(relevance: Floats, protocol: Protocol) -> Floats:
    return relevance if protocol.gain == "linear" else np.exp2(relevance) - 1


def _ideal(rows: Rows, truth: Truth, gains: Floats) -> tuple[Indices, Indices, Floats]:
    """Query, rank and discounted gain of the judged moments of the rows' queries in the best order."""
    local = np.full(len(truth.query_ids), -1)
    local[rows.queries] = np.arange(len(rows.queries))
    query = local[truth.query]
    here = np.flatnonzero(query >= 0)
    here = here[np.lexsort((-gains[here], query[here]))]
    query = query[here]
    leads = np.flatnonzero(np.diff(query, prepend=-1))
    rank = np.arange(len(query)) - np.repeat(leads, np.diff(leads, append=len(query)))
    discounted: Floats = gains[here] / np.log2(rank + 2)
    return query, rank, discounted


def average_precision(
    rows: Rows,
    pairs: Pairs,
    truth: Truth,
    thresholds: tuple[float, ...],
    protocol: Protocol,
    k: int | None = None,
) -> Floats:
    """AP as in detection, the mean over `thresholds`: rows are matched one to one, precision is interpolated.

    Only the first `k` rows of a query count, where k is given.
    A query of which `truth` has no moment has 0.
    """
    positives = np.bincount(truth.query, minlength=len(truth.query_ids))[rows.queries]
    total = np.zeros(len(rows.queries))
    for threshold in thresholds:
        enough = passes(pairs.iou, threshold, protocol)
        matched = matched_one_to_one(rows.rank, pairs, enough) >= 0
        hits = np.flatnonzero(matched if k is None else matched & (rows.rank < k))
        total += _interpolated(rows.query[hits], rows.rank[hits], len(rows.queries))
    values: Floats = np.divide(
        total / len(thresholds), positives, out=np.zeros(len(total)), where=positives > 0
    )
    return values


def _interpolated(query: Indices, rank: Indices, queries: int) -> Floats:
    """(B,) sum over the hits of a query of the highest precision at that hit or a later one."""
    if not len(query):
        return np.zeros(queries)
    leads = np.flatnonzero(np.diff(query, prepend=-1))
    number = np.arange(len(query)) - np.repeat(leads, np.diff(leads, append=len(query)))
    precision = np.zeros((queries, int(number.max()) + 1))
    precision[query, number] = (number + 1) / (rank + 1)
    later = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    return np.bincount(query, later[query, number], queries).astype(np.float64)
