"""Find each query's best moments among scored proposals of many videos, by non-maximum suppression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.overlap import Over, temporal_iou
from whenabouts.types import UsageError

_FIRST_LOOK = 256  # candidates per query that are tried first


@dataclass(frozen=True)
class BestMoments:
    """The best moments of Q queries, best first; all arrays are (Q, limit).

    `place` is the video's position in the query's pool, `cell` the proposal; both are -1 in unused entries.
    """

    place: NDArray[np.int64]
    cell: NDArray[np.int64]
    start: NDArray[Any]
    end: NDArray[Any]
    score: NDArray[Any]


def best_moments(
    scores: NDArray[Any],
    start: NDArray[Any],
    end: NDArray[Any],
    pools: NDArray[np.int64],
    *,
    iou: float,
    limit: int,
    over: Over = "union",
) -> BestMoments:
    """The `limit` best survivors of non-maximum suppression, over all videos of each query's pool.

    `scores` (Q, P, C) are the scores of proposal c in the p-th video of query q's pool; -inf if absent.
    `start`, `end` (V, C) are the proposals' seconds in each video; `pools` (Q, P) are video indices. A
    proposal is suppressed by a better survivor in the same video with more than `iou` overlap. The order is
    by score, then place in the pool, then proposal.

    Suppressing per video and merging gives the same as walking down the merged list, so only as many
    proposals are sorted and compared as the `limit` survivors need, for all queries at once.

    Raises UsageError for shapes that do not fit, a NaN score, or an `iou` outside [0, 1].
    """
    queries, places, cells = scores.shape
    if pools.shape != (queries, places) or start.shape != end.shape or start.shape[1:] != (cells,):
        raise UsageError(
            f"shapes do not fit: scores {scores.shape} (Q, P, C), pools {pools.shape} (Q, P), "
            f"start {start.shape} and end {end.shape} (V, C)"
        )
    if not 0.0 <= iou <= 1.0 or limit < 1:
        raise UsageError(f"iou is {iou!r}, limit {limit!r}; accepted: 0 <= iou <= 1, limit >= 1")
    if np.isnan(scores).any():
        raise UsageError("a proposal has the score NaN; give finite scores")
    flat = scores.reshape(queries, places * cells)
    kept = np.full((queries, limit), -1)
    open_queries = np.arange(queries)
    look = min(max(_FIRST_LOOK, 4 * limit), flat.shape[1])
    while len(open_queries):
        candidates = _sorted_candidates(flat[open_queries], look)
        survivors, done = _survivors(candidates, start, end, pools[open_queries], cells, iou, limit, over)
        done |= look == flat.shape[1]
        kept[open_queries[done]] = survivors[done]
        open_queries = open_queries[~done]
        look = min(4 * look, flat.shape[1])
    return _described(kept, flat, start, end, pools, cells)


def _sorted_candidates(flat: NDArray[Any], look: int) -> NDArray[np.int64]:
    """(Q, look) the best proposals of each query in order, -1 after those that are certain.

    The list ends before a score that unseen proposals may share, so that ties are broken by position.
    """
    whole = look == flat.shape[1]
    if whole:
        best = np.broadcast_to(np.arange(look), flat.shape)
    else:
        best = np.sort(np.argpartition(-flat, look - 1, axis=1)[:, :look], axis=1)
    score = np.take_along_axis(flat, best, 1)
    order = np.argsort(-score, axis=1, kind="stable")
    score = np.take_along_axis(score, order, 1)
    certain = np.isfinite(score) if whole else np.isfinite(score) & (score > score[:, -1:])
    return np.where(certain, np.take_along_axis(best, order, 1), -1)


def _survivors(
    candidates: NDArray[np.int64],
    start: NDArray[Any],
    end: NDArray[Any],
    pools: NDArray[np.int64],
    cells: int,
    iou: float,
    limit: int,
    over: Over,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(Q, limit) survivors among the candidates, then -1, and (Q,) whether the list is full."""
    queries, look = candidates.shape
    kept = np.full((queries, limit), -1)
    kept_place = np.full((queries, limit), -1)
    kept_start = np.zeros((queries, limit), start.dtype)
    kept_end = np.zeros((queries, limit), end.dtype)
    count = np.zeros(queries, np.int64)
    active = np.arange(queries)
    for step in range(look):
        candidate = candidates[active, step]
        active = active[(candidate >= 0) & (count[active] < limit)]
        if not len(active):
            break
        candidate = candidates[active, step]
        place, cell = candidate // cells, candidate % cells
        video = pools[active, place]
        begin, stop = start[video, cell], end[video, cell]
        most = int(count[active].max())
        shared = temporal_iou(
            kept_start[active, :most], kept_end[active, :most], begin[:, None], stop[:, None], over
        )
        near = ((shared > iou) & (kept_place[active, :most] == place[:, None])).any(axis=1)
        free = active[~near]
        slot = count[free]
        kept[free, slot], kept_place[free, slot] = candidate[~near], place[~near]
        kept_start[free, slot], kept_end[free, slot] = begin[~near], stop[~near]
        count[free] += 1
    return kept, count == limit


def _described(
    kept: NDArray[np.int64],
    flat: NDArray[Any],
    start: NDArray[Any],
    end: NDArray[Any],
    pools: NDArray[np.int64],
    cells: int,
) -> BestMoments:
    exists = kept >= 0
    safe = np.where(exists, kept, 0)
    place, cell = safe // cells, safe % cells
    video = np.take_along_axis(pools, place, 1)
    return BestMoments(
        place=np.where(exists, place, -1),
        cell=np.where(exists, cell, -1),
        start=np.where(exists, start[video, cell], 0),
        end=np.where(exists, end[video, cell], 0),
        score=np.where(exists, np.take_along_axis(flat, safe, 1), -np.inf),
    )
