"""Significance of differences: paired sign flips, a bootstrap over clusters of queries, and corrections.

Queries about one video are not independent, so whole videos are flipped and resampled, each with all its
queries; treating queries as independent finds spurious differences (`benchmarks/significance.py` measures how
often).

Values are rounded to multiples of a power of two (2**-37 for 10,895 queries of 2,179 videos), so that sums
are exact in any order: results depend on neither threads nor the order of queries, and equal sums compare
equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from whenabouts.confidence.quantiles import normal_share, student_quantile
from whenabouts.types import UsageError

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

Correction = Literal["holm", "bonferroni", "none"]

FEW_CLUSTERS = 10
"""With fewer clusters, intervals of rare hits are too short (`benchmarks/results/significance.json`)."""

_BLOCK = 1 << 21  # numbers held at a time: 16 MB in float64
_MOST_PATTERNS = 1 << 16


@dataclass(frozen=True)
class SignFlips:
    """Test results of K columns of differences.

    `p` (K,) are two-sided p-values in (0, 1]. `exact` (K,) is true if all patterns of signs were counted.
    `moved` (K,) is the number of clusters whose sums differ from 0: no p is below 2 / 2**moved.
    """

    p: Floats
    exact: NDArray[np.bool_]
    moved: Indices


def sign_flip_test(
    differences: Floats, clusters: Indices, *, resamples: int = 10_000, seed: int = 0
) -> SignFlips:
    """Two-sided p-values of the mean of each column being 0, with random signs of clusters.

    `differences` is (Q, K) in [-1, 1], one system's values minus the other's; `clusters` (Q,) are integers.
    The statistic is |sum over queries|. If 2**moved patterns are at most `resamples` and 65,536, all are
    counted; else p = (1 + patterns at least as far) / (1 + resamples), which is never 0 (Phipson and Smyth,
    Statistical Applications in Genetics and Molecular Biology 9, 2010).

    Only the sorted sizes of a column's cluster sums matter, so p-values are invariant to swapped systems,
    renamed or reordered queries, and other columns. All columns share the random signs.
    """
    sums = _sums(differences, clusters).sums
    sizes = -np.sort(-np.abs(sums), axis=0)
    observed = np.abs(sums.sum(axis=0))
    moved = np.count_nonzero(sizes, axis=0)
    exact = moved < min(resamples, _MOST_PATTERNS).bit_length()
    p = np.ones(sizes.shape[1])
    if exact.any():
        p[exact] = _all_patterns(sizes[:, exact], observed[exact], int(moved[exact].max()))
    if not exact.all():
        drawn = ~exact
        far = np.zeros(int(drawn.sum()), np.int64)
        for coins in _coins(len(sizes), int(moved[drawn].max()), resamples, seed):
            far += _at_least(coins, sizes[:, drawn], observed[drawn])
        p[drawn] = (1 + far) / (1 + resamples)
    return SignFlips(p, exact, moved.astype(np.int64))


def _all_patterns(sizes: Floats, observed: Floats, moved: int) -> Floats:
    if moved == 0:
        return np.ones(sizes.shape[1])
    # Row n is n in bits. The first sign is fixed, because flipping all signs changes nothing. Clusters of
    # size 0 do not change shares, so columns with fewer clusters can be counted together.
    patterns = np.arange(1 << (moved - 1))[:, None] >> np.arange(moved) & 1
    p: Floats = _at_least(patterns.astype(np.float64), sizes, observed) / len(patterns)
    return p


def _at_least(coins: Floats, sizes: Floats, observed: Floats) -> Indices:
    sizes = sizes[: coins.shape[1]]
    flipped = 2 * (coins @ sizes) - sizes.sum(axis=0)
    far: Indices = (np.abs(flipped) >= observed).sum(axis=0, dtype=np.int64)
    return far


def _coins(clusters: int, count: int, resamples: int, seed: int) -> Iterator[Floats]:
    """Blocks of (rows, count) zeros and ones; the values do not depend on `count`."""
    rng = np.random.default_rng(seed)
    words = -(-clusters // 64)
    for rows in _rows(resamples, 64 * words):
        drawn = rng.integers(0, 1 << 64, (rows, words), np.uint64).astype("<u8").view(np.uint8)
        yield np.unpackbits(drawn, axis=1, count=count, bitorder="little").astype(np.float64)


def _rows(resamples: int, width: int) -> Iterator[int]:
    step = max(1, _BLOCK // width)
    for begin in range(0, resamples, step):
        yield min(step, resamples - begin)


def bootstrap_intervals(
    values: Floats, clusters: Indices, *, resamples: int = 10_000, seed: int = 0, confidence: float = 0.95
) -> Floats:
    """(K, 2) ends of a bootstrap confidence interval of the mean of each column.

    `values` is (Q, K) in [-1, 1], a system's values or differences of two; `clusters` (Q,) are integers.
    Clusters are drawn with replacement; a resample's mean is its sum over its number of queries. The ends are
    percentiles, widened as Student's t with that many clusters is wider than the normal distribution (the
    expanded percentile interval of Hesterberg, The American Statistician 69, 2015): it covers differences
    best among the intervals tried, and stays within the possible range.

    Intervals do not depend on other columns or on the order of queries; swapped systems are mirrored exactly.
    """
    by_cluster = _sums(values, clusters)
    # Clusters are sorted by their values (here and in `_oriented`), so that draws do not depend on the
    # order of queries.
    order = np.argsort(by_cluster.counts, kind="stable")
    counts = by_cluster.counts[order].astype(np.float64)
    sums, signs = _oriented(by_cluster.sums[order], counts)
    tail = tail_share(len(counts), confidence)
    ends = np.empty((sums.shape[1], 2))
    step = max(1, 4 * _BLOCK // resamples)
    for begin in range(0, sums.shape[1], step):
        some = slice(begin, begin + step)
        both = np.column_stack([sums[:, some], counts])
        totals = np.concatenate(list(drawn_totals(both, resamples, seed)))
        ends[some] = np.quantile(totals[:, :-1] / totals[:, -1:], (tail, 1 - tail), axis=0).T
    mirrored = -ends[:, ::-1]
    signs = signs[:, None]
    ends = np.where(signs == 0, (ends + mirrored) / 2, np.where(signs < 0, mirrored, ends))
    return ends / by_cluster.unit + 0.0  # no -0.0


def _oriented(sums: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Columns sorted within clusters of equal counts; a column and its negative are oriented equally.

    Signs (K,) say which were negated; 0 if a column is its own negative.
    """
    signs = np.ones(sums.shape[1])
    oriented = np.empty_like(sums)
    for column, values in enumerate(sums.T):
        kept, negated = values[np.lexsort((values, counts))], -values[np.lexsort((-values, counts))]
        first = int(np.argmax(kept != negated))
        signs[column] = np.sign(kept[first] - negated[first])
        oriented[:, column] = negated if signs[column] < 0 else kept
    return oriented, signs


def drawn_totals(values: Floats, resamples: int, seed: int = 0) -> Iterator[Floats]:
    """Blocks of (rows, K) bootstrap totals of clusters with values (C, K)."""
    for times in drawn_times(len(values), resamples, seed):
        yield times @ values


def drawn_times(clusters: int, resamples: int, seed: int = 0) -> Iterator[Floats]:
    """Blocks of (rows, C): how often each of C clusters is drawn, with replacement, in each resample."""
    rng = np.random.default_rng(seed)
    for rows in _rows(resamples, clusters):
        drawn = rng.integers(0, clusters, (rows, clusters)) + clusters * np.arange(rows)[:, None]
        times = np.bincount(drawn.ravel(), minlength=rows * clusters).reshape(rows, clusters)
        yield times.astype(np.float64)


def tail_share(clusters: int, confidence: float) -> float:
    """The tail probability on each side, for the expanded percentile interval."""
    if clusters < 2:
        return 0.0
    wider = math.sqrt(clusters / (clusters - 1)) * student_quantile(clusters - 1, (1 + confidence) / 2)
    return normal_share(-wider)


def corrected(p: Floats, correction: Correction = "holm") -> Floats:
    """p-values of a family of F comparisons, corrected for the family-wise error rate.

    `p` is (F,) or (F, M) with a family in each column. Holm (Scandinavian Journal of Statistics 6, 1979)
    multiplies the smallest by F, the next by F - 1 and so on, and keeps them monotonic.

    >>> corrected(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    if correction not in get_args(Correction):
        raise UsageError(f"correction {correction!r}; there are {', '.join(get_args(Correction))}")
    family = len(p)
    if correction == "none":
        return p.copy()
    if correction == "bonferroni":
        return np.minimum(1.0, family * p)
    order = np.argsort(p, axis=0, kind="stable")
    factors = np.arange(family, 0, -1.0).reshape(-1, *[1] * (p.ndim - 1))
    stepped = np.maximum.accumulate(np.take_along_axis(p, order, axis=0) * factors, axis=0)
    result = np.empty_like(p)
    np.put_along_axis(result, order, np.minimum(1.0, stepped), axis=0)
    return result


@dataclass(frozen=True)
class _Sums:
    """Sums (C, K) of clusters in multiples of 1 / `unit`, and the number of queries (C,)."""

    sums: Floats
    counts: Indices
    unit: float


def _sums(values: Floats, clusters: Indices) -> _Sums:
    if values.ndim != 2 or len(values) != len(clusters) or len(values) == 0:
        raise UsageError(f"values {values.shape} and clusters {clusters.shape}: give (Q, K) and (Q,), Q > 0")
    if not bool((np.abs(values) <= 1).all()):
        raise UsageError("values must be fractions: finite, in [-1, 1]")
    _, codes = np.unique(clusters, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    # Twice the largest sum must fit in the 53 bits of a float.
    unit = 2.0 ** min(40, 51 - (len(counts) * int(counts.max())).bit_length())
    whole = np.rint(values[order] * unit)
    sums = np.add.reduceat(whole, np.cumsum(counts) - counts, axis=0)
    return _Sums(sums, counts.astype(np.int64), unit)
