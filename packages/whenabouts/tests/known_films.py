"""Small films whose pictures, sound and words encode their own time, in containers as recorders write them.

Each second n of a film has its own tone (`tone`) and the words "second n". Each picture shows its time in
twentieths of a second as bright and dark columns. Films differ in how their container stores times.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]

UNITS = 20
"""Units a second in which pictures count."""
WIDTH, HEIGHT = 160, 96
RATE = 16_000
_BITS = 10
_MILLISECONDS = Fraction(1, 1000)
_HEADER = (
    b"[Script Info]\n\n[V4+ Styles]\nFormat: Name\nStyle: Default\n\n[Events]\n"
    b"Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
)


def picture(unit: int) -> Image:
    """A picture of dark and bright columns: the bits of a number, highest first."""
    bits = np.array([(unit >> bit) & 1 for bit in range(_BITS - 1, -1, -1)], np.uint8)
    row = (bits * 215 + 20).repeat(WIDTH // _BITS)
    return np.broadcast_to(row[None, :, None], (HEIGHT, WIDTH, 3)).copy()


def unit_of(image: Image) -> int:
    """The number that a picture of any size shows."""
    columns = np.array_split(image[:, :, 0].mean(axis=0), _BITS)
    return int("".join("1" if column.mean() > 127 else "0" for column in columns), 2)


def tone(second: int) -> float:
    """The pitch of a second, in Hz."""
    return 400.0 + 100.0 * second


def second_of(samples: NDArray[np.float32], rate: int = RATE) -> int | None:
    """The second whose tone is in some samples (N,); None in silence."""
    if not len(samples) or np.abs(samples).max() < 0.02:
        return None
    strength = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return round((float(strength.argmax()) * rate / len(samples) - tone(0)) / 100)


def wave(start: float, end: float, higher: int = 0) -> NDArray[np.int16]:
    """The sound of [start, end): the tone of each second, raised by a number of tones."""
    times = np.arange(round(start * RATE), round(end * RATE)) / RATE
    pitch = tone(higher) + 100 * np.floor(times + 1e-9)
    return (np.sin(2 * np.pi * pitch * (times % 1)) * 12_000).astype(np.int16)


@dataclass
class Plan:
    """The contents of a film, in seconds of the recording.

    `times`: when pictures are shown (each shows the unit of its time); `sound`: a span, of which `unheard` is
    not stored; `tracks`: how many sound tracks, each 20 tones above the one before; `words`: seconds with
    words; `offset` is added to all times in the container. `interlaced` codes fields; `is_turned` stores
    pictures upside down, with a matrix that turns them upright.
    """

    times: list[float] = field(default_factory=lambda: [unit / UNITS for unit in range(12 * UNITS)])
    sound: tuple[float, float] = (0.0, 12.0)
    unheard: tuple[float, float] = (0.0, 0.0)
    words: tuple[int, ...] = tuple(range(12))
    offset: float = 0.0
    video: str = "libx264"
    audio: str = "aac"
    text: str = ""
    options: dict[str, str] = field(default_factory=lambda: {"g": "40", "bf": "2"})
    container: dict[str, str] = field(default_factory=dict)
    tracks: int = 1
    interlaced: bool = False
    is_turned: bool = False
    base: Fraction = _MILLISECONDS


def write(path: Path, plan: Plan, form: str | None = None) -> Path:
    """Write the film of a plan."""
    with av.open(str(path), "w", format=form, options=plan.container) as container:
        pictures: Any = container.add_stream(plan.video, rate=UNITS)
        pictures.width, pictures.height, pictures.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        pictures.codec_context.time_base = plan.base
        pictures.options = dict(plan.options)
        if plan.interlaced:
            pictures.options |= {"flags": "+ildct+ilme", "x264-params": "tff=1"}
        sounds: list[Any] = [container.add_stream(plan.audio, rate=RATE) for _ in range(plan.tracks)]
        for sound in sounds:
            sound.layout = "mono"
        text: Any = container.add_stream(plan.text) if plan.text else None
        if text is not None:
            text.codec_context.subtitle_header = _HEADER
        packets = list(_pictures(pictures, plan))
        for number, sound in enumerate(sounds):
            packets += _sounds(sound, plan, 20 * number)
        packets += _texts(text, plan) if text is not None else []
        container.start_encoding()
        for packet in sorted(packets, key=lambda each: (each.dts or 0) * each.time_base):
            ticks = round(plan.offset / packet.time_base)
            packet.pts += ticks
            packet.dts += ticks
            container.mux(packet)
    if plan.is_turned:
        _turn(path)
    return path


def _turn(path: Path) -> None:
    """Write a display matrix of half a turn into the first track of an MP4 (ISO 14496-12, 8.3.2)."""
    data = bytearray(path.read_bytes())
    place = data.index(b"tkhd") + 4 + 40
    data[place : place + 36] = struct.pack(">9i", -1 << 16, 0, 0, 0, -1 << 16, 0, 0, 0, 1 << 30)
    path.write_bytes(data)


def _pictures(stream: Any, plan: Plan) -> Iterator[Any]:
    ends = [*plan.times[1:], plan.times[-1] + 1 / UNITS]
    lengths = {
        round(at / plan.base): round((end - at) / plan.base) for at, end in zip(plan.times, ends, strict=True)
    }
    for at in plan.times:
        shown = picture(round(at * UNITS))
        if plan.is_turned:
            shown = np.ascontiguousarray(shown[::-1, ::-1])
        frame = av.VideoFrame.from_ndarray(shown, format="rgb24")
        frame.pts, frame.time_base = round(at / plan.base), plan.base
        yield from _stamped(stream, stream.encode(frame), lengths)
    yield from _stamped(stream, stream.encode(None), lengths)


def _stamped(stream: Any, packets: Iterable[Any], lengths: dict[int, int]) -> Iterator[Any]:
    for packet in packets:
        packet.stream = stream
        packet.duration = lengths.get(packet.pts, packet.duration)
        yield packet


def _sounds(stream: Any, plan: Plan, higher: int) -> Iterator[Any]:
    start, end = plan.sound
    samples = wave(start, end, higher)
    size = 1024 if plan.audio in ("aac", "pcm_s16le") else 320
    for at in range(0, len(samples), size):
        if plan.unheard[0] <= start + at / RATE < plan.unheard[1]:
            continue
        block = np.ascontiguousarray(samples[None, at : at + size])
        frame = av.AudioFrame.from_ndarray(block, format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, round(start * RATE) + at, Fraction(1, RATE)
        yield from stream.encode(frame)
    yield from stream.encode(None)


def _texts(stream: Any, plan: Plan) -> Iterator[Any]:
    for second in plan.words:
        dialogue = f"{second},0,Default,,0,0,0,,second {second}".encode()
        words = av.subtitles.subtitle.SubtitleSet.create(
            text=dialogue, start=0, end=900, pts=second * 1_000_000
        )
        packet = stream.codec_context.encode_subtitle(words)
        packet.stream, packet.time_base = stream, _MILLISECONDS
        packet.pts = packet.dts = second * 1000
        packet.duration = 900
        yield packet


def sound(
    path: Path, codec: str, samples: NDArray[np.int16], form: str | None = None, is_variable: bool = False
) -> Path:
    """Write a file of sound; `is_variable`: by quality 4 instead of a bit rate, without a Xing header."""
    options = {"write_xing": "0"} if is_variable else {}
    with av.open(str(path), "w", format=form, options=options) as container:
        stream: Any = container.add_stream(codec, rate=RATE)
        stream.layout = "mono"
        if is_variable:
            stream.codec_context.bit_rate = 0
            stream.codec_context.global_quality, stream.codec_context.flags = 4 * 118, 2
        for at in range(0, len(samples), 960):
            block = np.ascontiguousarray(samples[None, at : at + 960])
            frame = av.AudioFrame.from_ndarray(block, format="s16", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = RATE, at, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path
