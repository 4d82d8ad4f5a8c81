from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.clips import ClipGrid
from whenabouts.types import UsageError

grids = st.builds(
    ClipGrid,
    clip_seconds=st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, 1 / 3, 0.04]),
    duration=st.floats(0.05, 5000),
)


@given(grids)
def test_the_clips_tile_the_video_without_gap_or_overlap(grid: ClipGrid) -> None:
    assert grid.bounds(0)[0] == 0
    assert grid.bounds(len(grid) - 1)[1] == pytest.approx(grid.duration)
    for index in (0, len(grid) // 2, len(grid) - 1):
        start, end = grid.bounds(index)
        assert start < end
        assert grid.index_at(start) == index


@given(grids, st.data())
def test_seconds_to_span_and_back_covers_what_was_asked_for(grid: ClipGrid, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(grid) - 1))
    last = data.draw(st.integers(first, len(grid) - 1))
    assert grid.span_of(*grid.seconds_of(first, last)) == (first, last)


def test_a_span_that_ends_on_a_border_does_not_enter_the_next_clip() -> None:
    grid = ClipGrid(2.0, 20.0)
    assert grid.span_of(2.0, 4.0) == (1, 1)
    assert grid.span_of(2.0, 4.1) == (1, 2)


def test_tenths_of_seconds_that_floats_cannot_hold_still_fall_into_their_clip() -> None:
    grid = ClipGrid(0.1, 10.0)
    assert [grid.index_at(i * 0.1) for i in range(100)] == list(range(100))


def test_instants_outside_fall_into_the_first_or_last_clip() -> None:
    grid = ClipGrid(2.0, 9.0)
    assert (grid.index_at(-5.0), grid.index_at(99.0)) == (0, 4)


def test_faults_name_the_value() -> None:
    with pytest.raises(UsageError, match=r"0\.0"):
        ClipGrid(0.0, 5.0)
    with pytest.raises(UsageError, match="clip 9"):
        ClipGrid(2.0, 5.0).bounds(9)
    with pytest.raises(UsageError, match="no clip"):
        ClipGrid(2.0, 0.0).index_at(1.0)
    with pytest.raises(UsageError, match="reversed"):
        ClipGrid(2.0, 5.0).seconds_of(2, 1)
