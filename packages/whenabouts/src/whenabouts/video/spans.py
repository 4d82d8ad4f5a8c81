"""Decoded pictures and sound of a span of a file, for cutting.

Reading begins at the key frame before the span. Times are exact seconds since the start of the file, on one
clock for pictures, sound and words.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from whenabouts.video.files import printable
from whenabouts.video.frames import FrameGrid, FrameReader, seek_margin
from whenabouts.video.opened import discard_others, packets_of
from whenabouts.video.probe import MediaError, open_media
from whenabouts.video.sound import Resampler
from whenabouts.video.timecode import FrameTimes, border

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame

_log = logging.getLogger(__name__)
_MICROSECONDS = 1_000_000
# A cut begins and ends at frames. But where a picture stays longer than this (screens, slides), it is cut at
# the border itself.
HELD_SECONDS = Fraction(1, 10)
# Sound decoders need earlier data: AAC a frame, Opus 80 ms, MP3 its bit reservoir.
_PREROLL = Fraction(1, 2)
# Formats whose seeks are guesses, because they have no index or a wrong one: they are read from the first
# packet.
_GUESSES_SEEKS = {"mp3", "aac", "ac3", "eac3", "dts", "amr", "loas", "avi"}
# Blocks of sound within this distance are contiguous: containers round times.
_JITTER_SECONDS = Fraction(1, 100)


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded frame, shown in [start, end) seconds since the start of the file."""

    start: Fraction
    end: Fraction
    frame: VideoFrame


class PictureSpan:
    """The pictures of [start, end) of a file, in display order.

    After reading, `end` is where the last picture really ends, `follows` whether a picture comes after the
    span, `damage` a description of unreadable parts or None, `frames_decoded` the number of decoded frames,
    those before the span included. If no picture is in the span, `nearest` is the one before it, or else the
    one after it.
    """

    def __init__(self, path: Path, start: Fraction, end: Fraction) -> None:
        self.path, self._start, self._end = path, start, end
        self.end = start
        self.follows = False
        self.nearest: VideoFrame | None = None
        self.damage: str | None = None
        self.frames_decoded = 0

    def __iter__(self) -> Iterator[Picture]:
        frames = self._frames(skips=True)
        current = next(frames, None)
        if current is None or current[0] - self._start > HELD_SECONDS:
            # The picture shown at the start is wanted too, which the decoder may have skipped to save time.
            frames.close()
            frames = self._frames(skips=False)
            current = next(frames, None)
        while current is not None:
            time, frame = current
            current = next(frames, None)
            until = self.end if current is None else current[0]
            yield Picture(time, until, frame)

    def _frames(self, *, skips: bool) -> Generator[tuple[Fraction, VideoFrame]]:
        """(time, frame) of the span; afterwards `end` is known."""
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
                    elif last is None:
                        self.nearest = frame
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
                elif last is None:
                    self.nearest = held
                self.end = min(natural, self._end) if natural - self._end > HELD_SECONDS else natural
        self.damage = reader.damage


def cut_borders(
    times: FrameTimes | None, start: Fraction, end: Fraction, *, has_sound: bool
) -> tuple[Fraction, Fraction]:
    """Where a cut of [start, end) begins and ends, from the frame times (None: no pictures) alone.

    The result is that of a `PictureSpan` and, if sound goes on, of `cut`: frames, or the given times where
    pictures stay long or end before the sound.
    """
    if times is None:
        return start, end
    first, last = times.span(start, end)
    begins, ends = times.time(first), times.time(last)
    if first == last or begins - start > HELD_SECONDS:
        begins = start
    goes_on = has_sound and end - ends > HELD_SECONDS
    return begins, ends if start < ends <= end + HELD_SECONDS and not goes_on else end


class _Reader(FrameReader):
    """The frame reader, yielding each decoded frame from the key frame before an instant on."""

    def __init__(self, path: Path, start: Fraction, *, skips: bool) -> None:
        super().__init__(path, 1.0, size=None, threads=0, start=0.0, end=None)
        self._start = max(Fraction(0), border(start))
        self.skips_unwanted = skips

    def pictures(self) -> Iterator[tuple[Fraction, VideoFrame]]:
        """(time, frame), including decoded ones before the start."""
        clock = self._open()
        each_tick = FrameGrid(1 / clock.time_base, clock.time_base, self._start)
        for frame in self._decoded(clock, each_tick):
            ticks = clock.ticks_of(frame)
            if ticks is not None:
                yield ticks * clock.time_base, frame

    @property
    def natural_end(self) -> Fraction:
        """Where the last picture read so far ends."""
        return Fraction(0) if self._clock is None else self._clock.end


@dataclass(frozen=True, slots=True)
class SoundForm:
    """The format of sound: samples a second, and the layout ("stereo") and number of its channels."""

    rate: int
    layout: str
    channels: int


def sound_stream(container: InputContainer) -> AudioStream | None:
    """The first sound track that can be decoded."""
    return next((track for track in container.streams.audio if track.codec_context is not None), None)


class SoundSpan:
    """Sound of a file from an instant on, in a given format.

    Each `read` continues after the last one; gaps of the recording are filled with silence.
    """

    def __init__(self, path: Path, start: Fraction, form: SoundForm) -> None:
        self.form = form
        self.position = round(start * form.rate)
        self._path, self._start = path, start
        self._container = open_media(path)
        self._blocks = self._positioned()
        self._held: tuple[int, NDArray[np.float32]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._blocks.close()
        self._container.close()

    def read(self, until: Fraction) -> NDArray[np.float32]:
        """(channels, N) samples in [-1, 1] up to an instant; fewer if the recording ends before it."""
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
        converter = Resampler("fltp", self.form.layout, self.form.rate)
        following: int | None = None
        jitter = _JITTER_SECONDS * self.form.rate
        for frame, time in self._decoded(self._container):
            at = following if time is None else round(time * self.form.rate)
            at = 0 if at is None else at
            if following is not None and abs(at - following) <= jitter:
                at = following
            frame.pts = None  # `at` has the place of each block
            for samples in converter.resampled(frame, restart=following is not None and at != following):
                yield at, samples
                at += samples.shape[1]
            following = at
        for samples in converter.rest():
            if following is not None:
                yield following, samples
                following += samples.shape[1]

    def _decoded(self, container: InputContainer) -> Iterator[tuple[AudioFrame, Fraction | None]]:
        """Frames with their time since the start of the file, from shortly before the start on."""
        import av

        stream = self._sound_of(container)
        origin = Fraction(container.start_time or 0, _MICROSECONDS)
        earliest = self._start - _PREROLL + origin
        sought = earliest - seek_margin(container)
        seeks = not _GUESSES_SEEKS & set(container.format.name.split(","))
        if seeks and earliest > origin and stream.time_base:
            try:
                container.seek(int(sought / stream.time_base), stream=stream, backward=True)
            except av.error.FFmpegError as error:
                _log.info("%s: seek to %.2f s failed (%s)", printable(self._path), float(earliest), error)
                # FFmpeg may have read to the end, looking for the instant.
                container.close()
                self._container = container = open_media(self._path)
                stream = self._sound_of(container)
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

    def _sound_of(self, container: InputContainer) -> AudioStream:
        """The sound track to read; other streams are discarded."""
        stream = sound_stream(container)
        if stream is None:
            raise MediaError(f"{printable(self._path)}: holds no sound")
        discard_others(container, stream.index)
        return stream

    def _packets(self, container: InputContainer, stream: AudioStream) -> Iterator[Packet[AudioStream]]:
        import av

        try:
            yield from packets_of(container, stream)
        except av.error.FFmpegError as error:
            _log.info("%s: sound cannot be read to its end (%s)", printable(self._path), error)
