"""One clock for recordings that were joined byte by byte, and for broadcasts whose clock was set.

Times begin anew in each part of such a file: FFmpeg states the length of one part, and a seek may end in any.
`on_one_clock` shifts all streams of a part alike, so that it begins where the part before it ends. Joints are
found by reading all packets; formats that mark them by a second header are searched for it first.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from whenabouts.intake.notes import Notes
from whenabouts.video.headers import flac_lengths, inner_headers, is_chained
from whenabouts.video.objects import source_path
from whenabouts.video.opened import open_container, packets_of
from whenabouts.video.time_limit import FREE_GAP_SECONDS, TimeLimit

if TYPE_CHECKING:
    from av.container import InputContainer

# FFmpeg's names of formats in which nothing marks a joint, and of formats in which a second header marks it.
_UNMARKED = {"mpegts", "mpeg", "gxf"}
_MARKED = {"matroska", "ogg", "flac", "flv", "nut"}
# Least seconds that times step back at a joint. Reordered and repeated packets cause smaller steps.
_LEAP_BACK = 1
# A jump is damage and not a joint if, after at most this many packets, times go on as before it.
_MOST_ODD_PACKETS = 16
# A stream enters a part that another stream began if their times differ by at most these seconds.
_NEAR_SECONDS = 10
_MICROSECONDS = 1_000_000
_KEPT_FILES = 256
# Files without joints are noted, because reading gigabytes again for each thumbnail in each process is slow.
_WHOLE = Notes("without-joints", most=10_000)


@dataclass(slots=True)
class _StreamClock:
    """From packet firsts[i] of a stream on, shifts[i] ticks are added; None removes impossible times."""

    firsts: list[int] = field(default_factory=list)
    shifts: list[int | None] = field(default_factory=list)
    keys: list[tuple[int, int]] = field(default_factory=list)
    """(ticks on the one clock, packet number) of each key frame; empty for sound."""
    decoding: list[int] = field(default_factory=list)
    """The decoding time of each packet in ticks, for pictures in Matroska, which stores none."""

    def shift_of(self, number: int) -> int | None:
        return self.shifts[max(0, bisect_right(self.firsts, number) - 1)]


@dataclass(frozen=True, slots=True)
class _Joints:
    clocks: dict[int, _StreamClock]  # by index of the stream
    seconds: float  # of all parts together
    hidden: Sequence[tuple[int, int]] = ()
    """Inner headers [first byte, end) to hide from FFmpeg, which stops at them in FLV and misreads NUT."""


def on_one_clock(path: Path, container: InputContainer) -> InputContainer:
    """The container itself, or for a joined file one that delivers its packets on one clock.

    If inner headers must be hidden (FLV, NUT), the given container is closed and the file opened again.
    """
    names = set(container.format.name.split(","))
    if not names & (_UNMARKED | _MARKED) or ("matroska" in names and not is_chained(path)):
        return container
    status = source_path(path).stat()
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    fact = f"{path.absolute()} {state}"
    if _WHOLE.has(fact):
        return container
    can_be_joined = names & (_UNMARKED | {"matroska"}) or is_chained(path)
    if (joints := _joints(path, *state) if can_be_joined else None) is None:
        _WHOLE.add(fact)
        return container
    if joints.hidden:
        container.close()
        container = open_container(path, hidden=joints.hidden)
    return cast("InputContainer", _Joined(path, container, joints))


class _Joined:
    """An open container of a joined file. Other attributes are those of the container that it wraps."""

    def __init__(self, path: Path, container: InputContainer, joints: _Joints) -> None:
        self._path, self._container, self._joints = path, container, joints
        self._again: InputContainer | None = None
        self._is_read = False
        self._skipped: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def __enter__(self) -> _Joined:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for opened in (self._again, self._container):
            if opened is not None:
                opened.close()

    @property
    def duration(self) -> int:
        """The length of all parts together in microseconds."""
        return round(self._joints.seconds * _MICROSECONDS)

    def seek(self, offset: int, *, stream: Any, backward: bool = True) -> None:
        """Let the next `demux` begin `stream` at its last key frame at or before `offset`, in its ticks.

        Other streams, and streams without pictures, begin at their first packet. `backward` has no effect.
        """
        clock = self._joints.clocks.get(stream.index, _StreamClock())
        before = [number for ticks, number in clock.keys if ticks <= offset]
        self._skipped = {stream.index: max(before, default=0)}
        for other in self._container.streams:
            if other.codec_context is not None and other.codec_context.is_open:
                other.codec_context.flush_buffers()

    def demux(self, *streams: Any) -> Iterator[Any]:
        """Packets from the last `seek` on (without one: all), with times on the one clock."""
        source, skipped = self._source(), self._skipped
        self._skipped = {}
        originals = self._container.streams
        chosen = [stream.index for each in streams for stream in (each if isinstance(each, list) else [each])]
        numbers: dict[int, int] = {}
        for packet in packets_of(source, [source.streams[i] for i in chosen or range(len(originals))]):
            index = packet.stream_index
            packet.stream = originals[index]
            number = numbers.get(index, 0)
            if packet.size:
                numbers[index] = number + 1
            if number >= skipped.get(index, 0):
                _move(packet, number, self._joints.clocks.get(index))
                yield packet

    def _source(self) -> InputContainer:
        """The container, and after its first use the file opened again: FFmpeg cannot seek across parts."""
        if not self._is_read:
            self._is_read = True
            return self._container
        if self._again is not None:
            self._again.close()
        self._again = open_container(self._path, hidden=self._joints.hidden)
        for stream, twin in zip(self._container.streams, self._again.streams, strict=False):
            twin.discard = stream.discard
        return self._again


def _move(packet: Any, number: int, clock: _StreamClock | None) -> None:
    """Shift the times of a packet, which has this number in its stream, to the one clock."""
    if clock is None or not clock.firsts:
        return
    shift = clock.shift_of(number)
    packet.pts = None if packet.pts is None or shift is None else packet.pts + shift
    packet.dts = None if packet.dts is None or shift is None else packet.dts + shift
    if number < len(clock.decoding) and shift is not None:
        packet.dts = clock.decoding[number]


@lru_cache(_KEPT_FILES)
def _joints(path: Path, *state: int) -> _Joints | None:
    """The joints of a file; None for an unmarked format with one part. `state` keys the cache."""
    import av

    hidden = inner_headers(path)
    with open_container(path, hidden=hidden) as container:
        names = set(container.format.name.split(","))
        scan = _Scan(container.size, stores_decoding="matroska" not in names)
        try:
            for packet in packets_of(container, list(container.streams)):
                if packet.size:
                    scan.add(packet)
        except av.error.FFmpegError:
            pass  # FFmpeg delivers no packets after this damage
    # FFmpeg does not state the length of the last packet of a joined FLAC stream; headers state the stream's.
    stated = flac_lengths(path) if "flac" in names else []
    return replace(scan.joints(stated), hidden=hidden) if names & _MARKED or scan.parts[1:] else None


@dataclass(slots=True)
class _Part:
    """One part, in seconds of its times: its `last` packet, and `begin` and `end` of pictures and sound."""

    last: float
    begin: float = math.inf
    end: float = -math.inf
    count: int = 0  # of packets of pictures and sound
    streams: set[int] = field(default_factory=set)  # indices of their streams


@dataclass(slots=True)
class _Stream:
    """One stream during the scan. Times are in seconds, stamps in ticks of `base` seconds."""

    base: float
    limit: TimeLimit
    kind: str
    step: float
    part: int = 0
    count: int = 0
    last: float | None = None
    length: float = 0.0
    # If this stream began the newest part: (part, time of the last packet) before it.
    before: tuple[int, float] | None = None
    # (number of the first packet, part) of each run of packets; part -1: their times are impossible.
    stretches: list[tuple[int, int]] = field(default_factory=list)
    # (number, stamp) of key frames, and the stamps of all pictures if decoding times are not stored.
    keys: list[tuple[int, int]] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)

    def enter(self, number: int, part: int) -> None:
        """Assign the packets from this number on to a part."""
        if not self.stretches or self.stretches[-1][1] != part:
            self.stretches.append((number, part))
        self.part = part

    def clock(self, shifts: list[float]) -> _StreamClock:
        """The clock of the stream; `shifts` are the seconds to add in each part."""
        clock = _StreamClock()
        for number, part in self.stretches:
            clock.firsts.append(number)
            clock.shifts.append(None if part < 0 else round(shifts[min(part, len(shifts) - 1)] / self.base))
        for number, stamp in self.keys:
            if (shift := clock.shift_of(number)) is not None:
                clock.keys.append((stamp + shift, number))
        shown = [stamp + (clock.shift_of(number) or 0) for number, stamp in enumerate(self.stamps)]
        ordered = sorted(shown)
        delay = max((late - at for late, at in zip(ordered, shown, strict=True)), default=0)
        clock.decoding = [stamp - delay for stamp in ordered]
        return clock


class _Scan:
    """Assigns the packets of a file, in stored order, to its parts."""

    def __init__(self, size: int, *, stores_decoding: bool) -> None:
        self.parts = [_Part(0.0)]
        self._size, self._stores_decoding = size, stores_decoding
        self._streams: dict[int, _Stream] = {}
        # (stream, packet number, seconds) of words after the last picture or sound: they may begin a part.
        self._words: list[tuple[_Stream, int, float]] = []

    def add(self, packet: Any) -> None:
        """Assign the next packet to a part."""
        index = packet.stream_index
        if index not in self._streams:
            self._streams[index] = self._new_stream(packet)
        stream = self._streams[index]
        number, decoded, shown = stream.count, packet.dts, packet.pts
        stream.count += 1
        if not self._stores_decoding:
            decoded = shown
            if stream.kind == "video":
                stream.stamps.append(stream.stamps[-1] if shown is None and stream.stamps else shown or 0)
        stamp = shown if decoded is None else decoded
        if stamp is None and stream.last is None:
            return
        # A packet without a time begins where the packet before it ends.
        at = stamp * stream.base if stamp is not None else (stream.last or 0.0) + stream.length
        if stream.kind not in ("video", "audio"):
            stream.enter(number, len(self.parts) - 1)
            stream.last = at
            self._words.append((stream, number, at))
            return
        stream.enter(number, self._part_of(stream, at))
        self._words.clear()
        if packet.is_keyframe and stream.kind == "video" and shown is not None:
            stream.keys.append((number, shown))
        length = (packet.duration or 0) * stream.base or stream.step
        stream.last, stream.length = at, length if length <= FREE_GAP_SECONDS else stream.step
        part = self.parts[stream.part]
        at_shown = at if shown is None else shown * stream.base
        part.begin, part.end = min(part.begin, at_shown), max(part.end, at_shown + stream.length)
        part.last = at
        part.count += 1
        part.streams.add(index)

    def _new_stream(self, packet: Any) -> _Stream:
        kind = packet.stream.type
        rate = packet.stream.average_rate if kind == "video" else None
        step = float(1 / rate) if rate else 0.0
        return _Stream(float(packet.time_base), TimeLimit(self._size), kind, step)

    def _part_of(self, stream: _Stream, at: float) -> int:
        """The part of a picture or sound `at` these seconds; may begin a part, or withdraw a damaged one."""
        newest = len(self.parts) - 1
        if stream.last is None:
            return newest
        gap = at - stream.last
        leaps = gap <= -_LEAP_BACK or (gap > FREE_GAP_SECONDS and not stream.limit.allows(Fraction(gap)))
        from_newest = abs(at - self.parts[newest].last)
        if stream.part < newest and (leaps or from_newest < abs(gap)) and from_newest <= _NEAR_SECONDS:
            return newest  # another stream began this part
        if not leaps:
            return stream.part
        if self._goes_on(stream, at):
            assert stream.before is not None
            (part, _), stream.before = stream.before, None
            stream.stretches[-1] = (stream.stretches[-1][0], -1)
            self.parts.pop()
            return part
        stream.before = (stream.part, stream.last)
        self.parts.append(_Part(at))
        for words, number, start in self._words:
            if abs(start - at) < abs(start - stream.last):
                words.enter(number, newest + 1)
        return newest + 1

    def _goes_on(self, stream: _Stream, at: float) -> bool:
        """Whether a stream goes on as before the newest part, which then was only a few damaged times."""
        newest = self.parts[-1]
        if stream.before is None or stream.part != len(self.parts) - 1 or len(newest.streams) > 1:
            return False
        return newest.count <= _MOST_ODD_PACKETS and -_LEAP_BACK < at - stream.before[1] < _NEAR_SECONDS

    def joints(self, stated: Sequence[float]) -> _Joints:
        """The clocks and the length of all parts; `stated` are their seconds by headers, empty if unknown."""
        lengths = [part.end - part.begin if part.count else 0.0 for part in self.parts]
        if len(stated) == len(lengths) and all(stated):
            lengths = list(stated)
        length, shifts = 0.0, list[float]()
        for part, seconds in zip(self.parts, lengths, strict=True):
            shifts.append(self.parts[0].begin + length - part.begin if part.count else 0.0)
            length += seconds
        return _Joints({place: each.clock(shifts) for place, each in self._streams.items()}, length)
