"""Times as people write and read them. Standard library only."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from whenabouts.types import Moment, UsageError

_CLOCK = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:[.,]\d+)?)s?")
_ACCEPTED = "seconds (12.5), m:ss (0:12.5) or h:mm:ss (1:02:03.250)"


def parse_seconds(text: str) -> float:
    """Seconds of a time as ffmpeg and people write it.

    >>> parse_seconds("12.5"), parse_seconds("0:12.500"), parse_seconds("1:02:03"), parse_seconds("7s")
    (12.5, 12.5, 3723.0, 7.0)
    """
    match = _CLOCK.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is no time; write {_ACCEPTED}")
    hours, minutes, seconds = match.groups()
    value = float(seconds.replace(",", "."))
    if minutes is not None and (value >= 60 or (hours is not None and int(minutes) >= 60)):
        raise UsageError(f"{text!r}: minutes and seconds stop at 59; write {_ACCEPTED}")
    total = int(hours or 0) * 3600 + int(minutes or 0) * 60 + value
    if not math.isfinite(total):
        raise UsageError(f"{text!r} is no time; write {_ACCEPTED}")
    return total


def format_time(seconds: float) -> str:
    """H:MM:SS.mmm, the hours only where there are any.

    >>> format_time(62.25), format_time(3723)
    ('1:02.250', '1:02:03.000')
    """
    milliseconds = round(seconds * 1000)
    whole, rest = divmod(milliseconds, 1000)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    tail = f"{second:02d}.{rest:03d}"
    return f"{hours}:{minute:02d}:{tail}" if hours else f"{minute}:{tail}"


def parse_moment(text: str) -> tuple[str, float, float]:
    """Video, start and end of `VIDEO@START-END`; the video may be any name that the corpus resolves.

    >>> parse_moment("my@holiday.mp4@0:05-7.5")
    ('my@holiday.mp4', 5.0, 7.5)
    """
    video, at, span = text.rpartition("@")
    start, dash, end = span.partition("-")
    if not (video and at and dash):
        raise UsageError(
            f"{text!r} names no moment; write VIDEO@START-END, for example friday.mp4@0:01-0:03.5"
        )
    first, last = parse_seconds(start), parse_seconds(end)
    Moment(video, first, last)
    return video, first, last


def parse_date(text: str) -> datetime:
    """An ISO date or date and time; without a zone it is UTC.

    >>> parse_date("2024-05-01").isoformat()
    '2024-05-01T00:00:00+00:00'
    """
    try:
        value = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"{text!r} is no date; write 2024-05-01 or 2024-05-01T13:30") from None
    return value if value.tzinfo else value.replace(tzinfo=UTC)
