"""The encoding of a cut: the common format of its parts, and the writer."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import UsageError
from whenabouts.video.files import TRANSCRIPT_SUFFIXES, printable
from whenabouts.video.frames import first_frame
from whenabouts.video.probe import (
    MediaError,
    frame_matrix,
    open_media,
    picture_stream,
    probe,
    shown_size,
    stream_rate,
    turn_of,
)
from whenabouts.video.spans import SoundForm, sound_stream
from whenabouts.video.timecode import exact

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.filter import Graph
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

# Quick and visually lossless. Without B-frames pictures are stored in display order: an MP4 then has the
# duration of the last one, and needs no edit list, which some players ignore.
_PICTURE_OPTIONS = {"preset": "veryfast", "crf": "18", "bf": "0"}
# The quick coder: at this bit rate the difference is inaudible.
_SOUND_OPTIONS = {"aac_coder": "fast"}
_BITS_A_CHANNEL = 96_000
_SOUND_RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350)
_LAYOUTS = {1: "mono", 2: "stereo", 6: "5.1"}
_FINEST_TICKS = 1_000_000
_COMMON_TICKS = 90_000
_MOST_TICKS = 10_000_000
# A container's duration is rounded; an end later by less than this is the end.
_END_SLACK = Fraction(1, 20)
_BY_SUFFIX = (
    ".mp4 mp4, .m4v mp4, .m4a mp4, .mov mov, .mkv matroska, .mka matroska, .webm webm, .mp3 mp3, .ogg ogg, "
    ".avi avi, .ts mpegts, .wav wav"
)
_CONTAINERS = dict(pair.split() for pair in _BY_SUFFIX.split(", "))
_ENCODED = ("mp4", "mov", "matroska")


def container_for(path: Path, *, copy: bool = False) -> str:
    """FFmpeg's container for a file suffix. Raises UsageError for an unknown one."""
    container = _CONTAINERS.get(path.suffix.lower())
    if container is None or not (copy or container in _ENCODED):
        suffixes = [suffix for suffix, name in _CONTAINERS.items() if copy or name in _ENCODED]
        raise UsageError(f"{printable(path)}: a cut is written as {', '.join(suffixes)}; give such a name")
    return container


def is_written(path: Path) -> bool:
    """Whether a file suffix is one that cuts can have."""
    return path.suffix.lower() in _CONTAINERS


@dataclass(frozen=True, slots=True)
class Look:
    """The picture format of a file after rotation.

    `aspect` is the pixel aspect ratio; `turn` rotates a decoded frame upright (`probe.turn_of`); `colours`
    are range, primaries, transfer and matrix in FFmpeg's numbers; `depth` is bits a sample.
    """

    width: int
    height: int
    aspect: Fraction
    rate: Fraction
    time_base: Fraction
    turn: tuple[bool, bool, bool]
    colours: tuple[int, int, int, int]
    pixels: str
    depth: int

    @property
    def shown(self) -> tuple[int, int]:
        """Width and height with square pixels."""
        return shown_size(self.width, self.height, self.aspect)


@dataclass(frozen=True, slots=True)
class Span:
    """A part to cut: [start, end) in a file, and its formats. `requested` is unrounded."""

    path: Path
    requested: tuple[float, float]
    start: Fraction
    end: Fraction
    look: Look | None
    sound: SoundForm | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """The format of the new file; `parts` is the number of parts."""

    look: Look | None
    sound: SoundForm | None
    parts: int


def look_at(path: Path, start: float, end: float) -> Span:
    """The formats of a file, and the span [start, end) clipped to it.

    Raises UsageError for an invalid span or one after the end, MediaError if the file is not media.
    """
    if not (math.isfinite(start) and math.isfinite(end) and 0 <= exact(start) < exact(end)):
        raise UsageError(
            f"{printable(path)}: {start!r}-{end!r} is not a span of time; 0 <= start < end is needed"
        )
    check_media(path)
    probed = probe(path)
    notes: list[str] = []
    first, last = exact(start), exact(end)
    if probed.duration is not None:
        length = exact(probed.duration)
        if first >= length:
            raise UsageError(
                f"{printable(path)}: the moment starts at {start:.3f} s, behind the end of the file "
                f"({probed.duration:.3f} s); choose one inside, or index the file again if it was replaced"
            )
        if last > length + _END_SLACK:
            notes.append(
                f"the moment ends at {end:.3f} s, behind the end of the file; "
                f"cut up to {probed.duration:.3f} s"
            )
            last = length
    with open_media(path) as container:
        stream = picture_stream(container)
        look = None if stream is None else _look(path, container, stream)
        sound = _sound(container)
        tracks = sum(track.codec_context is not None for track in container.streams.audio)
    if tracks > 1:
        notes.append(f"of {tracks} sound tracks the first is taken")
    return Span(path, (start, end), first, last, look, sound, tuple(notes))


def check_media(path: Path) -> None:
    """Raise MediaError for a file that cannot be a recording, such as a pipe (reading it might never end)."""
    with contextlib.suppress(OSError):  # `probe` says what is wrong with a path that cannot be looked at
        if path.exists() and not path.is_file():
            raise MediaError(f"{printable(path)}: not a regular file; give the path of a recording")
    if path.suffix.lower() in TRANSCRIPT_SUFFIXES:
        raise MediaError(f"{printable(path)}: a transcript; there are no pictures and no sound in it to cut")


def _look(path: Path, container: InputContainer, stream: VideoStream) -> Look:
    frame = first_frame(container, stream)
    if frame is None:
        raise MediaError(f"{printable(path)}: no picture in it can be decoded; copy or download it again")
    turn = turn_of(frame_matrix(frame))
    aspect = stream.sample_aspect_ratio or Fraction(1)
    aspect = aspect if Fraction(1, 10) <= aspect <= 10 else Fraction(1)
    width, height = frame.width, frame.height
    if turn[0]:
        width, height, aspect = height, width, 1 / aspect
    base = stream.time_base
    rate = stream_rate(stream) or Fraction(25)
    ticks = base if base and base.numerator == 1 and base.denominator <= _FINEST_TICKS else None
    return Look(
        width=width,
        height=height,
        aspect=aspect,
        rate=rate.limit_denominator(_FINEST_TICKS),
        time_base=ticks or Fraction(1, _COMMON_TICKS),
        turn=turn,
        colours=(
            int(frame.color_range),
            int(frame.color_primaries),
            int(frame.color_trc),
            int(frame.colorspace),
        ),
        pixels="yuvj420p" if frame.format.name.startswith("yuvj") else "yuv420p",
        depth=max((component.bits for component in frame.format.components), default=8),
    )


def _sound(container: InputContainer) -> SoundForm | None:
    stream = sound_stream(container)
    if stream is None or not stream.codec_context.sample_rate:
        return None
    channels = stream.codec_context.channels
    channels = 6 if channels >= 6 else 2 if channels > 1 else 1
    rate = stream.codec_context.sample_rate
    return SoundForm(rate if rate in _SOUND_RATES else 48000, _LAYOUTS[channels], channels)


def common_form(spans: Sequence[Span]) -> tuple[Form, list[list[str]]]:
    """The format that fits all parts with the least loss, and notes on each part.

    Raises MediaError for a part with neither pictures nor sound.
    """
    if empty := next((span for span in spans if span.look is None and span.sound is None), None):
        raise MediaError(f"{printable(empty.path)}: neither pictures nor sound in it can be decoded")
    sounds = [span.sound for span in spans if span.sound is not None]
    best = max(sounds, key=lambda sound: (sound.channels, sound.rate), default=None)
    if best is not None:
        best = replace(best, rate=max(sound.rate for sound in sounds))
    notes: list[list[str]] = [[] for _ in spans]
    pictured = [(span.look, each) for span, each in zip(spans, notes, strict=True) if span.look is not None]
    look = _common_look([each for each, _ in pictured], [each for _, each in pictured])
    for span, span_notes in zip(spans, notes, strict=True):
        if look is not None and span.look is None:
            span_notes.append("has no pictures; black here")
        if best is not None and span.sound is None:
            span_notes.append("has no sound; silent here")
        elif best is not None and span.sound != best:
            span_notes.append(f"sound converted to {best.rate} Hz {best.layout}")
    return Form(look, best, len(spans)), notes


def _common_look(looks: Sequence[Look], notes: list[list[str]]) -> Look | None:
    if not looks:
        return None
    largest = max(looks, key=lambda look: look.shown[0] * look.shown[1])
    same = len({(look.width, look.height, look.aspect) for look in looks}) == 1
    width, height = (largest.width, largest.height) if same else largest.shown
    even = replace(
        largest,
        width=max(2, width - width % 2),
        height=max(2, height - height % 2),
        aspect=largest.aspect if same else Fraction(1),
        time_base=_common_base([look.time_base for look in looks]),
        colours=largest.colours if len({look.colours for look in looks}) == 1 else (0, 2, 2, 2),
        turn=(False, False, False),
    )
    for look, look_notes in zip(looks, notes, strict=True):
        if not same and look.shown != (even.width, even.height):
            look_notes.append(
                f"{look.shown[0]}x{look.shown[1]} scaled to {even.width}x{even.height}, "
                "with bars if the shape differs"
            )
        elif same and (look.width, look.height) != (even.width, even.height):
            look_notes.append(
                f"{look.width}x{look.height} has an odd side; cropped to {even.width}x{even.height}"
            )
        if look.depth > 8:
            look_notes.append(f"{look.depth} bits a colour reduced to 8")
    return even


def _common_base(bases: Sequence[Fraction]) -> Fraction:
    """A time base for all parts, at most microseconds."""
    ticks = math.lcm(*(base.denominator for base in bases))
    return Fraction(1, ticks if ticks <= _FINEST_TICKS else _COMMON_TICKS)


def _ticks(form: Form) -> int:
    """An MP4's movie time scale, in which lengths in samples and in frames are whole."""
    rate = form.sound.rate if form.sound is not None else 1
    ticks = math.lcm(rate, form.look.time_base.denominator if form.look is not None else 1)
    return ticks if ticks <= _MOST_TICKS else rate


class MovieWriter:
    """Writes pictures and sound into a new file; a context manager.

    `time` is where the next part begins, in seconds of the new file.
    """

    def __init__(self, path: Path, form: Form, container: str = "mp4") -> None:
        import av

        self.form = form
        self.time = Fraction(0)
        self._durations: dict[int, int] = {}
        self._last_tick = -1
        self._samples = 0
        self._shaper = None if form.look is None else Shaper(form.look)
        options = {"movflags": "+faststart", "movie_timescale": str(_ticks(form))}
        options = options if container in ("mp4", "mov") else {}
        self._container = av.open(f"file:{path.absolute()}", "w", format=container, options=options)
        self._pictures = None if form.look is None else self._picture_stream(form.look)
        self._sound: Any = None
        if form.sound is not None:
            self._sound = self._container.add_stream(
                "aac", rate=form.sound.rate, layout=form.sound.layout, options=dict(_SOUND_OPTIONS)
            )
            self._sound.bit_rate = _BITS_A_CHANNEL * form.sound.channels

    def _picture_stream(self, look: Look) -> Any:
        stream: Any = self._container.add_stream("libx264", rate=look.rate, options=dict(_PICTURE_OPTIONS))
        context = stream.codec_context
        context.width, context.height, context.pix_fmt = look.width, look.height, look.pixels
        context.time_base = look.time_base
        context.sample_aspect_ratio = look.aspect
        context.thread_type = "FRAME"
        context.color_range, context.color_primaries, context.color_trc, context.colorspace = look.colours
        return stream

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                self._finish()
            finally:
                self._container.close()
            return
        import av

        # The first error is the one to report.
        with contextlib.suppress(av.error.FFmpegError, OSError, ValueError):
            self._container.close()

    def put_picture(self, frame: VideoFrame, source: Look, start: Fraction, end: Fraction) -> None:
        """Write a picture of a source, shown in [start, end) seconds of the new file."""
        assert self._pictures is not None and self._shaper is not None
        base = self._pictures.codec_context.time_base
        shaped = self._shaper.shaped(frame, source)
        tick = max(self._last_tick + 1, round(start / base))
        self._last_tick = tick
        self._durations[tick] = max(1, round(end / base) - tick)
        shaped.pts, shaped.time_base = tick, base
        shaped.pict_type = 0  # the encoder chooses
        self._mux_pictures(self._pictures.encode(shaped))

    def put_black(self, end: Fraction) -> None:
        """Show black from `time` to an instant of the new file, if it has pictures."""
        look = self.form.look
        if look is None or end <= self.time:
            return
        from av.video.frame import VideoFrame

        black = VideoFrame.from_ndarray(np.zeros((look.height, look.width, 3), np.uint8), format="rgb24")
        self.put_picture(black.reformat(format=look.pixels), look, self.time, end)

    def put_sound(self, samples: NDArray[np.float32]) -> None:
        """Append (channels, N) samples."""
        if not samples.shape[1]:
            return
        import av

        assert self.form.sound is not None
        data = np.ascontiguousarray(samples, np.float32)
        frame = av.AudioFrame.from_ndarray(data, format="fltp", layout=self.form.sound.layout)
        frame.sample_rate, frame.pts = self.form.sound.rate, self._samples
        frame.time_base = Fraction(1, self.form.sound.rate)
        self._samples += samples.shape[1]
        for packet in self._sound.encode(frame):
            self._container.mux(packet)

    def fill_silence(self, until: Fraction) -> None:
        """Append silence up to an instant of the new file."""
        assert self.form.sound is not None
        missing = round(until * self.form.sound.rate) - self._samples
        while missing > 0:
            piece = min(missing, self.form.sound.rate)
            self.put_sound(np.zeros((self.form.sound.channels, piece), np.float32))
            missing -= piece

    def _mux_pictures(self, packets: Sequence[Any]) -> None:
        for packet in packets:
            packet.duration = self._durations.pop(packet.pts, packet.duration)
            self._container.mux(packet)

    def _finish(self) -> None:
        if self._pictures is not None:
            self._mux_pictures(self._pictures.encode(None))
        if self._sound is not None:
            for packet in self._sound.encode(None):
                self._container.mux(packet)


class Shaper:
    """Rotates frames upright and scales them; frames that fit pass unchanged."""

    def __init__(self, target: Look) -> None:
        self._target = target
        self._kind: tuple[Any, ...] | None = None
        self._graph: Graph | None = None

    def shaped(self, frame: VideoFrame, source: Look) -> VideoFrame:
        """A frame of a source in the target's format."""
        target = self._target
        upright = (frame.height, frame.width) if source.turn[0] else (frame.width, frame.height)
        fits = (*upright, source.aspect) == (target.width, target.height, target.aspect)
        if fits and not any(source.turn):
            return frame
        kind = (frame.width, frame.height, frame.format.name, source.turn, source.aspect)
        if kind != self._kind or self._graph is None:
            self._graph, self._kind = self._made(frame, source), kind
        frame.pts = 0
        self._graph.vpush(frame)
        return self._graph.vpull()

    def _made(self, frame: VideoFrame, source: Look) -> Graph:
        from av.filter import Graph

        graph = Graph()
        steps = [
            graph.add_buffer(
                width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1, 1000)
            )
        ]
        swapped, mirrored, flipped = source.turn
        if swapped:
            steps.append(graph.add("transpose", "cclock_flip"))
        steps += [
            graph.add(name) for name, is_needed in (("hflip", mirrored), ("vflip", flipped)) if is_needed
        ]
        width, height = (frame.height, frame.width) if swapped else (frame.width, frame.height)
        steps += [graph.add(*step) for step in self._fitting(width, height, source.aspect)]
        steps += [graph.add("format", self._target.pixels), graph.add("buffersink")]
        graph.link_nodes(*steps).configure()
        return graph

    def _fitting(self, width: int, height: int, aspect: Fraction) -> list[tuple[str, str]]:
        target = self._target
        odd = (width - target.width, height - target.height)
        if aspect == target.aspect and odd in ((0, 0), (0, 1), (1, 0), (1, 1)):
            return [("crop", f"{target.width}:{target.height}:0:0")] if any(odd) else []
        seen = shown_size(width, height, aspect)
        room = shown_size(target.width, target.height, target.aspect)
        scale = min(Fraction(room[0], seen[0]), Fraction(room[1], seen[1]))
        wide = min(target.width, max(2, round(seen[0] * scale / target.aspect / 2) * 2))
        high = min(target.height, max(2, round(seen[1] * scale / 2) * 2))
        return [
            ("scale", f"{wide}:{high}"),
            ("pad", f"{target.width}:{target.height}:(ow-iw)/2:(oh-ih)/2"),
        ]
