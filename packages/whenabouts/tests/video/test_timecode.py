"""Frame rates, time codes, and which frames a span of seconds holds."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.times import can_drop, frame_of, nominal
from whenabouts.types import UsageError
from whenabouts.video.timecode import (
    STANDARD_RATES,
    FrameTimes,
    nearest_rate,
    parse_rate,
    snapped_rate,
    timecode,
)

NTSC, FILM = Fraction(30000, 1001), Fraction(24000, 1001)
# Published examples of drop-frame counting (SMPTE ST 12-1) and plain ones.
GOLDEN = [
    (0, NTSC, True, "00:00:00;00"),
    (1799, NTSC, True, "00:00:59;29"),
    (1800, NTSC, True, "00:01:00;02"),
    (3597, NTSC, True, "00:01:59;29"),
    (3598, NTSC, True, "00:02:00;02"),
    (17981, NTSC, True, "00:09:59;29"),
    (17982, NTSC, True, "00:10:00;00"),
    (107892, NTSC, True, "01:00:00;00"),
    (2589408, NTSC, True, "24:00:00;00"),
    (3600, Fraction(60000, 1001), True, "00:01:00;04"),
    (1800, NTSC, False, "00:01:00:00"),
    (86400, FILM, False, "01:00:00:00"),
    (90001, Fraction(25), False, "01:00:00:01"),
    (119, Fraction(120), False, "00:00:00:119"),
]


def uniform_times(rate: Fraction, frames: int) -> FrameTimes:
    return FrameTimes(np.arange(frames, dtype=np.int64), 1 / rate, frames)


@pytest.mark.parametrize(("frame", "rate", "drop", "code"), GOLDEN)
def test_time_codes_are_as_published(frame: int, rate: Fraction, drop: bool, code: str) -> None:
    assert timecode(frame, rate, drop=drop) == code
    assert frame_of(code, rate) == (frame, drop)


def test_drop_frame_counts_like_one_who_leaves_numbers_out_by_hand() -> None:
    def by_hand() -> list[str]:
        codes = (
            f"00:{minute:02d}:{second:02d};{number:02d}"
            for minute in range(25)
            for second in range(60)
            for number in range(30)
            if not (second == 0 and number < 2 and minute % 10)
        )
        return list(islice(codes, 40_000))

    assert [timecode(frame, NTSC, drop=True) for frame in range(40_000)] == by_hand()


@pytest.mark.parametrize("rate", [FILM, Fraction(25), NTSC, Fraction(60000, 1001)])
@given(frame=st.integers(0, 2_000_000))
def test_time_codes_agree_with_opentimelineio(rate: Fraction, frame: int) -> None:
    otio = pytest.importorskip("opentimelineio")
    time = otio.opentime.RationalTime(frame, float(rate))
    drop = can_drop(rate)
    if frame / rate < 86_400:
        said = otio.opentime.to_timecode(time, float(rate), drop_frame=drop)
        assert timecode(frame, rate, drop=drop) == said


@given(frame=st.integers(0, 10_000_000), rate=st.sampled_from(STANDARD_RATES), drop=st.booleans())
def test_a_time_code_leads_back_to_its_frame(frame: int, rate: Fraction, drop: bool) -> None:
    drop = drop and can_drop(rate)
    assert frame_of(timecode(frame, rate, drop=drop), rate) == (frame, drop)


@given(frame=st.integers(0, 2_589_407))
def test_a_drop_frame_clock_keeps_up_with_the_wall(frame: int) -> None:
    hours, minutes, rest = timecode(frame, NTSC, drop=True).split(":")
    seconds, number = rest.split(";")
    shown = int(hours) * 3600 + int(minutes) * 60 + int(seconds) + int(number) / 30
    # Two frames within ten minutes, and 0.018 frames every ten minutes, which the drops leave over.
    assert abs(shown - frame / NTSC) < 2 / 30 + 0.001 + 0.018 / 30 * (frame / 17982)


@pytest.mark.parametrize(
    ("code", "rate", "told"),
    [
        ("00:01:00;00", NTSC, "skips that number"),
        ("00:01:00;02", Fraction(25), "drop-frame exists"),
        ("00:00:00:25", Fraction(25), "stop at"),
        ("00:60:00:00", Fraction(25), "stop at 59"),
        ("1:2:3", Fraction(25), "is not a time code"),
        ("", Fraction(25), "is not a time code"),
    ],
)
def test_what_is_no_time_code_is_refused(code: str, rate: Fraction, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        frame_of(code, rate)


def test_a_frame_before_the_first_has_no_time_code() -> None:
    with pytest.raises(UsageError, match="before the first"):
        timecode(-1, NTSC)
    with pytest.raises(UsageError, match="drop-frame exists"):
        timecode(10, Fraction(25), drop=True)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("25", Fraction(25)),
        ("23.976", FILM),
        ("29.97", NTSC),
        ("30000/1001", NTSC),
        ("59.94", Fraction(60000, 1001)),
    ],
)
def test_rates_are_read_as_people_write_them(text: str, rate: Fraction) -> None:
    assert parse_rate(text) == rate
    assert nominal(rate) == round(rate)


@pytest.mark.parametrize("text", ["", "abc", "0", "-25", "1/0", "nan", "inf", "100000"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a frame rate"):
        parse_rate(text)


def test_rates_near_a_standard_one_are_that_and_others_are_left() -> None:
    assert nearest_rate(Fraction(30)) == 30
    assert nearest_rate(Fraction(29970, 1000)) == NTSC
    assert nearest_rate(Fraction(25, 2)) == Fraction(25, 2)
    assert snapped_rate(Fraction(179, 6)) == NTSC


def test_a_frame_at_the_start_is_in_and_one_at_the_end_is_out() -> None:
    times = uniform_times(Fraction(25), 100)
    assert times.span(1.0, 2.0) == (25, 50)
    assert times.span(1.02, 2.0) == (26, 50)
    assert times.span(3.96, 9.0) == (99, 100)
    assert times.span(4.0, 9.0) == (100, 100)


@pytest.mark.parametrize("rate", [FILM, NTSC, Fraction(25), Fraction(60000, 1001), Fraction(120)])
def test_times_rounded_to_the_millisecond_find_the_frame_they_were_made_from(rate: Fraction) -> None:
    times = uniform_times(rate, 5000)
    for frame in range(0, 5000, 7):
        assert times.first_at(round(float(times.time(frame)), 3)) == frame
        assert times.first_at(float(times.time(frame))) == frame


steps = st.lists(st.integers(1, 200), min_size=1, max_size=60)


@given(steps=steps, cuts=st.lists(st.floats(0, 12), min_size=3, max_size=3))
def test_a_span_holds_the_frames_shown_in_it_and_neighbours_share_none(
    steps: list[int], cuts: list[float]
) -> None:
    ticks = np.cumsum([0, *steps]).astype(np.int64)
    times = FrameTimes(ticks, Fraction(1, 1000), int(ticks[-1]) + 1)
    for start, end in pairwise(sorted(cuts)):
        first, last = times.span(start, end)
        # One by one, and to half a millisecond, which is to what containers round.
        low, high = (Fraction(round(at * 1_000_000), 1_000_000) - Fraction(1, 2000) for at in (start, end))
        inside = [n for n, tick in enumerate(ticks.tolist()) if low <= Fraction(tick, 1000) < high]
        assert list(range(first, last)) == inside
    a, b, c = sorted(cuts)
    assert times.span(a, b)[1] == times.span(b, c)[0]


def test_even_times_have_a_rate_although_the_container_rounds_them() -> None:
    milliseconds = np.array([round(n * 1001 / 30) for n in range(500)], np.int64)
    times = FrameTimes(milliseconds, Fraction(1, 1000), 16683)
    assert times.rate(None) == (NTSC, True)
    assert times.rate(Fraction(30)) == (NTSC, True)  # what the container says is only believed if it fits


def test_uneven_times_have_no_constant_rate_but_a_usual_one() -> None:
    ticks = np.cumsum([0, *[40] * 50, 120, *[40] * 50]).astype(np.int64)
    assert FrameTimes(ticks, Fraction(1, 1000), int(ticks[-1]) + 40).rate(Fraction(24)) == (
        Fraction(25),
        False,
    )


def test_a_single_frame_has_the_rate_that_is_stated() -> None:
    assert uniform_times(Fraction(25), 1).rate(Fraction(30)) == (Fraction(30), True)
    assert len(uniform_times(Fraction(25), 1)) == 1
