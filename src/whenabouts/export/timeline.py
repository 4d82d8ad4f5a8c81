"""Moments one after the other on a time line, counted in frames: what editors' formats are written from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from whenabouts.export.clip import Clip
from whenabouts.export.options import DEFAULT_START, Options
from whenabouts.export.source import Source, nearest, shown_path
from whenabouts.types import UsageError
from whenabouts.video.timecode import FrameTimes, can_drop, exact, frame_of

_END_SLACK = Fraction(1, 20)
Rates = Literal["one", "standard", "own"]


@dataclass(frozen=True, slots=True)
class Event:
    """A moment on the time line.

    `first`, `last` are frames of the source at `rate`, [first, last), counted from its first frame;
    `record` is the first frame on the time line, `length` the number of frames there.
    """

    clip: Clip
    source: Source
    rate: Fraction
    first: int
    last: int
    record: int
    length: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Events that follow one another at one rate. `start` is the frame number at which it begins."""

    title: str
    rate: Fraction
    drop: bool
    start: int
    events: tuple[Event, ...]
    notes: tuple[str, ...]

    @property
    def frames(self) -> int:
        """Its length."""
        return sum(event.length for event in self.events)


def frames_of(clip: Clip, source: Source, rate: Fraction) -> tuple[int, int, list[str]]:
    """The frames [first, last) of a moment, counted at a rate from the first frame, and what is to be told.

    At the source's own constant rate these are exactly the frames that are shown in [start, end). Elsewhere a
    frame has the number whose time is nearest to its own. Never empty: of a moment in which no frame begins
    it is the one on the screen. Raises UsageError for a moment behind the end.
    """
    notes = _clamped(clip, source)
    times = source.times
    if times is None:
        first = nearest(exact(clip.start) * rate)
        return first, max(first + 1, nearest(min(exact(clip.end), source.duration) * rate)), notes
    first, last = times.span(clip.start, clip.end)
    if source.is_constant and rate == source.rate:
        return (first, last, notes) if first < last else (max(0, first - 1), max(1, first), notes)
    zero = times.time(0)
    if first == last:
        at = max(0, nearest((exact(clip.start) - zero) * rate))
        until = nearest((min(exact(clip.end), source.duration) - zero) * rate)
        return at, max(at + 1, until), notes
    numbers = [nearest((times.time(frame) - zero) * rate) for frame in (first, last)]
    if _shares(first, times, zero, rate) or _shares(last, times, zero, rate):
        notes.append(
            f"{clip.name}: frames closer together than {float(1 / rate):.4f} s share a number; "
            f"give a higher --rate to tell them apart"
        )
    return numbers[0], max(numbers[0] + 1, numbers[1]), notes


def _shares(frame: int, times: FrameTimes, zero: Fraction, rate: Fraction) -> bool:
    """Whether the frame before has the same number."""
    if not 0 < frame < len(times):
        return False
    return nearest((times.time(frame) - zero) * rate) == nearest((times.time(frame - 1) - zero) * rate)


def ended(clip: Clip, source: Source) -> tuple[Clip, list[str]]:
    """The moment, its end moved to that of the file where it lies behind it, and what is to be told of that.

    Raises UsageError for a moment that starts behind the end.
    """
    said = _clamped(clip, source)
    return (replace(clip, end=float(source.duration)) if said else clip), said


def _clamped(clip: Clip, source: Source) -> list[str]:
    length = source.duration
    if exact(clip.start) >= length:
        raise UsageError(
            f"{shown_path(clip.path)}: the moment starts at {clip.start:.3f} s, behind the end of the file "
            f"({float(length):.3f} s); choose one inside, or index the file again if it was replaced"
        )
    if exact(clip.end) > length + _END_SLACK:
        return [
            f"{clip.name}: the moment ends at {clip.end:.3f} s, behind the end of the file; "
            f"taken up to {float(length):.3f} s"
        ]
    return []


def make_timeline(clips: Sequence[Clip], options: Options, *, rates: Rates) -> Timeline:
    """The time line of some moments in their order.

    `rates` says how each source is counted, for formats differ: at the rate of the time line ("one"), at its
    own where editors know it ("standard"), or at its own whatever it is ("own").
    Raises UsageError for no moments, or options that do not fit.
    """
    if not clips:
        raise UsageError("nothing to export: no moment was found or given")
    sources = [options.sources[clip.path] for clip in clips]
    pictured = next((source for source in sources if source.times is not None), sources[0])
    rate = options.rate or pictured.edit_rate
    start, drop = _start(options, rate)
    events: list[Event] = []
    notes: dict[str, None] = {}
    record = start
    for clip, source in zip(clips, sources, strict=True):
        own = _counting_rate(source, rate, options, rates)
        first, last, said = frames_of(clip, source, own)
        length = max(1, nearest(Fraction(last - first) / own * rate))
        events.append(Event(clip, source, own, first, last, record, length))
        record += length
        notes.update(dict.fromkeys([*_rate_notes(clip, source, own), *said]))
    return Timeline(options.title, rate, drop, start, tuple(events), tuple(notes))


def _counting_rate(source: Source, rate: Fraction, options: Options, rates: Rates) -> Fraction:
    if rates == "one" or source.times is None:
        return rate
    if not source.is_constant:
        return options.rate or source.edit_rate
    return source.rate if rates == "own" else source.edit_rate


def _start(options: Options, rate: Fraction) -> tuple[int, bool]:
    """The first frame's number, and whether drop-frame is counted."""
    wanted = options.drop_frame
    if wanted and not can_drop(rate):
        raise UsageError(
            f"drop-frame exists at 29.97, 59.94 and 119.88 frames a second, not at {float(rate):.3f}; "
            "leave out --drop-frame"
        )
    if options.start_timecode is None:
        drop = can_drop(rate) if wanted is None else wanted
        code = DEFAULT_START
    else:
        code = options.start_timecode
        said = frame_of(code, rate)[1]
        if said and wanted is False:
            raise UsageError(f"{code!r} is a drop-frame time code; write a colon before its frames")
        drop = said if wanted is None else wanted
    hours, _, frames = code.replace(";", ":").replace(".", ":").rpartition(":")
    return frame_of(f"{hours}{';' if drop else ':'}{frames}", rate)[0], drop


def _rate_notes(clip: Clip, source: Source, rate: Fraction) -> list[str]:
    counted = f"{float(rate):.3f}".rstrip("0").rstrip(".")
    if source.times is None or (source.is_constant and source.rate == rate):
        return []
    own = f"{float(source.rate):.3f}".rstrip("0").rstrip(".")
    what = f"its rate is {own}" if source.is_constant else "its rate varies"
    return [f"{clip.name}: {what}; counted at a constant {counted} frames a second, by time"]
