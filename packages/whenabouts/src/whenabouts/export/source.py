"""What a list says of the file that a moment lies in: its frames, its rate, its sound."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from urllib.parse import quote_from_bytes

from whenabouts.times import frame_of
from whenabouts.types import UsageError
from whenabouts.video.encoding import check_media
from whenabouts.video.frame_times import read_timing
from whenabouts.video.objects import source_path
from whenabouts.video.probe import open_media, probe
from whenabouts.video.spans import sound_stream
from whenabouts.video.timecode import STANDARD_RATES, FrameTimes, exact

# Sound alone has no frames; it is counted in these.
SOUND_RATE = Fraction(25)


@dataclass(frozen=True, slots=True)
class Source:
    """A file that moments are taken from.

    `times` are its frames, None for sound alone. `rate` is frames a second: exactly, where `is_constant`,
    else the constant rate that its times are mapped to. `start_frame` is the number that the file's own time
    code gives its first frame. `duration` is seconds; `width`, `height` are pixels as shown, 0 for sound.
    """

    path: str
    times: FrameTimes | None
    rate: Fraction
    is_constant: bool
    start_frame: int
    duration: Fraction
    width: int
    height: int
    sound_rate: int
    channels: int

    @property
    def edit_rate(self) -> Fraction:
        """A rate that editors know at which each frame has a number of its own, as far as there is one."""
        if self.rate in STANDARD_RATES:
            return self.rate
        whole = (rate for rate in STANDARD_RATES if (rate / self.rate).denominator == 1)
        higher = (rate for rate in STANDARD_RATES if rate >= self.rate)
        return next(whole, None) or next(higher, None) or Fraction(60)

    @property
    def url(self) -> str:
        """The file as a URL, whatever bytes its name has."""
        return file_url(self.path)

    def frames(self, rate: Fraction) -> int:
        """The file's length in frames of a rate."""
        if self.times is not None and self.is_constant and rate == self.rate:
            return len(self.times)
        first = self.times.time(0) if self.times is not None else Fraction(0)
        return max(1, nearest((self.duration - first) * rate))


def nearest(value: Fraction) -> int:
    """The nearest whole number, halves up: neighbours never meet by rounding to even."""
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def read_source(path: str) -> Source:
    """What is in a file. Raises MediaError for what is no media, UsageError for subtitles alone."""
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
        start_frame=_start_frame(timing.start_timecode, rate) if timing is not None else 0,
        duration=length if times is None else max(length, times.end),
        width=probed.picture.width if probed.picture else 0,
        height=probed.picture.height if probed.picture else 0,
        sound_rate=sound[0],
        channels=sound[1],
    )


def _start_frame(code: str, rate: Fraction) -> int:
    """The number of the first frame by the file's own time code; 0 where it has none that can be read."""
    try:
        return frame_of(code, rate)[0] if code else 0
    except UsageError:
        return 0


class Sources(Mapping[str, Source]):
    """The files of some moments by path, each looked into once, when it is first asked for.

    `places` are where files lie that the list calls otherwise, by what it calls them; `read` looks into one.
    """

    def __init__(
        self,
        places: Mapping[str, str] = MappingProxyType({}),
        read: Callable[[str], Source] = read_source,
    ) -> None:
        self._read: dict[str, Source] = {}
        self._places, self._look = places, read

    def __getitem__(self, path: str) -> Source:
        if path not in self._read:
            self._read[path] = replace(self._look(self._places.get(path, path)), path=path)
        return self._read[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)


def shown_path(path: str) -> str:
    """A path as valid Unicode: bytes that are none are escaped, as `search --json` does it."""
    return path.encode("utf-8", "backslashreplace").decode()


def file_url(path: str) -> str:
    """A file as a URL, whatever bytes its name has; of a name alone, one relative to the list.

    >>> file_url("/films/a b#1.mp4"), file_url("a:b.mp4")
    ('file:///films/a%20b%231.mp4', 'a%3Ab.mp4')
    """
    url = quote_from_bytes(os.fsencode(path))
    return f"file://{url}" if path.startswith("/") else url
