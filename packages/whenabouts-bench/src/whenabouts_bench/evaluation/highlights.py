"""Measure how well clip scores identify salient clips, per query, as QVHighlights does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import Query, UsageError
from whenabouts_bench.formats.annotations import Floats

CLIP_SECONDS = 2
"""Length of a clip that annotators graded."""
ANNOTATORS = 3


@dataclass(frozen=True)
class Highlights:
    """Grades and scores of the clips of Q queries, padded to the longest video.

    `grades` (Q, C, 3), `clip_exists` (Q, C), `scores` (Q, C); `best_clip` (Q,) is the clip with the highest
    score, even beyond the end of the video.
    """

    grades: NDArray[np.int64]
    clip_exists: NDArray[np.bool_]
    scores: Floats
    best_clip: NDArray[np.int64]


def highlights_of(
    queries: Sequence[Query], durations: Sequence[float], saliency: Mapping[str, Floats]
) -> Highlights:
    """Grades from the queries' metadata (0 for irrelevant clips) and scores of a run.

    As in the released program, scores beyond the last whole clip are dropped, and missing ones are 0. Raises
    UsageError for grades that do not fit the clips.
    """
    clips = [int(duration / CLIP_SECONDS) for duration in durations]
    widest = max([1, *clips])
    grades = np.zeros((len(queries), widest, ANNOTATORS), np.int64)
    scores = np.zeros((len(queries), widest))
    best_clip = np.zeros(len(queries), np.int64)
    for number, (query, length) in enumerate(zip(queries, clips, strict=True)):
        labels = [query.metadata.get(name, []) for name in ("relevant_clip_ids", "saliency_scores")]
        try:
            ids, graded = (np.array(label, np.int64) for label in labels)
            fits = len(graded) == len(ids) and graded.size == ANNOTATORS * len(ids)
            fits = fits and ids.min(initial=0) >= 0 and ids.max(initial=-1) < length
        except (TypeError, ValueError, OverflowError):
            fits = False
        if not fits:
            raise UsageError(
                f"query {query.id!r}: relevant clips {labels[0]!r:.60} with grades {labels[1]!r:.60}; "
                f"accepted: {ANNOTATORS} grades for each clip, and clips of {CLIP_SECONDS} s inside its "
                f"video ({durations[number]:g} s)"
            )
        grades[number, ids] = graded.reshape(-1, ANNOTATORS)
        given = np.asarray(saliency.get(query.id, ()), np.float64)
        scores[number, : min(len(given), length)] = given[:length]
        best_clip[number] = int(np.argmax(given)) if len(given) else length
    exists = np.arange(widest) < np.array(clips, np.int64)[:, None]
    return Highlights(grades, exists, scores, best_clip)


def hit_at_one(highlights: Highlights, least: int) -> Floats:
    """(Q,) whether some annotator graded the best-scored clip at least `least`."""
    queries, widest = highlights.clip_exists.shape
    inside = highlights.best_clip < highlights.clip_exists.sum(axis=1)
    clip = np.minimum(highlights.best_clip, widest - 1)
    graded = highlights.grades[np.arange(queries), clip].max(axis=1, initial=0)
    return np.asarray(inside & (graded >= least), np.float64)


def average_precision(highlights: Highlights, least: int) -> Floats:
    """(Q,) AP of the clips' scores for clips graded at least `least`, averaged over annotators.

    Precision is interpolated and averaged over the distinct scores at which recall grows (ties form a group).
    An annotator who graded no clip high enough contributes 0.
    """
    values = [
        _precision(highlights.grades[:, :, who] >= least, highlights.scores, highlights.clip_exists)
        for who in range(ANNOTATORS)
    ]
    return np.asarray(np.mean(values, axis=0), np.float64)


def _precision(positive: NDArray[np.bool_], scores: Floats, exists: NDArray[np.bool_]) -> Floats:
    positive = positive & exists
    order = np.argsort(np.where(exists, -scores, np.inf), axis=1, kind="stable")
    hits = np.cumsum(np.take_along_axis(positive, order, 1), axis=1)
    sorted_scores = np.take_along_axis(np.where(exists, scores, -np.inf), order, 1)
    ends = np.ones(hits.shape, bool)
    ends[:, :-1] = sorted_scores[:, :-1] != sorted_scores[:, 1:]
    ends &= np.take_along_axis(exists, order, 1)
    precision = np.where(ends, hits / np.arange(1, hits.shape[1] + 1), 0.0)
    later = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    # Hits up to the previous group of equal scores: recall grows if a group adds hits.
    before = np.maximum.accumulate(np.where(ends, hits, 0), axis=1)
    before = np.concatenate([np.zeros((len(hits), 1), hits.dtype), before[:, :-1]], axis=1)
    grows = ends & (hits > before)
    total, count = np.where(grows, later, 0.0).sum(axis=1), grows.sum(axis=1)
    values: Floats = np.divide(total, count, out=np.zeros(len(hits)), where=count > 0)
    return values
