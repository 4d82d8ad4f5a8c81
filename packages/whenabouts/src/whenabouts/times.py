"""Parsing and formatting of times. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction

from whenabouts.types import LONGEST_SECONDS, Moment, UsageError

_CLOCK = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:[.,]\d+)?)s?")
_TIMECODE = re.compile(r"(\d{2,9}):(\d\d):(\d\d)([:;.])(\d{2,3})")
_CODES = "HH:MM:SS:FF, or HH:MM:SS;FF for drop-frame"
_ACCEPTED = f"seconds (12.5), m:ss (0:12.5), h:mm:ss (1:02:03.250) or a time code ({_CODES})"
# Between start and end: a hyphen, or a dash from an editor's autocorrection.
_DASH = re.compile("[-\u2010-\u2015\u2212]")
_MOST_DIGITS = 18
_DATE = re.compile(r"(\d{4})(?:-(\d\d))?")


def parse_seconds(text: str, rate: Fraction | None = None) -> float:
    """Seconds of a time as users and ffmpeg write it, or of a time code (SMPTE) at `rate` frames per second.

    >>> parse_seconds("12.5"), parse_seconds("0:12.500"), parse_seconds("1:02:03"), parse_seconds("7s")
    (12.5, 12.5, 3723.0, 7.0)
    >>> parse_seconds("00:01:02:12", Fraction(25))
    62.48
    """
    if is_timecode(text):
        if rate is None:
            raise UsageError(
                f"{text!r} counts frames, and the frame rate of that video is not known here; write seconds"
            )
        return _in_a_recording(float(frame_of(text, rate)[0] / rate), text)
    match = _CLOCK.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a time; write {_ACCEPTED}")
    hours, minutes, seconds = match.groups()
    value = float(seconds.replace(",", "."))
    if minutes is not None and (value >= 60 or (hours is not None and float(minutes) >= 60)):
        raise UsageError(f"{text!r}: minutes and seconds stop at 59; write {_ACCEPTED}")
    return _in_a_recording(float(hours or 0) * 3600 + float(minutes or 0) * 60 + value, text)


def _in_a_recording(seconds: float, text: str) -> float:
    if seconds > LONGEST_SECONDS:
        raise UsageError(f"{text!r} is after the end of any recording; write a time within 31 days")
    return seconds


def is_timecode(text: str) -> bool:
    """Whether a time ends with a frame number: HH:MM:SS:FF or HH:MM:SS;FF."""
    match = _TIMECODE.fullmatch(text.strip())
    return match is not None and match[4] != "."


def format_time(seconds: float, decimals: int = 3) -> str:
    """A time as H:MM:SS.mmm, hours only if there are any, with `decimals` (at least one).

    >>> format_time(62.25), format_time(3723), format_time(75, 1)
    ('1:02.250', '1:02:03.000', '1:15.0')
    """
    whole, fraction = divmod(round(seconds * 10**decimals), 10**decimals)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    tail = f"{second:02d}.{fraction:0{decimals}d}"
    return f"{hours}:{minute:02d}:{tail}" if hours else f"{minute}:{tail}"


def parse_moment(
    text: str, rate_of: Callable[[str], Fraction | None] = lambda video: None
) -> tuple[str, float, float]:
    """Video, start and end of `VIDEO@START-END`; the video may be any name that the corpus resolves.

    `rate_of` gives a video's frames per second, for time codes.

    >>> parse_moment("my@holiday.mp4@0:05-7.5")
    ('my@holiday.mp4', 5.0, 7.5)
    """
    video, at, span = text.rpartition("@")
    start, *end = _DASH.split(span, maxsplit=1)
    if not (video and at and end):
        raise UsageError(
            f"{text!r} is not a moment; write VIDEO@START-END, for example friday.mp4@0:01-0:03.5"
        )
    rate = rate_of(video) if is_timecode(start) or is_timecode(end[0]) else None
    first, last = parse_seconds(start, rate), parse_seconds(end[0], rate)
    Moment(video, first, last)
    return video, first, last


def parse_instant(
    text: str, rate_of: Callable[[str], Fraction | None] = lambda video: None
) -> tuple[str, float]:
    """Video and time of `VIDEO@TIME`, as in `parse_moment`.

    >>> parse_instant("friday.mp4@0:01.5")
    ('friday.mp4', 1.5)
    """
    video, at, time = text.rpartition("@")
    if not (video and at and time):
        raise UsageError(f"{text!r} is not an instant; write VIDEO@TIME, for example friday.mp4@0:01.5")
    return video, parse_seconds(time, rate_of(video) if is_timecode(time) else None)


def parse_date(text: str) -> datetime:
    """The instant of an ISO date, date and time, month or year (its first day), in UTC if no zone is given.

    >>> parse_date("2024-05-01").isoformat(), parse_date("2018").isoformat()
    ('2024-05-01T00:00:00+00:00', '2018-01-01T00:00:00+00:00')
    """
    short = _DATE.fullmatch(text.strip())
    try:
        value = datetime.fromisoformat(f"{short[1]}-{short[2] or '01'}-01" if short else text.strip())
    except ValueError:
        raise UsageError(f"{text!r} is not a date; write 2024, 2024-05-01 or 2024-05-01T13:30") from None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def whole_number(text: str) -> int | None:
    """A whole number of at most 18 ASCII digits; None for any other text.

    >>> whole_number("120"), whole_number("-1"), whole_number("²"), whole_number("9" * 5000)
    (120, None, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def nominal(rate: Fraction) -> int:
    """The whole number of frames per second in a time code.

    >>> nominal(Fraction(24000, 1001)), nominal(Fraction(30000, 1001)), nominal(Fraction(25))
    (24, 30, 25)
    """
    return max(1, round(rate))


def can_drop(rate: Fraction) -> bool:
    """Whether drop-frame counting exists for a rate: 29.97, 59.94, 119.88."""
    return rate.denominator == 1001 and nominal(rate) % 30 == 0


def frame_of(code: str, rate: Fraction) -> tuple[int, bool]:
    """The frame of a time code, counted from 0, and whether it is drop-frame (a semicolon or a point).

    >>> frame_of("00:01:00;02", Fraction(30000, 1001)), frame_of("01:00:00:00", Fraction(25))
    ((1800, True), (90000, False))

    Raises UsageError for an invalid time code at that rate, such as a number that drop-frame skips.
    """
    match = _TIMECODE.fullmatch(code.strip())
    if not match:
        raise UsageError(f"{code!r} is not a time code; write {_CODES}")
    hour, minute, second, number = (int(match[group]) for group in (1, 2, 3, 5))
    base, drop = nominal(rate), match[4] != ":"
    if minute > 59 or second > 59 or number >= base:
        raise UsageError(f"{code!r}: minutes and seconds stop at 59, frames at {base - 1} at this rate")
    if drop and not can_drop(rate):
        raise UsageError(
            f"{code!r}: drop-frame exists at 29.97, 59.94 and 119.88 frames a second only; use ':'"
        )
    minutes = 60 * hour + minute
    frame = (60 * minutes + second) * base + number
    if not drop:
        return frame, False
    left_out = base // 15
    if minute % 10 and second == 0 and number < left_out:
        raise UsageError(f"{code!r}: drop-frame skips that number; the minute begins with ;{left_out:02d}")
    return frame - left_out * (minutes - minutes // 10), True
