"""Reads the facts of a moment's file that lists need: frame times, rate, time code and sound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from whenabouts.times import can_drop, frame_of
from whenabouts.types import UsageError
from whenabouts.video.encoding import check_media
from whenabouts.video.files import file_url
from whenabouts.video.frame_times import read_timing
from whenabouts.video.objects import source_path
from whenabouts.video.probe import open_media, probe
from whenabouts.video.spans import sound_stream
from whenabouts.video.timecode import STANDARD_RATES, FrameTimes, exact

# Frame rate for sound without pictures.
SOUND_RATE = Fraction(25)


@dataclass(frozen=True, slots=True)
class Source:
    """A file with moments.

    `times`: its frames' times, None for sound alone. `rate`: frames per second, exact if `is_constant`, else
    the constant rate that the times are mapped to. `start_timecode`: the time code of the first frame, valid
    at `rate`, or empty. `duration` is in seconds, `width` and `height` in pixels as shown (0: no pictures),
    `sound_rate` in Hz (0: no sound).
    """

    path: str
    times: FrameTimes | None
    rate: Fraction
    is_constant: bool
    start_timecode: str
    duration: Fraction
    width: int
    height: int
    sound_rate: int
    channels: int

    def start_frame(self, rate: Fraction) -> int:
        """The first frame's number at a rate, for formats that count time; 0 without a time code."""
        if not self.start_timecode:
            return 0
        return nearest(frame_of(self.start_timecode, self.rate)[0] / self.rate * rate)

    def drops(self, rate: Fraction, *, otherwise: bool) -> bool:
        """Whether its time codes at a rate are drop-frame; `otherwise`, if it has none."""
        own = frame_of(self.start_timecode, self.rate)[1] if self.start_timecode else otherwise
        return own and can_drop(rate)

    @property
    def edit_rate(self) -> Fraction:
        """A standard rate at which each frame has a distinct number, if there is one."""
        if self.rate in STANDARD_RATES:
            return self.rate
        whole = (rate for rate in STANDARD_RATES if (rate / self.rate).denominator == 1)
        higher = (rate for rate in STANDARD_RATES if rate >= self.rate)
        return next(whole, None) or next(higher, None) or Fraction(60)

    @property
    def url(self) -> str:
        return file_url(self.path)

    def frames(self, rate: Fraction) -> int:
        """The file's length in frames at a rate."""
        if self.times is not None and self.is_constant and rate == self.rate:
            return len(self.times)
        first = self.times.time(0) if self.times is not None else Fraction(0)
        return max(1, nearest((self.duration - first) * rate))


def nearest(value: Fraction) -> int:
    """The nearest integer, halves up: rounding to even could merge neighbours."""
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def read_source(path: str) -> Source:
    """Read a file's facts. Raises MediaError if it is not media, UsageError for subtitles alone."""
    place = source_path(path)
    check_media(place)
    probed = probe(place)
    timing = read_timing(place)
    with open_media(place) as container:
        stream = sound_stream(container)
        sound = (
            (0, 0) if stream is None else (stream.codec_context.sample_rate, stream.codec_context.channels)
        )
    times = None if timing is None else timing.times
    rate, constant = (SOUND_RATE, True) if timing is None else timing.times.rate(timing.stated_rate)
    length = exact(probed.duration or 0.0)
    return Source(
        path=path,
        times=times,
        rate=rate,
        is_constant=constant,
        start_timecode=_valid(timing.start_timecode, rate) if timing is not None else "",
        duration=length if times is None else max(length, times.end),
        width=probed.picture.width if probed.picture else 0,
        height=probed.picture.height if probed.picture else 0,
        sound_rate=sound[0],
        channels=sound[1],
    )


def _valid(code: str, rate: Fraction) -> str:
    """A time code if it exists at a rate, else an empty string."""
    try:
        frame_of(code, rate)
    except UsageError:
        return ""
    return code


class Sources:
    """The files of some moments, by their paths in the list; `read` reads one on first use."""

    def __init__(self, read: Callable[[str], Source] = read_source) -> None:
        self._sources: dict[str, Source] = {}
        self._read = read

    def __getitem__(self, path: str) -> Source:
        if path not in self._sources:
            self._sources[path] = replace(self._read(path), path=path)
        return self._sources[path]


def shown_path(path: str) -> str:
    """A path as valid Unicode, other bytes escaped, as in `search --json`."""
    return path.encode("utf-8", "backslashreplace").decode()
