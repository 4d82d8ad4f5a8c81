"""Test whether a difference of two systems exceeds the variance of trainings and of videos.

Each system is trained several times with other random numbers; each training answers the same queries. The
mean then has two sources of variance, which add up: crossed random effects of training and of video (Baayen,
Davidson and Bates, Journal of Memory and Language 59, 2008). A bootstrap that also resamples trainings finds
too many differences, because three trainings have only ten distinct resamples. Therefore intervals are
Student's t with Satterthwaite's degrees of freedom (Biometrics Bulletin 2, 1946), which are few if trainings
vary more than videos (`benchmarks/trainings_differ.py` measures both methods' false alarms).

The interaction of training and video counts in both parts, so intervals are rather too long than too short.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whenabouts.confidence.quantiles import student_quantile, student_share
from whenabouts.types import UsageError
from whenabouts_bench.evaluation.significance import Floats, Indices


@dataclass(frozen=True)
class OverTrainings:
    """Results of K columns: ends (K, 2) of the mean's interval, two-sided p (K,) of a mean of 0.

    `of_trainings` (K,) is the share of the mean's variance due to trainings.
    """

    ends: Floats
    p: Floats
    of_trainings: Floats


def over_trainings(values: Floats, clusters: Indices, *, confidence: float = 0.95) -> OverTrainings:
    """Means of S trainings' values (S, Q, K) in [-1, 1] over queries in clusters (Q,), with intervals and p.

    Differences of two systems pair their first trainings, their second ones and so on; these may share random
    numbers or a first stage. Raises UsageError for fewer than two trainings or clusters.
    """
    trainings = len(values)
    _, codes, counts = np.unique(clusters, return_inverse=True, return_counts=True)
    if trainings < 2 or len(counts) < 2:
        raise UsageError(f"{trainings} trainings, {len(counts)} videos: two and more of each are wanted")
    by_training = values.mean(axis=1)
    means = by_training.mean(axis=0)
    deviations = np.zeros((len(counts), values.shape[2]))
    np.add.at(deviations, codes, values.mean(axis=0) - means)
    of_videos = (deviations**2).sum(axis=0) * len(counts) / (len(counts) - 1) / len(clusters) ** 2
    of_trainings = by_training.var(axis=0, ddof=1) / trainings
    return _student(means, of_trainings, of_videos, (trainings - 1, len(counts) - 1), confidence)


def _student(
    means: Floats, of_trainings: Floats, of_videos: Floats, freedom: tuple[int, int], confidence: float
) -> OverTrainings:
    variance = of_trainings + of_videos
    moves = variance > 0
    sure = np.where(moves, variance, 1.0)
    degrees = np.where(
        moves, sure**2 / np.maximum(of_trainings**2 / freedom[0] + of_videos**2 / freedom[1], 1e-300), 1.0
    )
    half = np.array([student_quantile(d, (1 + confidence) / 2) for d in degrees]) * np.sqrt(variance)
    p = 2 * np.array(list(map(student_share, degrees, -np.abs(means) / np.sqrt(sure))))
    # Without any variance, the mean is exact.
    p = np.where(moves, p, (means == 0).astype(np.float64))
    ends = np.clip(np.stack([means - half, means + half], axis=1), -1, 1)
    return OverTrainings(ends, p, np.where(moves, of_trainings / sure, 0.0))
