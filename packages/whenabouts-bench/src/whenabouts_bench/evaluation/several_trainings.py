"""Test whether a difference of two systems exceeds the variance of trainings and of videos.

Each system is trained several times with other random numbers; each training answers the same queries. The
mean then has two sources of variance, which add up: crossed random effects of training and of video (Baayen,
Davidson and Bates, Journal of Memory and Language 59, 2008). A bootstrap that also resamples trainings finds
too many differences, because three trainings have only ten distinct resamples. Therefore intervals are
Student's t.

Two or three trainings say little about how much trainings vary: they agree by luck, and Satterthwaite's
degrees of freedom, estimated from them, then find a p of 0.001 ten times too often. So the variance is pooled
over all systems that are compared (`pooled_variance`); a pair that varies more counts with its own. Pooled
degrees of freedom from `ENOUGH` on are combined with those of videos as Satterthwaite does (Biometrics
Bulletin 2, 1946). Fewer are taken as they are, as if all variance were of trainings, which never promises too
much (Hsu, Statistical Research Memoirs 2, 1938). `benchmarks/trainings_differ.py` measures the false alarms.

The interaction of training and video counts in both parts, so intervals are rather too long than too short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whenabouts.confidence.quantiles import student_quantile, student_share
from whenabouts.types import UsageError
from whenabouts_bench.evaluation.significance import Floats, Indices

ENOUGH = 12
"""Degrees of freedom of trainings that are combined with those of videos: six systems, three times each."""


@dataclass(frozen=True)
class Pooled:
    """The `variance` (K,) of one training of K columns, and its degrees of freedom."""

    variance: Floats
    degrees: int

    @property
    def of_difference(self) -> Pooled:
        """The same for the difference of two systems, whose variance is twice as large."""
        return Pooled(2 * self.variance, self.degrees)


def pooled_variance(systems: Sequence[Floats]) -> Pooled:
    """The variance of a training, from values (S, Q, K) of each system; numbers of trainings S may differ.

    Raises UsageError if no system has two trainings.
    """
    degrees = [len(values) - 1 for values in systems]
    if not sum(degrees):
        raise UsageError("no system was trained twice: how much trainings vary is unknown")
    squares = [((mean - mean.mean(axis=0)) ** 2).sum(axis=0) for mean in (v.mean(axis=1) for v in systems)]
    return Pooled(np.asarray(sum(squares) / sum(degrees)), sum(degrees))


@dataclass(frozen=True)
class OverTrainings:
    """Results of K columns: ends (K, 2) of the mean's interval, two-sided p (K,) of a mean of 0."""

    ends: Floats
    p: Floats


def over_trainings(
    values: Floats, clusters: Indices, pooled: Pooled | None = None, *, confidence: float = 0.95
) -> OverTrainings:
    """Means of S trainings' values (S, Q, K) in [-1, 1] over queries in clusters (Q,), with intervals and p.

    `pooled` is the variance of a training of these columns over more systems; without it, only these
    trainings tell. Differences of two systems pair their first trainings, their second ones and so on; these
    may share random numbers or a first stage. Raises UsageError for fewer than two trainings or clusters.
    """
    trainings = len(values)
    _, codes, counts = np.unique(clusters, return_inverse=True, return_counts=True)
    if trainings < 2 or len(counts) < 2:
        raise UsageError(f"{trainings} trainings, {len(counts)} videos: give at least two of each")
    by_training = values.mean(axis=1)
    means = by_training.mean(axis=0)
    deviations = np.zeros((len(counts), values.shape[2]))
    np.add.at(deviations, codes, values.mean(axis=0) - means)
    of_videos = (deviations**2).sum(axis=0) * len(counts) / (len(counts) - 1) / len(clusters) ** 2
    of_trainings = by_training.var(axis=0, ddof=1) / trainings
    freedom = trainings - 1
    if pooled is not None:
        of_trainings, freedom = np.maximum(of_trainings, pooled.variance / trainings), pooled.degrees
    return _student(means, of_trainings, of_videos, (freedom, len(counts) - 1), confidence)


def _student(
    means: Floats, of_trainings: Floats, of_videos: Floats, freedom: tuple[int, int], confidence: float
) -> OverTrainings:
    variance = of_trainings + of_videos
    moves = variance > 0
    positive_variance = np.where(moves, variance, 1.0)
    degrees = np.full(len(means), float(min(freedom)))
    if freedom[0] >= ENOUGH:
        both = of_trainings**2 / freedom[0] + of_videos**2 / freedom[1]
        degrees = np.where(moves, positive_variance**2 / np.maximum(both, 1e-300), 1.0)
    distinct, place = np.unique(degrees, return_inverse=True)
    quantiles = np.array([student_quantile(d, (1 + confidence) / 2) for d in distinct])
    half = quantiles[place] * np.sqrt(variance)
    p = 2 * np.array(list(map(student_share, degrees, -np.abs(means) / np.sqrt(positive_variance))))
    # Without any variance, the mean is exact.
    p = np.where(moves, p, (means == 0).astype(np.float64))
    ends = np.clip(np.stack([means - half, means + half], axis=1), -1, 1)
    return OverTrainings(ends, p)
