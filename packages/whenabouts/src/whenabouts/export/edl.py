"""CMX 3600: the edit decision list that every editor reads. Each event has one source and an exclusive end.

A format of `export`, chosen by name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from pathlib import PurePath
from typing import IO

from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.export.source import Source, nearest, shown_path
from whenabouts.export.text import scores
from whenabouts.export.timeline import Event, make_timeline
from whenabouts.lines import one_line
from whenabouts.times import frame_of, nominal
from whenabouts.types import UsageError
from whenabouts.video.timecode import timecode

NAME = "edl"
SUFFIXES = (".edl",)
MEDIA_TYPE = "text/plain; charset=utf-8"
_MOST_EVENTS = 999
_REEL_LETTERS = 8
# Reserved names: black, and an unnamed tape.
_RESERVED_REELS = {"BL", "AX", "BLACK"}
_HOURS = 24
# Seconds in which drop-frame skips numbers: the first of each minute but every tenth.
_SKIPS = re.compile(r"[1-9]:00$")
_LONGEST_TITLE = 70
_LONGEST_COMMENT = 1000
_USUAL_NOMINAL = 30


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """Write one cut per moment, in order. Raises UsageError for more than 999."""
    if len(moments) > _MOST_EVENTS:
        raise UsageError(
            f"{len(moments)} moments: an EDL counts {_MOST_EVENTS} events; choose fewer, or --format otio"
        )
    timeline = make_timeline(moments, options, rates="one")
    reels = reel_names([event.source.path for event in timeline.events])
    lines = [f"TITLE: {one_line(timeline.title, _LONGEST_TITLE)}", _mode(timeline.drop), ""]
    latest_mode, is_past_midnight = timeline.drop, False
    for event_number, event in enumerate(timeline.events, 1):
        drop = event.source.drops(timeline.rate, otherwise=timeline.drop)
        if drop != latest_mode:
            lines.append(_mode(drop))
        latest_mode = drop
        # Start and end in the source and on the time line, as frame numbers at the rate of the time line.
        first = event.first + _start_frame(event.source, timeline.rate, drop=drop)
        starts = (first, drop), (event.record, timeline.drop)
        places = [(start + frames, counted) for start, counted in starts for frames in (0, event.length)]
        codes = [timecode(place, timeline.rate, drop=counted) for place, counted in places]
        wrapped = [_within_a_day(code) for code in codes]
        is_past_midnight |= wrapped != codes
        lines += _event(event_number, event, " ".join(wrapped), reels[event.source.path])
    out.write("\r\n".join([*lines, ""]).encode())
    notes = list(timeline.notes)
    if (fps := nominal(timeline.rate)) > _USUAL_NOMINAL:
        notes.append(f"time codes count {fps} frames a second; older editors read an EDL at 30 at most")
    if is_past_midnight:
        notes.append(f"time codes begin anew at 00:00:00:00 after {_HOURS} hours")
    return notes


def _mode(drop: bool) -> str:
    return f"FCM: {'DROP FRAME' if drop else 'NON-DROP FRAME'}"


def _start_frame(source: Source, rate: Fraction, *, drop: bool) -> int:
    """The number of the source's first frame in time codes at a rate."""
    if not source.start_timecode or source.rate == rate:
        return source.start_frame(rate)
    # Editors find a frame in the camera's file by its time code, so the code is kept instead of its time:
    # 01:00:00:00 at 23.976 (3603.6 s) stays 01:00:00:00 at 25. Only its frames are counted anew.
    clock, _, frame = source.start_timecode.replace(";", ":").replace(".", ":").rpartition(":")
    base = nominal(rate)
    number = min(nearest(Fraction(int(frame) * base, nominal(source.rate))), base - 1)
    if drop and _SKIPS.search(clock):
        number = max(number, base // 15)  # the first one that exists
    return frame_of(f"{clock}{';' if drop else ':'}{number:02d}", rate)[0]


def _event(event_number: int, event: Event, codes: str, reel: str) -> list[str]:
    moment = event.moment
    lines = [f"{event_number:03d}  {reel:<8} {_track(event.source):<5} C        {codes}"]
    lines.append(f"* FROM CLIP NAME: {one_line(moment.name)}")
    lines.append(f"* SOURCE FILE: {one_line(shown_path(moment.path))}")
    texts = [("query", moment.query), ("words", moment.text), ("note", moment.note)]
    facts = [*texts, ("tags", ", ".join(moment.tags)), *scores(moment)]
    plain = ((name, one_line(value, _LONGEST_COMMENT)) for name, value in facts)
    lines += [f"* COMMENT: {name.upper()} {value}" for name, value in plain if value]
    return [*lines, ""]


def _within_a_day(code: str) -> str:
    """A time code whose hours wrap after 23."""
    hours, _, after_hours = code.partition(":")
    return f"{int(hours) % _HOURS:02d}:{after_hours}"


def _track(source: Source) -> str:
    sound = "AA" if source.channels > 1 else "A"
    if source.times is None:
        return sound
    return {0: "V", 1: "B"}.get(source.channels, f"{sound}/V")


def reel_names(paths: Sequence[str]) -> dict[str, str]:
    """A unique reel for each path: at most eight capitals and digits of its name.

    >>> reel_names(["/a/holiday film.mp4", "/b/holiday film.mp4"])
    {'/a/holiday film.mp4': 'HOLIDAYF', '/b/holiday film.mp4': 'HOLIDAY2'}
    """
    chosen: dict[str, str] = {}
    used = set(_RESERVED_REELS)
    for path in dict.fromkeys(paths):
        plain = unicodedata.normalize("NFKD", PurePath(path).stem).encode("ascii", "ignore").decode().upper()
        stem = re.sub(r"[^A-Z0-9]", "", plain)[:_REEL_LETTERS] or "REEL"
        name, count = stem, 1
        while name in used:
            count += 1
            name = f"{stem[: _REEL_LETTERS - len(str(count))]}{count}"
        used.add(name)
        chosen[path] = name
    return chosen
