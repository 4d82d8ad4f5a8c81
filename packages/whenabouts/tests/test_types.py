from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.index.records import StoreError
from whenabouts.intake.files import FormatError
from whenabouts.types import Moment, Query, ScoredMoment, UsageError, Video, WhenaboutsError


def spans() -> st.SearchStrategy[Moment]:
    times = st.floats(0, 1e5, allow_nan=False)
    return (
        st.tuples(st.sampled_from(["a", "b"]), times, times)
        .filter(lambda t: t[1] < t[2])
        .map(lambda t: Moment(*t))
    )


@pytest.mark.parametrize(
    ("start", "end"), [(1.0, 1.0), (2.0, 1.0), (-1.0, 1.0), (0.0, math.inf), (math.nan, 1.0), (0.0, math.nan)]
)
def test_a_moment_refuses_a_span_that_is_no_span(start: float, end: float) -> None:
    with pytest.raises(UsageError, match="holiday"):
        Moment("holiday", start, end)


@given(spans(), spans())
def test_iou_is_symmetric_bounded_and_one_only_for_the_same_span(a: Moment, b: Moment) -> None:
    assert a.iou(b) == pytest.approx(b.iou(a))
    assert 0 <= a.iou(b) <= 1
    assert a.iou(a) == 1
    if a.video_id != b.video_id:
        assert a.iou(b) == 0


def test_touching_spans_share_nothing_because_spans_are_half_open() -> None:
    assert Moment("a", 0, 5).iou(Moment("a", 5, 9)) == 0


def test_order_is_score_first_then_the_moment() -> None:
    found = [
        ScoredMoment(Moment("b", 0, 1), 0.5),
        ScoredMoment(Moment("a", 3, 4), 0.5),
        ScoredMoment(Moment("a", 0, 1), -2.0),
        ScoredMoment(Moment("c", 0, 1), 0.9),
    ]
    ordered = sorted(found, key=lambda m: m.sort_key)
    assert [m.moment.video_id for m in ordered] == ["c", "a", "b", "a"]


@pytest.mark.parametrize("duration", [-1.0, math.nan, math.inf])
def test_a_video_refuses_a_duration_that_is_no_length_of_time(duration: float) -> None:
    with pytest.raises(UsageError, match="duration"):
        Video("v", duration)


def test_a_video_and_a_query_with_metadata_can_be_in_a_set() -> None:
    assert len({Video("a", 1.0, metadata={"camera": "drone"}), Video("a", 1.0), Query("q", "a dog")}) == 3


def test_a_refused_moment_is_named_in_one_line() -> None:
    with pytest.raises(UsageError) as refused:
        Moment("a\nwhenabouts: all is well\x1b[2J", 2, 1)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("kind", [WhenaboutsError, UsageError, FormatError, StoreError])
def test_an_error_is_one_line_of_bounded_length_whatever_its_parts_hold(kind: Any) -> None:
    raw = "a name\n\x1b[31m \u202e\x00 \ud800 and a library's words"
    error = kind("file", raw) if kind is FormatError else kind(raw)
    assert str(error).endswith("a name [31m \\ud800 and a library's words")
    words = "x" * 5000 + "; the remedy"
    long = kind("file", words) if kind is FormatError else kind(words)
    assert len(str(long)) == 2000
    assert str(long).endswith("x; the remedy")
    persian = "می\u200cخواهم"
    assert persian in str(kind("file", persian) if kind is FormatError else kind(persian))
