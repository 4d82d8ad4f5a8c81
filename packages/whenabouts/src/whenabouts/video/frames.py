"""Frames of a video at a chosen rate, upright, each with its exact time.

The decoder skips unreferenced frames that nobody needs, and only kept frames are scaled and converted to
RGB. Memory does not grow with the length of the video. Corpora store these times and what encoders saw, so
other times or another scaling mean indexing again.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import UsageError
from whenabouts.video.files import printable
from whenabouts.video.headers import missing_bytes
from whenabouts.video.opened import discard_others, packets_of
from whenabouts.video.probe import (
    COUNTED_FORMATS,
    BrokenMedia,
    check_pixels,
    frame_matrix,
    open_media,
    picture_stream,
    shown_size,
    stream_rate,
    turn_of,
)
from whenabouts.video.time_limit import FREE_GAP_SECONDS, TimeLimit

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.reformatter import VideoReformatter
    from av.video.stream import VideoStream

_log = logging.getLogger(__name__)

# Packets come in decoding order. H.264 and HEVC show a picture after at most 16 later ones were decoded, so a
# window of twice as many holds every picture that may be shown just before a given one.
_PACKETS_IN_VIEW = 32
# Containers round times to ticks (Matroska: 1 ms), so a frame up to half a tick before an instant, and up to
# this long, counts as at it.
_ROUNDING_SECONDS = Fraction(1, 2000)
# A jump back by this many seconds begins another recording; a jump forward is bounded by `TimeLimit`.
_LEAP_BACK = 1
# Headers round lengths and count a picture or two too many; only a longer loss is reported.
_LOST_SECONDS = 0.5
_LONGEST_TICK = 600  # seconds; longer ticks come from damaged headers
_SLOWEST_RATE = Fraction(1, 1_000_000)  # slower rates are raised to this
SEEK_EARLIER = (0, 2, 10, 60)
"""Seconds before an instant to seek to, in turn, until a seek does not end after the instant."""
# Without an index, a seek lands somewhere near; in program streams FFmpeg guesses the first times after it.
_SEEK_MARGINS = {"mpegts": 2, "mpeg": 10}


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture.

    `time` is in exact seconds (presentation time x time base) since the start of the file, on the same clock
    as subtitles and sound; `image` is (height, width, 3) RGB, upright, with square pixels.
    """

    time: Fraction
    image: NDArray[np.uint8]

    @property
    def seconds(self) -> float:
        return float(self.time)


def sample_frames(
    path: Path,
    rate: float,
    *,
    size: int | None = None,
    threads: int = 0,
    start: float = 0.0,
    end: float | None = None,
) -> FrameReader:
    """A reader of the first frame at or after each instant k / `rate` in [start, end).

    `rate` is instants a second; if frames are rarer, each is delivered once. `size` is the largest short side
    in pixels (None: unscaled). `threads` is the number of decoding threads, 0 for one per core.

    Raises UsageError for values out of range; reading raises MediaError for a file without pictures.
    """
    if not (math.isfinite(rate) and 0 < rate <= 1000):
        raise UsageError(f"rate is {rate!r}; it must be over 0 and at most 1000 frames a second")
    if size is not None and size < 1:
        raise UsageError(f"size is {size!r}; it must be at least 1 pixel, or None for the picture's own")
    if threads < 0:
        raise UsageError(f"threads is {threads!r}; it must be 0 (one for each core) or more")
    if not (0 <= start < math.inf and (end is None or start < end < math.inf)):
        raise UsageError(f"{start!r}-{end!r} is not a span of time; 0 <= start < end is needed")
    return FrameReader(path, rate, size=size, threads=threads, start=start, end=end)


class FrameReader:
    """Iterates over sampled frames once; a context manager that closes the file.

    After iteration `last_time` is where the last picture read ends, `damage` describes unreadable parts or is
    None, and `frames_decoded` counts decoded frames. Reading continues after damage. With an `end` it stops
    there, so damage after it stays unknown.
    """

    _stream: VideoStream

    def __init__(
        self, path: Path, rate: float, *, size: int | None, threads: int, start: float, end: float | None
    ) -> None:
        self.path = path
        self.damage: str | None = None
        self.frames_decoded = 0
        self.skips_unwanted = True  # benchmarks and tests turn it off to compare
        self._rate = max(_SLOWEST_RATE, Fraction(rate).limit_denominator(_SLOWEST_RATE.denominator))
        self._size = size
        self._threads = threads
        self._start, self._end = Fraction(start), None if end is None else Fraction(end)
        self._container: InputContainer | None = None
        self._clock: Clock | None = None
        self._bad_packets = 0
        self._first_bad = 0.0

    @property
    def last_time(self) -> float:
        """Seconds at which the last picture read so far ends."""
        return 0.0 if self._clock is None else float(self._clock.end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._container is not None:
            self._container.close()
            self._container = None

    def __iter__(self) -> Iterator[Frame]:
        clock = self._open()
        try:
            yield from self._sampled(clock)
        finally:
            self.close()

    def _sampled(self, clock: Clock) -> Iterator[Frame]:
        from av.video.reformatter import VideoReformatter

        grid = FrameGrid(self._rate, clock.time_base, self._start)
        reformatter = VideoReformatter()
        for decoded in self._decoded(clock, grid):
            ticks = clock.ticks_of(decoded)
            if ticks is None or ticks < grid.wanted:
                continue
            time = ticks * clock.time_base
            if self._end is not None and time >= self._end:
                return
            grid.move_past(ticks)
            yield Frame(time, upright(decoded, self._stream.sample_aspect_ratio, self._size, reformatter))
        self._note_leaps(clock)
        self._note_lost_pictures(clock)
        self._note_missing_bytes()

    def _open(self) -> Clock:
        """Open the file; its pictures are ready to decode."""
        if self._clock is not None:
            raise UsageError(f"{printable(self.path)}: a reader delivers its frames once; make another one")
        container = self._open_stream()
        self._clock = Clock(container, self._stream)
        return self._clock

    def _open_stream(self) -> InputContainer:
        """Open the file (anew, if it is open); streams other than the pictures are discarded if possible."""
        self.close()
        self._container = open_media(self.path)
        stream = picture_stream(self._container)
        if stream is None:
            self.close()
            raise BrokenMedia(
                f"{printable(self.path)}: holds no pictures, only sound or text; index its words instead"
            )
        check_pixels(self.path, stream)
        discard_others(self._container, stream.index)
        stream.thread_type = "AUTO"
        stream.codec_context.thread_count = self._threads
        self._stream = stream
        return self._container

    def _decoded(self, clock: Clock, grid: FrameGrid) -> Iterator[VideoFrame]:
        """Decoded pictures in display order, beginning with the key frame before the start."""
        rewind_to: Fraction | None = None
        if self._start > 0 and clock.can_seek:
            rewind_to = Fraction(0)
            for earlier in SEEK_EARLIER:
                frames = self._decoded_from(clock, grid, max(Fraction(0), self._start - earlier))
                first = next(frames, None)
                if first is not None and clock.is_before(first, self._start):
                    yield first
                    yield from frames
                    return
            # No key frame before the instant was reached: read from the beginning.
        yield from self._decoded_from(clock, grid, rewind_to)

    def _decoded_from(self, clock: Clock, grid: FrameGrid, instant: Fraction | None) -> Iterator[VideoFrame]:
        import av

        assert self._container is not None
        if instant is not None:
            try:
                before = instant - seek_margin(self._container)
                self._container.seek(clock.stamp_at(before), stream=self._stream, backward=True)
            except av.error.FFmpegError as error:
                _log.info("%s: seek to %.2f s failed (%s)", self.path, float(instant), error)
                self._open_stream()  # FFmpeg may have read to the end, looking for the instant
        for packet in self._chosen_packets(clock, grid):
            try:
                frames = packet.decode()
            except av.error.EOFError:
                return
            except av.error.FFmpegError as error:
                self._note_bad_packet(clock, error)
                continue
            clock.saw(packet)
            for frame in frames:
                self.frames_decoded += 1
                if not frame.is_corrupt:
                    yield frame

    def _chosen_packets(self, clock: Clock, grid: FrameGrid) -> Iterator[Packet[VideoStream]]:
        """All packets. Before each, the decoder is told whether to skip unreferenced frames."""
        packets = self._packets()
        if not (self.skips_unwanted and clock.can_seek):
            yield from packets
            return
        context = self._stream.codec_context
        for packet, is_wanted in _View(clock, grid).judged(packets):
            context.skip_frame = "DEFAULT" if is_wanted else "NONREF"
            yield packet

    def _packets(self) -> Iterator[Packet[VideoStream]]:
        import av

        assert self._container is not None
        try:
            yield from packets_of(self._container, self._stream)
        except av.error.FFmpegError as error:
            at = self.last_time
            self.damage = f"cannot be read beyond {at:.1f} s ({error.strerror}); copy the file again"

    def _note_bad_packet(self, clock: Clock, error: Exception) -> None:
        self._bad_packets += 1
        if self._bad_packets == 1:
            self._first_bad = float(clock.end)
        cause = getattr(error, "strerror", None) or str(error)
        self.damage = (
            f"damaged at {self._first_bad:.1f} s: {self._bad_packets} packet(s) could not be decoded "
            f"({cause}); the rest was read"
        )

    def _note_leaps(self, clock: Clock) -> None:
        if clock.leaps and self.damage is None:
            self.damage = (
                f"its times leap {clock.leaps} time(s), further than a file of its size can reach; "
                "the pictures were read without these gaps"
            )

    def _note_lost_pictures(self, clock: Clock) -> None:
        """An AVI has no presentation times, so if pictures are lost, all later ones come early."""
        stated = float((self._stream.duration or 0) * clock.time_base) if clock.is_ordered else 0.0
        if stated - self.last_time > _LOST_SECONDS and self.damage is None:
            self.damage = (
                f"damaged: {stated - self.last_time:.1f} s of its pictures cannot be read, and what follows "
                "them is listed that much too early; copy or download it again"
            )

    def _note_missing_bytes(self) -> None:
        """Note that the file is cut off, in place of other damage, which this explains."""
        lacking = missing_bytes(self.path)
        if lacking:
            self.damage = (
                f"cut off: its last {lacking:,} bytes are missing, pictures end at {self.last_time:.1f} s; "
                "copy or download it again"
            )


def first_frame(container: InputContainer, stream: VideoStream) -> VideoFrame | None:
    """The first picture that can be decoded."""
    import av

    stream.thread_type = "SLICE"  # frame threads delay pictures by the number of threads
    for packet in packets_of(container, stream):
        with contextlib.suppress(av.error.FFmpegError):
            frames: list[VideoFrame] = packet.decode()
            if frames:
                return frames[0]
    return None


def seek_margin(container: InputContainer) -> int:
    """How many seconds before an instant to seek, so that what is read at the instant has its right time."""
    return max(_SEEK_MARGINS.get(name, 0) for name in container.format.name.split(","))


class Clock:
    """Turns a container's times into increasing ticks since the start; counts forward jumps in `leaps`."""

    def __init__(self, container: InputContainer, stream: VideoStream) -> None:
        rate = stream_rate(stream) or Fraction(25)
        formats = set(container.format.name.split(","))
        self.is_counted = bool(formats & COUNTED_FORMATS)
        base = stream.time_base
        if base is None or not 0 < base <= _LONGEST_TICK:  # a damaged header
            self.is_counted = True
        self.is_ordered = "avi" in formats  # AVI has decoding times only
        self.time_base = 1 / rate if base is None or self.is_counted else Fraction(base)
        self._step = max(1, round(1 / (rate * self.time_base)))
        self._joint_ticks = max(1, min(self._step, math.floor(FREE_GAP_SECONDS / self.time_base)))
        self._limit = TimeLimit(container.size)
        self.leaps = 0
        self._origin = (
            None if self.is_counted or self.is_ordered else _origin(container, stream, self.time_base)
        )
        self._last: int | None = None
        self._decoding_stamp: int | None = None
        self._end_tick = 0

    @property
    def can_seek(self) -> bool:
        """Whether packets have presentation times, so that some can be skipped and others sought."""
        return not (self.is_counted or self.is_ordered) and self._origin is not None

    @property
    def end(self) -> Fraction:
        """Where the last picture ends, in seconds."""
        return self._end_tick * self.time_base

    def stamp_at(self, instant: Fraction) -> int:
        """The container's time stamp for an instant."""
        return math.floor(instant / self.time_base) + (self._origin or 0)

    def is_before(self, frame: VideoFrame, instant: Fraction) -> bool:
        """Whether a frame is shown at or before an instant."""
        return frame.pts is not None and frame.pts <= self.stamp_at(instant)

    def packet_ticks(self, packet: Packet[VideoStream]) -> int | None:
        """Ticks at which a packet's picture is shown, None if unknown."""
        return None if packet.pts is None or self._origin is None else packet.pts - self._origin

    def saw(self, packet: Packet[VideoStream]) -> None:
        """Keep a packet's decoding time, and extend the video's end by it, whether or not it is wanted."""
        self._decoding_stamp = packet.pts if packet.dts is None else packet.dts
        if packet.is_discard:  # before or behind an edit: decoded for others, never shown
            return
        ticks = self.packet_ticks(packet)
        if ticks is not None and self._last is not None and self._is_near(ticks):
            self._end_tick = max(self._end_tick, ticks + (packet.duration or self._step))

    def ticks_of(self, frame: VideoFrame) -> int | None:
        """Ticks of a decoded frame since the start; None for one that is not after the last one's."""
        stamp = self._stamp_of(frame)
        if self._origin is None:
            self._origin = stamp
        ticks = stamp - self._origin
        if self._last is None:
            if ticks < 0:  # the container claims a start after its first picture
                self._origin, ticks = stamp, 0
        elif ticks <= self._last or not self._limit.allows((ticks - self._last) * self.time_base):
            if ticks <= self._last and not self._begins_again(ticks):
                return None
            self.leaps += ticks > self._last
            ticks = self._last + self._joint_ticks
            self._origin = stamp - ticks
        self._last = ticks
        self._end_tick = max(self._end_tick, ticks + self._step)
        return ticks

    def _begins_again(self, ticks: int) -> bool:
        """Whether a picture with an earlier time than the last one begins another recording.

        After lost packets decoders deliver some pictures late, but packets' decoding times still increase.
        """
        assert self._last is not None and self._origin is not None
        leap = math.ceil(_LEAP_BACK / self.time_base)
        decoding = ticks if self._decoding_stamp is None else self._decoding_stamp - self._origin
        return max(ticks, decoding) <= self._last - leap

    def _is_near(self, ticks: int) -> bool:
        """Whether the time of a packet, perhaps not decoded, is plausible: a free gap for each in view."""
        assert self._last is not None
        return (ticks - self._last) * self.time_base <= FREE_GAP_SECONDS * _PACKETS_IN_VIEW

    def _stamp_of(self, frame: VideoFrame) -> int:
        following = (self._last + self._step if self._last is not None else 0) + (self._origin or 0)
        if self.is_counted:
            return following
        # Decoders output in display order, so the n-th picture gets the n-th decoding time, which increases.
        stamp = frame.dts if self.is_ordered else frame.pts
        return following if stamp is None else stamp


def _origin(container: InputContainer, stream: VideoStream, time_base: Fraction) -> int | None:
    """The start of the file in ticks of a stream; None if unknown.

    The file starts with the earliest of its streams, so that words and pictures stay in step.
    """
    # PyAV's type says int; raw streams give None.
    start = cast("int | None", container.start_time)
    if start is None:
        return None
    exact = Fraction(start, 1_000_000)
    if stream.start_time is not None and abs(stream.start_time * time_base - exact) <= Fraction(1, 500_000):
        return stream.start_time
    return round(exact / time_base)


class FrameGrid:
    """The instants k / rate from a start on, in ticks; for speed, in integers of 1 / `_whole` tick."""

    def __init__(self, rate: Fraction, time_base: Fraction, start: Fraction) -> None:
        ticks = 1 / (rate * time_base)
        slack = min(Fraction(1, 2), _ROUNDING_SECONDS / time_base)
        self._whole = math.lcm(ticks.denominator, slack.denominator)
        self._ticks, self._slack = int(ticks * self._whole), int(slack * self._whole)
        self.wanted = self._first = self._threshold(math.ceil(start * rate))

    def _threshold(self, instant: int) -> int:
        return -((self._slack - instant * self._ticks) // self._whole)

    def after(self, ticks: int) -> int:
        """The first tick at which a frame is wanted after the frame at `ticks`."""
        return max(self._first, self._threshold((ticks * self._whole + self._slack) // self._ticks + 1))

    def move_past(self, ticks: int) -> None:
        """Take the frame at `ticks`; instants up to it are served."""
        self.wanted = self.after(ticks)


class _View:
    """A window over packets in decoding order that decides which ones are wanted.

    A picture is wanted if it is the first at or after an instant. All pictures that could be shown between
    the instant and it are inside the window.
    """

    def __init__(self, clock: Clock, grid: FrameGrid) -> None:
        self._clock, self._grid = clock, grid
        self._waiting: deque[tuple[Packet[VideoStream], int | None]] = deque()
        self._nearby: deque[int] = deque(maxlen=2 * _PACKETS_IN_VIEW)

    def judged(self, packets: Iterable[Packet[VideoStream]]) -> Iterator[tuple[Packet[VideoStream], bool]]:
        """Each packet, and whether its picture is wanted."""
        for packet in packets:
            ticks = self._clock.packet_ticks(packet)
            self._waiting.append((packet, ticks))
            if ticks is not None:
                self._nearby.append(ticks)
            if len(self._waiting) > _PACKETS_IN_VIEW:
                yield self._oldest()
        while self._waiting:
            yield self._oldest()

    def _oldest(self) -> tuple[Packet[VideoStream], bool]:
        packet, ticks = self._waiting.popleft()
        if ticks is None:
            return packet, True
        before = max((other for other in self._nearby if other < ticks), default=None)
        return packet, before is None or self._grid.after(before) <= ticks


def upright(
    frame: VideoFrame,
    aspect: Fraction | None,
    size: int | None,
    reformatter: VideoReformatter | None = None,
    turn: tuple[bool, bool, bool] | None = None,
) -> NDArray[np.uint8]:
    """The picture scaled, converted to RGB and rotated by `turn` (see `turn_of`), by default the frame's."""
    from av.video.reformatter import Interpolation, VideoReformatter

    width, height = shown_size(frame.width, frame.height, aspect)
    if size is not None and min(width, height) > size:
        scale = Fraction(size, min(width, height))
        width, height = max(1, round(width * scale)), max(1, round(height * scale))
    small = (reformatter or VideoReformatter()).reformat(
        frame, width=width, height=height, format="rgb24", interpolation=Interpolation.AREA
    )
    image = cast("NDArray[np.uint8]", small.to_ndarray())
    swapped, mirrored, flipped = turn_of(frame_matrix(frame)) if turn is None else turn
    if swapped:
        image = image.transpose(1, 0, 2)
    if mirrored:
        image = image[:, ::-1]
    if flipped:
        image = image[::-1]
    return np.ascontiguousarray(image)
