"""Is a difference real? Paired sign flips and a bootstrap over clusters of queries, and corrections.

Queries about one video are not independent of each other: a video that suits a system suits it for all its
sentences. So videos are flipped and drawn here, each with all its queries; taking queries one by one finds
differences that are not there (`benchmarks/significance.py` measures how often).

Values are rounded to multiples of a power of two (2**-37 for 10,895 queries of 2,179 videos) before they are
added. Sums are then exact in any order: results depend on neither threads nor the order of queries, and equal
sums count as equal.
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
"""With fewer, intervals of rare hits are too short (`benchmarks/results/significance.json`)."""

_BLOCK = 1 << 21  # numbers held at a time: 16 MB in float64
_MOST_PATTERNS = 1 << 16


@dataclass(frozen=True)
class SignFlips:
    """What a test says of K columns of differences.

    `p` (K,) are two-sided p-values in (0, 1]. `exact` (K,) is true where all patterns of signs were counted.
    `moved` (K,) is the number of clusters whose sums differ from 0: no p is below 2 / 2**moved.
    """

    p: Floats
    exact: NDArray[np.bool_]
    moved: Indices


def sign_flip_test(
    differences: Floats, clusters: Indices, *, resamples: int = 10_000, seed: int = 0
) -> SignFlips:
    """Two-sided p-values of the mean of each column being 0, where the sign of each cluster is a coin.

    `differences` is (Q, K) in [-1, 1], one system's values less the other's; `clusters` (Q,) are any whole
    numbers. The statistic is |sum over queries|. Where 2**moved patterns are no more than `resamples` and
    65,536, all are counted; else p = (1 + patterns at least as far) / (1 + resamples), which is never 0
    (Phipson and Smyth, Statistical Applications in Genetics and Molecular Biology 9, 2010).

    Only the sizes of a column's cluster sums matter, largest first. So a p-value is the same for swapped
    systems, renamed or reordered queries, and whatever other columns are asked. All columns share the coins.
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
    # Row n is the number n in bits. The first sign stays: turning all signs changes nothing that is looked
    # at. Clusters of size 0 do not change a share either, so that columns with fewer may be counted, too.
    patterns = np.arange(1 << (moved - 1))[:, None] >> np.arange(moved) & 1
    p: Floats = _at_least(patterns.astype(np.float64), sizes, observed) / len(patterns)
    return p


def _at_least(coins: Floats, sizes: Floats, observed: Floats) -> Indices:
    sizes = sizes[: coins.shape[1]]
    flipped = 2 * (coins @ sizes) - sizes.sum(axis=0)
    far: Indices = (np.abs(flipped) >= observed).sum(axis=0, dtype=np.int64)
    return far


def _coins(clusters: int, count: int, resamples: int, seed: int) -> Iterator[Floats]:
    """Blocks of (rows, count) zeros and ones; the same coins, however many are asked for."""
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
    """(K, 2) lower and upper ends of a confidence interval of the mean of each column, from drawn clusters.

    `values` is (Q, K) in [-1, 1], a system's values or differences of two; `clusters` (Q,) are any whole
    numbers. Clusters are drawn with replacement, as many as there are; a draw's mean is its sum over its
    number of queries. The ends are percentiles, moved outwards as Student's t is wider than the normal law
    with that many clusters (the expanded percentile interval of Hesterberg, The American Statistician 69,
    2015): of the intervals that were tried it covers differences best, and it stays within what is possible.

    A column's interval does not depend on other columns or on the order of queries; that of swapped systems
    is mirrored exactly.
    """
    by_cluster = _sums(values, clusters)
    # Clusters are sorted by their numbers alone (here, and in `_oriented`): the draws, which
    # name places, then mean the same clusters however the queries came.
    order = np.argsort(by_cluster.counts, kind="stable")
    counts = by_cluster.counts[order].astype(np.float64)
    sums, signs = _oriented(by_cluster.sums[order], counts)
    tail = tail_share(len(counts), confidence)
    ends = np.empty((sums.shape[1], 2))
    step = max(1, 4 * _BLOCK // resamples)
    for begin in range(0, sums.shape[1], step):
        some = slice(begin, begin + step)
        means = _drawn_means(sums[:, some], counts, resamples, seed)
        ends[some] = np.quantile(means, (tail, 1 - tail), axis=0).T
    mirrored = -ends[:, ::-1]
    signs = signs[:, None]
    ends = np.where(signs == 0, (ends + mirrored) / 2, np.where(signs < 0, mirrored, ends))
    return ends / by_cluster.unit + 0.0  # no -0.0


def _oriented(sums: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Columns sorted among clusters of one count, a column and its negative turned the same way.

    Signs (K,) say which were turned; 0 where a column is its own negative.
    """
    signs = np.ones(sums.shape[1])
    oriented = np.empty_like(sums)
    for column, own in enumerate(sums.T):
        here, turned = own[np.lexsort((own, counts))], -own[np.lexsort((-own, counts))]
        first = int(np.argmax(here != turned))
        signs[column] = np.sign(here[first] - turned[first])
        oriented[:, column] = turned if signs[column] < 0 else here
    return oriented, signs


def _drawn_means(sums: Floats, counts: Floats, resamples: int, seed: int) -> Floats:
    """(resamples, K) means of drawn clusters."""
    both = np.column_stack([sums, counts])
    totals = np.concatenate(list(drawn_totals(both, resamples, seed)))
    means: Floats = totals[:, :-1] / totals[:, -1:]
    return means


def drawn_totals(values: Floats, resamples: int, seed: int = 0) -> Iterator[Floats]:
    """Blocks of (rows, K) totals of values (C, K) of clusters: as many as there are, each put back."""
    rng = np.random.default_rng(seed)
    count = len(values)
    for rows in _rows(resamples, count):
        # How often each cluster is drawn in each row: counted for all rows at once, then one product of
        # these with the values gives every drawn total.
        drawn = rng.integers(0, count, (rows, count)) + count * np.arange(rows)[:, None]
        times = np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count)
        yield times.astype(np.float64) @ values


def tail_share(clusters: int, confidence: float) -> float:
    """The share of draws to leave out at each end, for the expanded percentile interval."""
    if clusters < 2:
        return 0.0
    wider = math.sqrt(clusters / (clusters - 1)) * student_quantile(clusters - 1, (1 + confidence) / 2)
    return normal_share(-wider)


def corrected(p: Floats, correction: Correction = "holm") -> Floats:
    """p-values of a family of F comparisons, corrected so that any false alarm in it is as rare as alpha.

    `p` is (F,) or (F, M) with a family in each column. Holm (Scandinavian Journal of Statistics 6, 1979)
    multiplies the smallest by F, the next by F - 1 and so on, and lets none fall below a smaller one's.

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
    """Sums (C, K) of the clusters in whole `unit`ths, and how many queries each has (C,)."""

    sums: Floats
    counts: Indices
    unit: float


def _sums(values: Floats, clusters: Indices) -> _Sums:
    if values.ndim != 2 or len(values) != len(clusters) or len(values) == 0:
        raise UsageError(
            f"values {values.shape} and clusters {clusters.shape}: (Q, K) and (Q,), Q > 0 wanted"
        )
    if not bool((np.abs(values) <= 1).all()):
        raise UsageError("values must be fractions: finite, in [-1, 1]")
    _, codes = np.unique(clusters, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    # Any sum of as many clusters as there are, twice over, must fit in the 53 bits of a float.
    unit = 2.0 ** min(40, 51 - (len(counts) * int(counts.max())).bit_length())
    whole = np.rint(values[order] * unit)
    sums = np.add.reduceat(whole, np.cumsum(counts) - counts, axis=0)
    return _Sums(sums, counts.astype(np.int64), unit)
