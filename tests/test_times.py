from __future__ import annotations

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


@pytest.mark.parametrize("text", ["friday.mp4", "friday@3", "@1-2", "friday@5-2", "friday@1-"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_moment(text)


def test_dates_without_a_zone_are_utc_and_others_keep_theirs() -> None:
    assert parse_date("2024-05-01T10:00").utcoffset() is not None
    assert parse_date("2024-05-01T10:00+02:00") == parse_date("2024-05-01T08:00")
    with pytest.raises(UsageError, match="2024-05-01"):
        parse_date("yesterday")
