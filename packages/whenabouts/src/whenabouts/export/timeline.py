"""Converts moments to frames and places them one after the other on a time line, for editors' formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from whenabouts.export.moments import FileMoment
from whenabouts.export.options import DEFAULT_START, Options
from whenabouts.export.source import Source, nearest, shown_path
from whenabouts.export.text import number
from whenabouts.times import can_drop, frame_of
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.video.timecode import FrameTimes, exact

_END_SLACK = Fraction(1, 20)
Rates = Literal["one", "standard", "own"]


@dataclass(frozen=True, slots=True)
class Event:
    """A moment on the time line.

    [`first`, `last`) are frames of the source at `rate`, counted from its first frame; `record` is the first
    frame on the time line, `length` the number of frames there.
    """

    moment: FileMoment
    source: Source
    rate: Fraction
    first: int
    last: int
    record: int
    length: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Events one after the other, at `rate` frames a second. `start` is the number of its first frame."""

    title: str
    rate: Fraction
    drop: bool
    start: int
    events: tuple[Event, ...]
    notes: tuple[str, ...]

    @property
    def frames(self) -> int:
        return sum(event.length for event in self.events)


def frames_of(moment: FileMoment, source: Source, rate: Fraction) -> tuple[int, int, list[str]]:
    """The frames [first, last) of a moment at a rate, counted from the source's first frame, and notes.

    At the source's constant rate they are the frames that begin in the moment, or else the one on the screen.
    At another rate, or if the source's varies, the times of those frames are rounded to frame numbers. If no
    frame begins in the moment, or the source is sound alone, its start and end are rounded. At least one
    frame is given. `ended` must have clipped the moment to its file.
    """
    times = source.times
    if times is None:
        first = nearest(exact(moment.start) * rate)
        return first, max(first + 1, nearest(min(exact(moment.end), source.duration) * rate)), []
    first, last = times.span(moment.start, moment.end)
    if source.is_constant and rate == source.rate:
        return (first, last, []) if first < last else (max(0, first - 1), max(1, first), [])
    zero = times.time(0)
    if first == last:
        at = max(0, nearest((exact(moment.start) - zero) * rate))
        until = nearest((min(exact(moment.end), source.duration) - zero) * rate)
        return at, max(at + 1, until), []
    numbers = [nearest((times.time(frame) - zero) * rate) for frame in (first, last)]
    notes = []
    if _shares(first, times, zero, rate) or _shares(last, times, zero, rate):
        notes.append(
            f"{moment.name}: two frames at its start or end round to one number at {float(rate):g} frames a "
            "second; give a higher --rate to distinguish them"
        )
    return numbers[0], max(numbers[0] + 1, numbers[1]), notes


@dataclass(frozen=True, slots=True)
class FrameNumbers:
    """Frames [first, end) of a moment at a rate; `is_constant`: whether that is the file's constant rate."""

    first: int
    end: int
    rate: Fraction
    is_constant: bool


def frame_numbers(moment: FileMoment, options: Options, notes: list[str]) -> FrameNumbers | None:
    """A moment's frames; None for sound alone, and with a note if the file is unreadable."""
    try:
        source = options.sources[moment.path]
        if source.times is None:
            return None
        rate = options.rate or source.rate
        first, end, moved = frames_of(moment, source, rate)
        numbers = FrameNumbers(first, end, rate, source.is_constant and rate == source.rate)
    except WhenaboutsError as error:
        numbers, moved = None, [f"no frame numbers: {error}"]
    notes += [note for note in moved if note not in notes]
    return numbers


def _shares(frame: int, times: FrameTimes, zero: Fraction, rate: Fraction) -> bool:
    """Whether a frame and the one before it have the same number at `rate`."""
    if not 0 < frame < len(times):
        return False
    return nearest((times.time(frame) - zero) * rate) == nearest((times.time(frame - 1) - zero) * rate)


def ended(moment: FileMoment, source: Source) -> tuple[FileMoment, list[str]]:
    """The moment, clipped with a note if it ends more than 0.05 s after the file.

    Raises UsageError for a moment that starts after the end.
    """
    length = source.duration
    if exact(moment.start) >= length:
        raise UsageError(
            f"{shown_path(moment.path)}: the moment starts at {moment.start:.3f} s, behind the end of the "
            f"file ({float(length):.3f} s); choose one inside, or index the file again if it was replaced"
        )
    if exact(moment.end) <= length + _END_SLACK:
        return moment, []
    note = (
        f"{moment.name}: the moment ends at {moment.end:.3f} s, behind the end of the file; "
        f"taken up to {float(length):.3f} s"
    )
    return replace(moment, end=float(length)), [note]


def make_timeline(moments: Sequence[FileMoment], options: Options, *, rates: Rates) -> Timeline:
    """The time line of some moments in their order.

    `rates` says how frames of sources are counted, because formats differ: at the rate of the time line
    ("one"), at the source's `edit_rate` ("standard"), or at its constant rate ("own"). A source whose rate
    varies is counted at `options.rate` or else its `edit_rate`, one of sound alone at the rate of the time
    line. Raises UsageError for conflicting options.
    """
    sources = [options.sources[moment.path] for moment in moments]
    pictured = next((source for source in sources if source.times is not None), sources[0])
    rate = options.rate or pictured.edit_rate
    start, drop = _start(options, rate)
    events: list[Event] = []
    notes: dict[str, None] = {}
    record = start
    for moment, source in zip(moments, sources, strict=True):
        counted = _counting_rate(source, rate, options, rates)
        first, last, frame_notes = frames_of(moment, source, counted)
        length = max(1, nearest(Fraction(last - first) / counted * rate))
        events.append(Event(moment, source, counted, first, last, record, length))
        record += length
        notes.update(dict.fromkeys([*_rate_notes(moment, source, counted), *frame_notes]))
    return Timeline(options.title, rate, drop, start, tuple(events), tuple(notes))


def _counting_rate(source: Source, rate: Fraction, options: Options, rates: Rates) -> Fraction:
    if rates == "one" or source.times is None:
        return rate
    if not source.is_constant:
        return options.rate or source.edit_rate
    return source.rate if rates == "own" else source.edit_rate


def _start(options: Options, rate: Fraction) -> tuple[int, bool]:
    """The first frame's number, and whether to use drop-frame."""
    chosen_drop, code = options.drop_frame, options.start_timecode or DEFAULT_START
    if chosen_drop and not can_drop(rate):
        raise UsageError(
            f"drop-frame exists at 29.97, 59.94 and 119.88 frames a second, not at {float(rate):.3f}; "
            "leave out --drop-frame"
        )
    written_drop = can_drop(rate) if options.start_timecode is None else frame_of(code, rate)[1]
    if options.start_timecode is not None and written_drop and chosen_drop is False:
        raise UsageError(f"{code!r} is a drop-frame time code; write a colon before its frames")
    drop = written_drop if chosen_drop is None else chosen_drop
    hours, _, frames = code.replace(";", ":").replace(".", ":").rpartition(":")
    return frame_of(f"{hours}{';' if drop else ':'}{frames}", rate)[0], drop


def _rate_notes(moment: FileMoment, source: Source, rate: Fraction) -> list[str]:
    if source.times is None or (source.is_constant and source.rate == rate):
        return []
    what = f"its rate is {number(float(source.rate), 3)}" if source.is_constant else "its rate varies"
    counted = number(float(rate), 3)
    return [f"{moment.name}: {what}; counted at a constant {counted} frames a second, by time"]
