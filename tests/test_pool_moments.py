"""The best moments of pools, against suppression in each video and a merge in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.pool_moments import best_moments
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.overlap import temporal_iou
from whenabouts.types import UsageError


def plainly(
    scores: Any, start: Any, end: Any, pools: Any, iou: float, limit: int
) -> list[list[tuple[int, int]]]:
    """(place, cell) of each query's list: suppression video by video, then one list."""
    lists = []
    for query in range(len(scores)):
        merged = []
        for place, video in enumerate(pools[query]):
            kept: list[int] = []
            for cell in sorted(range(scores.shape[2]), key=lambda c: (-scores[query, place, c], c)):
                span = (start[video, cell], end[video, cell])
                near = any(temporal_iou(*span, start[video, k], end[video, k]) > iou for k in kept)
                if scores[query, place, cell] > -np.inf and not near:
                    kept.append(cell)
            merged += [(-scores[query, place, cell], place, cell) for cell in kept]
        lists.append([(place, cell) for _, place, cell in sorted(merged)[:limit]])
    return lists


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    st.integers(1, 12),
    st.booleans(),
)
def test_the_lists_are_those_of_suppressing_and_merging(
    seed: int, queries: int, places: int, cells: int, iou: float, limit: int, ties: bool
) -> None:
    rng = np.random.default_rng(seed)
    videos = places + 2
    start = rng.integers(0, 20, (videos, cells)).astype(float)
    end = start + rng.integers(1, 10, (videos, cells))
    scores = (
        rng.integers(0, 4, (queries, places, cells)).astype(float)
        if ties
        else rng.normal(size=(queries, places, cells))
    )
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    pools = np.stack([rng.permutation(videos)[:places] for _ in range(queries)])
    best = best_moments(scores, start, end, pools, iou=iou, limit=limit)
    expected = plainly(scores, start, end, pools, iou, limit)
    for query, pairs in enumerate(expected):
        got = list(zip(best.place[query].tolist(), best.cell[query].tolist(), strict=True))
        assert got == pairs + [(-1, -1)] * (limit - len(pairs))


def test_a_pool_larger_than_the_first_look_gives_the_same_list() -> None:
    rng = np.random.default_rng(3)
    cells = 400
    start = np.zeros((3, cells))
    start[:, -50:] = np.arange(50.0) * 20 + 1000
    end = start + 10  # most proposals are equal, so the first candidates have few survivors
    scores = np.sort(rng.normal(size=(2, 3, cells)), axis=2)[:, :, ::-1].copy()
    pools = np.array([[0, 1, 2], [2, 0, 1]])
    best = best_moments(scores, start, end, pools, iou=0.5, limit=40)
    expected = plainly(scores, start, end, pools, 0.5, 40)
    assert [
        list(zip(p, c, strict=True)) for p, c in zip(best.place.tolist(), best.cell.tolist(), strict=True)
    ] == expected
    video = np.take_along_axis(pools, best.place, 1)
    np.testing.assert_array_equal(best.start, start[video, best.cell])


def test_a_batch_mate_changes_nothing() -> None:
    rng = np.random.default_rng(4)
    start = rng.uniform(0, 50, (6, 30))
    end = start + rng.uniform(1, 20, (6, 30))
    scores = rng.normal(size=(8, 3, 30))
    pools = np.stack([rng.permutation(6)[:3] for _ in range(8)])
    whole = best_moments(scores, start, end, pools, iou=0.4, limit=7)
    for query in range(8):
        one = slice(query, query + 1)
        alone = best_moments(scores[one], start, end, pools[one], iou=0.4, limit=7)
        np.testing.assert_array_equal(whole.cell[one], alone.cell)
        np.testing.assert_array_equal(whole.score[one], alone.score)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"iou": 1.5}, "iou is 1.5"),
        ({"limit": 0}, "limit 0"),
        ({"pools": np.zeros((1, 2), np.int64)}, "shapes do not fit"),
        ({"scores": np.full((1, 1, 2), np.nan)}, "score NaN"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], problem: str) -> None:
    right: dict[str, Any] = {
        "scores": np.zeros((1, 1, 2)),
        "start": np.zeros((1, 2)),
        "end": np.ones((1, 2)),
        "pools": np.zeros((1, 1), np.int64),
        "iou": 0.5,
        "limit": 1,
    }
    arguments = right | changes
    with pytest.raises(UsageError, match=problem):
        best_moments(**arguments)
