from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.times import format_time, parse_date, parse_moment, parse_seconds
from whenabouts.types import UsageError


@given(st.integers(0, 10**9))
def test_what_is_shown_can_be_typed_back(milliseconds: int) -> None:
    assert parse_seconds(format_time(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, abs=1e-6)


@pytest.mark.parametrize("text", ["", "abc", "1:75", "1:60:00", "-3", "1::2", "nan", "1e5", "12 5"])
def test_what_is_no_time_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(UsageError, match="h:mm:ss"):
        parse_seconds(text)


@pytest.mark.parametrize(
    "text", ["8" + "0" * 305, "9" * 400, f"{'9' * 400}:00", "999999999:00:00:00", "2678401"]
)
def test_a_time_after_any_recording_is_refused_before_anything_multiplies_it(text: str) -> None:
    with pytest.raises(UsageError, match="31 days"):
        parse_seconds(text, Fraction(25))
    assert parse_seconds("744:00:00") == 31 * 86_400


def test_a_time_code_is_read_at_its_rate_and_refused_without_one() -> None:
    ntsc = Fraction(30000, 1001)
    assert parse_seconds("00:01:02:12", Fraction(25)) == 62.48
    assert parse_seconds("00:01:00;02", ntsc) == pytest.approx(1800 / ntsc)
    for text, told in (("00:00:01:05", "frame rate"), ("00:00:01;05", "frame rate")):
        with pytest.raises(UsageError, match=told):
            parse_seconds(text)
    with pytest.raises(UsageError, match="frames at 24"):
        parse_seconds("00:00:01:25", Fraction(25))


@pytest.mark.parametrize("dash", ["-", "–", "—", "‒", "−", " – "])
def test_start_and_end_may_be_parted_by_any_dash(dash: str) -> None:
    assert parse_moment(f"a-b@c.mp4@0:01{dash}0:03.5") == ("a-b@c.mp4", 1.0, 3.5)
    asked: list[str] = []

    def rate_of(video: str) -> Fraction:
        asked.append(video)
        return Fraction(25)

    assert parse_moment(f"a.mp4@00:00:01:05{dash}2.5", rate_of) == ("a.mp4", 1.2, 2.5)
    assert parse_moment("a.mp4@1-2", rate_of) == ("a.mp4", 1, 2) and asked == ["a.mp4"]


@pytest.mark.parametrize("text", ["friday.mp4", "friday@3", "@1-2", "friday@5-2", "friday@1-"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_moment(text)


def test_dates_without_a_zone_are_utc_and_others_keep_theirs() -> None:
    assert parse_date("2018") == parse_date("2018-01-01") and parse_date("2018-05") == parse_date(
        "2018-05-01"
    )
    assert parse_date("2024-05-01T10:00").utcoffset() is not None
    assert parse_date("2024-05-01T10:00+02:00") == parse_date("2024-05-01T08:00")
    for text in ("yesterday", "2018-13", "18"):
        with pytest.raises(UsageError, match="2024-05-01"):
            parse_date(text)
