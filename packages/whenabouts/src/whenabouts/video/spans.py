"""Pictures and sound of a span of a file, as they are decoded: what a cut is made of.

Reading begins at the key frame before the span. Times are exact seconds since the start of the file, on the
one clock of pictures, sound and words.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from whenabouts.video.files import printable
from whenabouts.video.frames import Clock, FrameGrid, FrameReader
from whenabouts.video.probe import MediaError, open_media
from whenabouts.video.timecode import border

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.resampler import AudioResampler
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame

_log = logging.getLogger(__name__)
_MICROSECONDS = 1_000_000
# Where pictures come more rarely than this (screens, slides), the one that stands at a border is shown from
# it or up to it; elsewhere a border is moved to a frame.
HELD_SECONDS = Fraction(1, 10)
# Decoders of sound need some of what comes before: AAC a frame, Opus 80 ms, MP3 its reservoir of bits.
_PREROLL = Fraction(1, 2)
# Formats without an index of times: a seek would guess. Their packets are counted from the first instead.
_GUESSES_SEEKS = {"mp3", "aac", "ac3", "eac3", "dts", "amr", "loas", "avi"}
# Blocks of sound whose time is off by no more follow one another: containers round times.
_JITTER_SECONDS = Fraction(1, 100)


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded frame and when it is on the screen: [start, end) in seconds since the start of the file."""

    start: Fraction
    end: Fraction
    frame: VideoFrame


class PictureSpan:
    """The pictures of [start, end) of a file, in the order of showing.

    After reading, `end` is where the last of them really ends, `follows` whether there is a picture behind
    the span, `damage` what could not be read or None, `frames_decoded` how many were decoded on the way.
    """

    def __init__(self, path: Path, start: Fraction, end: Fraction) -> None:
        self.path, self._start, self._end = path, start, end
        self.end = start
        self.follows = False
        self.damage: str | None = None
        self.frames_decoded = 0

    def __iter__(self) -> Iterator[Picture]:
        first = self._frames(skips=True)
        current = next(first, None)
        if current is None or current[0] - self._start > HELD_SECONDS:
            # The picture that stands at the start is wanted too, and it may have been skipped.
            first.close()
            first = self._frames(skips=False)
            current = next(first, None)
        while current is not None:
            time, frame = current
            current = next(first, None)
            until = self.end if current is None else current[0]
            yield Picture(time, until, frame)

    def _frames(self, *, skips: bool) -> Generator[tuple[Fraction, VideoFrame]]:
        """(time, frame) of the span; then `end` is known."""
        reader = _Reader(self.path, self._start, skips=skips)
        held: VideoFrame | None = None
        last: Fraction | None = None
        self.follows = False
        with reader:
            for time, frame in reader.pictures():
                self.frames_decoded += 1
                if time < border(self._start):
                    held = frame
                    continue
                if time >= border(self._end):
                    self.follows = True
                    if last is None and held is not None and not skips:
                        yield self._start, held
                    self.end = time if time - self._end <= HELD_SECONDS else self._end
                    break
                if last is None and time - self._start > HELD_SECONDS and not skips:
                    yield self._start, held or frame
                last = time
                yield time, frame
            else:
                natural = reader.natural_end
                if last is None and held is not None and natural > self._start and not skips:
                    yield self._start, held
                self.end = min(natural, self._end) if natural - self._end > HELD_SECONDS else natural
        self.damage = reader.damage


class _Reader(FrameReader):
    """The frame reader, giving out each decoded frame from the key frame before an instant on."""

    def __init__(self, path: Path, start: Fraction, *, skips: bool) -> None:
        super().__init__(path, 1.0, size=None, threads=0, start=0.0, end=None)
        self._start = max(Fraction(0), border(start))
        self.skips_unwanted = skips

    def pictures(self) -> Iterator[tuple[Fraction, VideoFrame]]:
        """(time, frame); those before the start, too, as far as they are decoded."""
        stream = self._open()
        clock = self._clock = Clock(self._opened, stream)
        span = _EachFrom(clock.time_base, self._start)
        for frame in self._decoded(stream, clock, span):
            ticks = clock.ticks_of(frame)
            if ticks is not None:
                yield ticks * clock.time_base, frame

    @property
    def natural_end(self) -> Fraction:
        """Where the last picture read so far ends."""
        return Fraction(0) if self._clock is None else self._clock.end

    @property
    def _opened(self) -> InputContainer:
        assert self._container is not None
        return self._container


class _EachFrom(FrameGrid):
    """Every frame from an instant on is wanted, none before."""

    def __init__(self, time_base: Fraction, start: Fraction) -> None:
        super().__init__(Fraction(1), time_base, start)
        self._first = -int(-start // time_base)
        self.wanted = self._first

    def after(self, ticks: int) -> int:
        """The first tick that is wanted behind a frame."""
        return max(self._first, ticks)


@dataclass(frozen=True, slots=True)
class SoundForm:
    """How sound is stored: samples a second, and the layout of its channels ("stereo")."""

    rate: int
    layout: str
    channels: int


def sound_stream(container: InputContainer) -> AudioStream | None:
    """The first stream of sound that can be decoded."""
    return next((track for track in container.streams.audio if track.codec_context is not None), None)


class SoundSpan:
    """Sound of a file from an instant on, in the form that is asked for, sample by sample.

    `read` goes on from where it stopped; where the recording has a gap there is silence.
    """

    def __init__(self, path: Path, start: Fraction, form: SoundForm) -> None:
        self.form = form
        self.position = round(start * form.rate)
        self._path, self._start = path, start
        self._container: InputContainer | None = open_media(path)
        self._blocks = self._positioned()
        self._held: tuple[int, NDArray[np.float32]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocks.close()
        if self._container is not None:
            self._container.close()
            self._container = None

    def read(self, until: Fraction) -> NDArray[np.float32]:
        """(channels, N) samples in [-1, 1] up to an instant; fewer where the recording ends before it."""
        target = round(until * self.form.rate)
        parts: list[NDArray[np.float32]] = []
        while self.position < target:
            block = self._held or next(self._blocks, None)
            self._held = None
            if block is None:
                break
            at, samples = block
            if at > self.position:
                silence = min(at, target) - self.position
                parts.append(np.zeros((self.form.channels, silence), np.float32))
                self.position += silence
                self._held = block
                continue
            needed = samples[:, self.position - at : target - at]
            parts.append(needed)
            self.position += needed.shape[1]
            if at + samples.shape[1] > self.position:
                self._held = block
        return np.concatenate(parts, 1) if parts else np.zeros((self.form.channels, 0), np.float32)

    def _positioned(self) -> Generator[tuple[int, NDArray[np.float32]]]:
        """(number of the first sample since the start of the file, samples) of each block."""
        assert self._container is not None
        converter = _Converter(self.form)
        following: int | None = None
        jitter = _JITTER_SECONDS * self.form.rate
        for frame, time in self._decoded(self._container):
            at = following if time is None else round(time * self.form.rate)
            at = 0 if at is None else at
            if following is not None and abs(at - following) <= jitter:
                at = following
            for samples in converter.converted(frame, restart=following is not None and at != following):
                yield at, samples
                at += samples.shape[1]
            following = at
        for samples in converter.rest():
            if following is not None:
                yield following, samples
                following += samples.shape[1]

    def _decoded(self, container: InputContainer) -> Iterator[tuple[AudioFrame, Fraction | None]]:
        """Frames with their time since the start of the file, from somewhat before the start on."""
        import av
        from av.stream import Discard

        stream = sound_stream(container)
        if stream is None:
            raise MediaError(f"{printable(self._path)}: holds no sound")
        for other in container.streams:
            if other.index != stream.index:
                other.discard = Discard.all
        origin = Fraction(container.start_time or 0, _MICROSECONDS)
        earliest = self._start - _PREROLL + origin
        seeks = not _GUESSES_SEEKS & set(container.format.name.split(","))
        if seeks and earliest > origin and stream.time_base:
            try:
                container.seek(int(earliest / stream.time_base), stream=stream, backward=True)
            except av.error.FFmpegError as error:
                _log.info("%s: seek to %.2f s failed (%s)", self._path, float(earliest), error)
        for packet in self._packets(container, stream):
            if packet.pts is not None and packet.pts * packet.time_base < earliest - 1 and packet.size:
                continue
            try:
                frames = packet.decode()
            except av.error.EOFError:
                return
            except av.error.FFmpegError as error:
                _log.info("%s: a packet of sound left out (%s)", printable(self._path), error)
                continue
            for frame in frames:
                base = frame.time_base or stream.time_base
                yield frame, None if frame.pts is None or base is None else frame.pts * base - origin

    def _packets(self, container: InputContainer, stream: AudioStream) -> Iterator[Packet[AudioStream]]:
        import av

        try:
            yield from container.demux(stream)
        except av.error.FFmpegError as error:
            _log.info("%s: sound cannot be read to its end (%s)", printable(self._path), error)


class _Converter:
    """To one form, also where the recording changes its own on the way."""

    def __init__(self, form: SoundForm) -> None:
        self._form = form
        self._kind: tuple[Any, ...] | None = None
        self._resampler: AudioResampler | None = None

    def converted(self, frame: AudioFrame, *, restart: bool) -> Iterator[NDArray[np.float32]]:
        """(channels, N) samples of a frame, after what was held back of another kind or place."""
        import av

        kind = (frame.format.name, frame.layout.name, frame.sample_rate)
        if restart or kind != self._kind or self._resampler is None:
            yield from self.rest()
            self._kind = kind
            self._resampler = av.AudioResampler(format="fltp", layout=self._form.layout, rate=self._form.rate)
        frame.pts = None  # the place of each block is known from outside
        for made in self._resampler.resample(frame):
            yield np.asarray(made.to_ndarray(), np.float32)

    def rest(self) -> Iterator[NDArray[np.float32]]:
        """The samples that the filter still holds."""
        if self._resampler is not None:
            for made in self._resampler.resample(None):
                yield np.asarray(made.to_ndarray(), np.float32)
            self._resampler = None
