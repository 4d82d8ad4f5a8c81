"""Temporal IoU and non-maximum suppression, compared with the textbook loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from whenabouts import overlap
from whenabouts.overlap import suppress, temporal_iou, total_order
from whenabouts.types import Moment, UsageError

Spans = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


@st.composite
def spans(draw: st.DrawFn) -> Spans:
    """Groups, starts, ends and scores on small grids, so that ties and equal spans are common."""
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(1, 8), st.integers(-3, 3)),
            max_size=25,
        )
    )
    group = np.array([row[0] for row in rows], dtype=np.int64)
    start = np.array([row[1] for row in rows], dtype=np.float64)
    length = np.array([row[2] for row in rows], dtype=np.float64)
    return group, start, start + length, np.array([row[3] for row in rows], dtype=np.float64)


def iou(start: NDArray[np.float64], end: NDArray[np.float64], i: int, j: int) -> float:
    """Intersection over union of two spans, written out."""
    shared = max(0.0, min(end[i], end[j]) - max(start[i], start[j]))
    return float(shared / (end[i] - start[i] + end[j] - start[j] - shared))


def one_by_one(
    group: NDArray[np.int64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    score: NDArray[np.float64],
    threshold: float,
    limit: int,
) -> list[int]:
    """The textbook loop: take the best, drop what overlaps it, go on."""
    kept: list[int] = []
    for i in sorted(range(len(score)), key=lambda i: (-score[i], group[i], start[i], end[i])):
        rivals = [j for j in kept if group[j] == group[i]]
        if len(rivals) < limit and all(iou(start, end, i, j) <= threshold for j in rivals):
            kept.append(i)
    return kept


@given(spans(), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(1, 5))
def test_all_groups_together_give_what_one_span_at_a_time_gives(
    rows: Spans, threshold: float, limit: int
) -> None:
    assert suppress(*rows, threshold, limit).tolist() == one_by_one(*rows, threshold, limit)


@pytest.mark.slow
@given(spans(), st.sampled_from([0.0, 0.3, 0.7]), st.permutations(range(25)))
def test_the_survivors_do_not_depend_on_the_order_of_arrival(
    rows: Spans, threshold: float, order: list[int]
) -> None:
    group, start, end, score = rows
    shuffled = np.array(order, dtype=np.int64)[: len(score)].argsort()
    straight = suppress(group, start, end, score, threshold, 3)
    again = suppress(group[shuffled], start[shuffled], end[shuffled], score[shuffled], threshold, 3)
    moved = shuffled[again]
    for column in rows:
        assert column[straight].tolist() == column[moved].tolist()


def test_no_survivors_overlap_when_none_may() -> None:
    group = np.zeros(3, dtype=np.int64)
    start, end = np.array([0.0, 4.0, 5.0]), np.array([5.0, 8.0, 9.0])
    assert suppress(group, start, end, np.array([3.0, 2.0, 1.0]), 0.0, 5).tolist() == [0, 2]


def test_nothing_goes_in_and_nothing_comes_out() -> None:
    nothing = np.zeros(0)
    assert len(suppress(np.zeros(0, dtype=np.int64), nothing, nothing, nothing, 0.5, 3)) == 0


def test_equal_scores_are_ordered_by_group_then_start_then_end() -> None:
    order = total_order(
        np.zeros(4), np.array([1, 0, 0, 0]), np.array([0.0, 2.0, 1.0, 1.0]), np.array([9.0, 9.0, 5.0, 4.0])
    )
    assert order.tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize(("threshold", "limit"), [(-0.1, 1), (1.1, 1), (float("nan"), 1), (0.5, 0)])
def test_impossible_settings_are_refused(threshold: float, limit: int) -> None:
    one = np.ones(1)
    with pytest.raises(UsageError):
        suppress(np.zeros(1, dtype=np.int64), 0 * one, one, one, threshold, limit)


def test_a_score_that_is_nan_is_refused() -> None:
    one = np.ones(1)
    with pytest.raises(UsageError, match="NaN"):
        suppress(np.zeros(1, dtype=np.int64), 0 * one, one, one * np.nan, 0.5, 1)


# IoU ----------------------------------------------------------------------------------------------

SECONDS = st.tuples(st.floats(0, 100), st.floats(0.01, 100)).map(lambda t: (t[0], t[0] + t[1]))


@given(SECONDS, SECONDS)
def test_iou_is_that_of_the_moments_and_the_same_either_way(
    a: tuple[float, float], b: tuple[float, float]
) -> None:
    one, other = Moment("v", *a), Moment("v", *b)
    assert temporal_iou(*a, *b) == pytest.approx(one.iou(other), abs=1e-12)
    assert temporal_iou(*a, *b) == temporal_iou(*b, *a)
    assert temporal_iou(*a, *b, "hull") == pytest.approx(temporal_iou(*a, *b), abs=1e-12)
    assert temporal_iou(*a, *a) == pytest.approx(1.0)


def test_iou_keeps_the_type_it_is_given_and_is_zero_at_one_point() -> None:
    single = np.array([1.1], np.float32), np.array([2.7], np.float32)
    assert temporal_iou(*single, *single).dtype == np.float32
    assert temporal_iou(5, 5, 5, 5) == 0
    assert temporal_iou(20, 10, 10, 20) == 0
    assert temporal_iou(np.nan, np.nan, 0, 1) == 0


@pytest.mark.parametrize("iou", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_long_lists_cut_into_neighbourhoods_keep_what_plain_rounds_keep(
    iou: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    count = 3_000
    group = rng.integers(-1, 2, count)
    start = rng.integers(0, 700, count).astype(np.float64)
    end = start + rng.integers(1, 40, count)
    score = rng.integers(0, 50, count).astype(np.float64)
    cut = suppress(group, start, end, score, iou)
    monkeypatch.setattr(overlap, "_LONG_LIST", count + 1)
    np.testing.assert_array_equal(cut, suppress(group, start, end, score, iou))
