"""The time of each frame of a file, from its packets, without decoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from whenabouts.video.files import printable
from whenabouts.video.frames import Clock, first_frame
from whenabouts.video.opened import discard_others, packets_of
from whenabouts.video.probe import MediaError, open_media, picture_stream, start_timecode, stream_rate
from whenabouts.video.timecode import FrameTimes, nearest_rate

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream


@dataclass(frozen=True, slots=True)
class Timing:
    """The frame times of a file, its stated rate, and the time code of its first frame ("" without one)."""

    times: FrameTimes
    stated_rate: Fraction | None
    start_timecode: str


def read_timing(path: Path) -> Timing | None:
    """The times of all frames of a file; None without pictures. Raises MediaError."""
    with open_media(path) as container:
        stream = picture_stream(container)
        if stream is None:
            return None
        clock = Clock(container, stream)
        times = _times(path, container, stream, clock)
        return Timing(times, stream_rate(stream), start_timecode(container))


def frame_rate(path: Path) -> Fraction | None:
    """Frames a second of a file, as a standard rate if near one; None if unknown. Raises MediaError."""
    with open_media(path) as container:
        stream = picture_stream(container)
        rate = None if stream is None else stream_rate(stream)
        return None if rate is None else nearest_rate(rate)


def _times(path: Path, container: InputContainer, stream: VideoStream, clock: Clock) -> FrameTimes:
    discard_others(container, stream.index)
    packets = list(_stamps(container, stream))
    if packets and clock.is_ordered:
        packets = _from_first_shown(path, packets)
    if not packets:
        raise MediaError(
            f"{printable(path)}: holds no picture that can be reached; copy or download it again"
        )
    base = clock.time_base
    step = max(1, round(1 / ((stream_rate(stream) or Fraction(25)) * base)))
    rows = [(dts if pts is None else pts, length) for pts, dts, length in packets]
    stamps = np.array([stamp for stamp, _ in rows if stamp is not None], np.int64)
    if clock.is_counted or not len(stamps):
        return FrameTimes(np.arange(len(packets), dtype=np.int64) * step, base, len(packets) * step)
    origin = clock.stamp_at(Fraction(0)) if clock.can_seek else int(stamps.min())
    if untimed := len(rows) - len(stamps):  # FFmpeg gives no times below 0 in Matroska
        stamps = np.concatenate([origin + np.arange(untimed, dtype=np.int64) * step, stamps])
    ends = np.array([stamp + (length or step) for stamp, length in rows if stamp is not None], np.int64)
    zero = min(origin, int(stamps.min()))
    ticks = np.unique(stamps) - zero
    return FrameTimes(ticks, base, max(int(ticks[-1]) + 1, int(ends.max()) - zero))


def _from_first_shown(
    path: Path, packets: list[tuple[int | None, int | None, int]]
) -> list[tuple[int | None, int | None, int]]:
    """The packets of an AVI, each with the time at which the decoder delivers its picture.

    Pictures that are stored out of order are delivered some packets late; the last ones follow at the end.
    """
    decoding = [dts for _, dts, _ in packets if dts is not None]
    first = _first_shown(path)
    late = decoding.index(first) if first in decoding else 0
    step = max(1, packets[-1][2])
    shown = [*decoding[late:], *(decoding[-1] + step * number for number in range(1, late + 1))]
    return [(None, dts, step) for dts in shown]


def _first_shown(path: Path) -> int | None:
    """The decoding time of the packet at which the decoder delivers the first picture."""
    with open_media(path) as container:
        stream = picture_stream(container)
        assert stream is not None
        frame = first_frame(container, stream)
        return None if frame is None else frame.dts


def _stamps(container: InputContainer, stream: VideoStream) -> Iterator[tuple[int | None, int | None, int]]:
    """(presentation time, decoding time, duration) in ticks of each packet that is shown."""
    import av

    try:
        for packet in packets_of(container, stream):
            if packet.size and not packet.is_discard:
                yield packet.pts, packet.dts, packet.duration or 0
    except av.error.FFmpegError:
        return  # there are no frames after the damage
