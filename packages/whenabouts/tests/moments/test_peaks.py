"""Spoken moments: peaks of a fused curve and the stretch around each."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.moments.peaks import Config, find_peaks
from whenabouts.types import UsageError


def grid(count: int, seconds: float = 15.0) -> tuple[np.ndarray, np.ndarray]:
    start = np.arange(count) * seconds
    return start, start + seconds


def test_a_hump_is_one_moment_of_what_is_nearly_as_high() -> None:
    start, end = grid(10)
    found = find_peaks([0, 0, 1, 9, 10, 9, 1, 0, 0, 0], start, end, [0, 10], Config(count=1))
    assert (found.peak[0], found.first[0], found.last[0]) == (4, 3, 5)


def test_the_next_peak_of_a_video_keeps_away_and_another_video_does_not_have_to() -> None:
    start, end = grid(40)
    score = np.zeros(80)
    score[[10, 14, 30]], score[50] = [9, 8, 5], 7
    times = np.tile(start, 2), np.tile(end, 2)
    found = find_peaks(score, *times, [0, 40, 80], Config(apart_share=1.0, count=3))
    assert found.peak.tolist() == [10, 50, 30]


def test_a_short_video_may_have_moments_seconds_apart() -> None:
    start, end = grid(5, 1.2)
    found = find_peaks([9, 0, 0, 8, 0], start, end, [0, 5])
    assert found.peak[:2].tolist() == [0, 3]


def test_a_moment_stops_at_a_silence_and_at_its_reach() -> None:
    start = np.array([0.0, 15.0, 300.0])
    found = find_peaks([9.0, 9.5, 9.4], start, start + 15, [0, 3], Config(count=1))
    assert (found.first[0], found.last[0]) == (0, 1)
    start, end = grid(100)
    found = find_peaks(np.full(100, 3.0), start, end, [0, 100], Config(count=1))
    assert end[found.last[0]] - start[found.first[0]] <= 2 * Config().reach_seconds


def test_below_zero_a_moment_is_its_peak_alone() -> None:
    start, end = grid(3)
    found = find_peaks([-2.0, -1.0, -1.1], start, end, [0, 3], Config(count=1))
    assert (found.first[0], found.last[0]) == (1, 1)


def test_videos_without_clips_and_no_clips_at_all_yield_nothing() -> None:
    assert len(find_peaks([], [], [], [0])) == 0
    assert len(find_peaks([], [], [], [0, 0, 0])) == 0
    assert find_peaks([1.0], [0.0], [5.0], [0, 0, 1, 1]).peak.tolist() == [0]


@pytest.mark.parametrize(
    ("score", "start", "offsets"),
    [([1.0], [0.0, 1.0], [0, 1]), ([np.nan], [0.0], [0, 1]), ([1.0], [0.0], [0, 2]), ([1.0], [0.0], [])],
)
def test_curves_that_do_not_fit_are_refused(
    score: list[float], start: list[float], offsets: list[int]
) -> None:
    with pytest.raises(UsageError):
        find_peaks(score, start, [5.0], offsets)


@pytest.mark.parametrize("wrong", [{"share": 0.0}, {"share": 1.5}, {"reach_seconds": -1.0}, {"count": 0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Config(**wrong)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 20), max_size=4), st.integers(0, 2**32 - 1))
def test_moments_are_best_first_whole_and_share_no_clip(counts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(int)
    total = int(offsets[-1])
    score, start = rng.normal(0, 5, total), np.sort(rng.uniform(0, 500, total))
    for low, high in pairwise(offsets):
        start[low:high] = np.sort(rng.uniform(0, 500, high - low))
    end = start + rng.uniform(1, 20, total)
    found = find_peaks(score, start, end, offsets)
    owner = np.searchsorted(offsets, found.peak, side="right") - 1
    assert (np.diff(score[found.peak]) <= 0).all()
    assert (found.first <= found.peak).all()
    assert (found.peak <= found.last).all()
    covered = np.zeros(total, int)
    for video, first, last in zip(owner, found.first, found.last, strict=True):
        assert offsets[video] <= first
        assert last < offsets[video + 1]
        covered[first : last + 1] += 1
    assert (covered <= 1).all()
    if total:
        assert found.peak[0] == np.argmax(score)


@given(st.integers(0, 2**32 - 1))
def test_a_video_yields_the_same_moments_whatever_else_is_searched(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start, end = grid(30)
    one, other = rng.normal(0, 5, 30), rng.normal(0, 5, 30)
    alone = find_peaks(one, start, end, [0, 30])
    both = find_peaks(np.append(other, one), np.tile(start, 2), np.tile(end, 2), [0, 30, 60])
    mine = both.peak >= 30
    assert (both.peak[mine] - 30).tolist() == alone.peak.tolist()
    assert (both.first[mine] - 30).tolist() == alone.first.tolist()
