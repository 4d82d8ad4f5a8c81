"""Stretches of videos, against a plain count on a grid."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.index.spans import WHOLE, Spans
from whenabouts.types import Moment

STRETCHES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=8)


def spans_of(stretches: list[tuple[int, int]]) -> Spans:
    starts = [start for start, _ in stretches]
    return Spans.of(["a"] * len(starts), starts, [start + length for start, length in stretches])


def seconds(spans: Spans) -> set[int]:
    return {
        at
        for start, end in spans.by_video.get("a", np.zeros((0, 2)))
        for at in range(int(start), min(int(min(end, 60)), 60))
    }


@given(STRETCHES, STRETCHES)
def test_they_join_meet_and_turn_round_as_sets_of_seconds(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    first, second = spans_of(one), spans_of(other)
    expected = {at for start, length in one for at in range(start, start + length)}
    assert seconds(first) == expected
    assert seconds(first & second) == expected & seconds(second)
    assert seconds(first.outside(["a"])) == set(range(60)) - expected
    assert seconds(first.outside(["a"]).outside(["a"])) == expected
    borders = first.by_video.get("a", np.zeros((0, 2)))
    assert (np.diff(borders.ravel()) > 0).all()


@given(STRETCHES, st.integers(0, 40), st.integers(1, 9))
def test_a_clip_touches_what_it_shares_time_with_and_is_cut_to_it(
    stretches: list[tuple[int, int]], start: int, length: int
) -> None:
    spans, clip = spans_of(stretches), range(start, start + length)
    shared = sorted(seconds(spans) & set(clip))
    touched = spans.touch(
        ["a", "b"], np.array([start, start], float), np.array([clip.stop, clip.stop], float)
    )
    assert touched.tolist() == [bool(shared), False]
    moment = spans.cut(Moment("a", start, clip.stop))
    assert (moment is not None) == bool(shared)
    if moment is not None:
        assert (moment.start, moment.end) == (shared[0], shared[-1] + 1)


def test_a_whole_video_holds_everything() -> None:
    spans = spans_of([(1, 2)]).with_whole(["b"])
    assert spans.cut(Moment("b", 5, 9)) == Moment("b", 5, 9)
    assert np.array_equal((spans & Spans({"b": WHOLE})).by_video["b"], WHOLE)
    assert spans.cut(Moment("c", 0, 1)) is None
    assert not Spans.of([], [], []).by_video


def test_whole_videos_of_a_large_corpus_take_no_time() -> None:
    some, whole = Spans.of(["a"], [1.0], [2.0]), Spans({}).outside(["a"])
    assert whole.by_video["a"] is WHOLE
    assert (whole & some).by_video["a"] is (some & whole).by_video["a"] is some.by_video["a"]
