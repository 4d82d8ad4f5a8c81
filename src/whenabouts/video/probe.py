"""What is in a media file: its pictures, sound, subtitles and length, without decoding it."""

from __future__ import annotations

import errno
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from whenabouts.types import WhenaboutsError
from whenabouts.video.files import printable
from whenabouts.video.headers import lacks_index, missing_bytes, track_matrices

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_MICROSECONDS = 1_000_000
# A month. Whatever is longer comes from a damaged header, and would make an index of millions of clips.
_LONGEST_SECONDS = 31 * 86_400
# Frames a second below this come from a damaged header too: one in ten minutes.
_SLOWEST_RATE = Fraction(1, 600)
# What FFmpeg would open although it is no recording: lists of other files, and single pictures.
_PLAYLISTS = {"concat", "hls", "dash", "webm_dash_manifest", "sdp", "imf", "applehttp"}
_LONGEST_TAG = 1000
# What writing programs leave in a container; nobody searches by it.
_WRITERS_TAGS = {"major_brand", "minor_version", "compatible_brands", "encoder", "handler_name", "vendor_id"}
_PICTURES = {"image2", "ico", "apng", "tty", "ansi"}


class MediaError(WhenaboutsError):
    """A file that cannot be read as media; the message names the path, the cause and the remedy."""


@dataclass(frozen=True, slots=True)
class PictureStream:
    """The pictures of a video.

    `index` is the stream's number in the container; `width`, `height` are pixels of the upright picture
    as it is shown (rotated, pixels square); `rate` is frames a second on average, None where unknown.
    """

    index: int
    codec: str
    width: int
    height: int
    rate: float | None


@dataclass(frozen=True, slots=True)
class SubtitleTrack:
    """An embedded subtitle track. `is_text` is false for pictures of text (DVD, Blu-ray)."""

    index: int
    codec: str
    language: str | None
    title: str | None
    is_text: bool
    is_default: bool
    is_forced: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """What a media file holds.

    `duration` is seconds, None where neither container nor packets tell. `missing_bytes` says how much
    of a broken-off file is lacking, 0 for a whole one; `duration` is then what the file claims.
    `sound_language` is what the first sound says that it speaks, None where it does not.
    `metadata` are the container's own tags (title, creation_time, …), keys in lower case.
    """

    container: str
    duration: float | None
    picture: PictureStream | None
    has_audio: bool
    subtitle_tracks: tuple[SubtitleTrack, ...]
    missing_bytes: int = 0
    sound_language: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


def probe(path: Path) -> Probe:
    """What the file at `path` holds. No picture is decoded.

    The pictures are those of the first real video stream: cover art and thumbnails are none. Where the
    container states no duration, the streams are asked, then the packets are read through to the last.
    Raises MediaError for what is not media, empty, cut off before its index, or without permission.
    """
    with open_media(path) as container:
        stream = picture_stream(container)
        probed = Probe(
            container=container.format.name,
            duration=_stated_duration(container),
            picture=_picture(path, stream) if stream is not None else None,
            has_audio=any(audio.codec_context is not None for audio in container.streams.audio),
            subtitle_tracks=tuple(_track(track) for track in container.streams.subtitles),
            missing_bytes=missing_bytes(path),
            sound_language=next(
                (_language(audio.metadata.get("language")) for audio in container.streams.audio), None
            ),
            metadata=_tags(container.metadata),
        )
    if probed.picture is None and not probed.has_audio:
        raise MediaError(_nothing_inside(path, probed))
    if probed.duration is None:
        return replace(probed, duration=_scanned_duration(path))
    return probed


def open_media(path: Path) -> InputContainer:
    """An open container; the caller closes it. Raises MediaError with a cause and a remedy.

    Only local files are touched: a playlist in disguise can neither reach the network nor other files.
    """
    import av

    try:
        if path.stat().st_size == 0:
            raise MediaError(f"{printable(path)}: the file is empty (0 bytes); copy or download it again")
        # "file:" keeps FFmpeg from reading a name such as "12:30.mp4" as a protocol.
        container = av.open(f"file:{path.absolute()}", options={"protocol_whitelist": "file"})
    except MediaError:
        raise
    except (OSError, ValueError, av.error.FFmpegError) as error:
        raise MediaError(_cannot_open(path, error)) from error
    name = container.format.name
    if _PLAYLISTS & set(name.split(",")):
        container.close()
        raise MediaError(
            f"{printable(path)}: a list of other files ({name}), not a recording; index those files"
        )
    if name in _PICTURES or name.endswith("_pipe"):
        container.close()
        raise MediaError(f"{printable(path)}: a picture or text ({name}), not a video; leave it out")
    return container


def picture_stream(container: InputContainer) -> VideoStream | None:
    """The first real video stream: not cover art, not a thumbnail, and one that can be decoded."""
    from av.stream import Disposition

    beside = Disposition.attached_pic | Disposition.timed_thumbnails | Disposition.still_image
    for stream in container.streams.video:
        if stream.codec_context is None or stream.disposition & beside:
            continue
        if stream.codec_context.width > 0 and stream.codec_context.height > 0:
            return stream
    return None


def stream_rate(stream: VideoStream) -> Fraction | None:
    """Frames a second, as far as the container or the codec tells."""
    for rate in (stream.average_rate, stream.guessed_rate, stream.base_rate):
        if rate is not None and _SLOWEST_RATE <= rate <= 1000:
            return Fraction(rate)
    return None


def shown_size(width: int, height: int, aspect: Fraction | None) -> tuple[int, int]:
    """Width and height with square pixels, for pictures stored with pixels of another shape.

    >>> shown_size(720, 576, Fraction(64, 45))
    (1024, 576)
    """
    if not aspect or aspect == 1 or not Fraction(1, 10) <= aspect <= 10:
        return width, height
    return max(1, round(width * aspect)), height


def turn_of(matrix: Sequence[int] | None) -> tuple[bool, bool, bool]:
    """How a picture is brought upright: (swap axes, then mirror left-right, then mirror top-bottom).

    `matrix` is the display matrix, row by row in fixed point (ISO 14496-12, 8.3.2): x' = a x + c y,
    y' = b x + d y. Angles between are rounded to a quarter turn; None and all zeros turn nothing.
    """
    if matrix is None or not any(matrix):
        return False, False, False
    a, b, _, c, d = matrix[:5]
    if abs(a) + abs(d) >= abs(b) + abs(c):
        return False, a < 0, d < 0
    return True, c < 0, b < 0


def _picture(path: Path, stream: VideoStream) -> PictureStream:
    context = stream.codec_context
    width, height = shown_size(context.width, context.height, context.sample_aspect_ratio)
    # PyAV shows the matrix on decoded frames only, and a probe decodes nothing.
    if turn_of(track_matrices(path).get(stream.id))[0]:
        width, height = height, width
    rate = stream_rate(stream)
    return PictureStream(
        stream.index, context.codec.canonical_name, width, height, float(rate) if rate else None
    )


def frame_matrix(frame: VideoFrame) -> tuple[int, ...] | None:
    """The display matrix that a decoded frame carries, or None."""
    from av.sidedata.sidedata import Type

    try:
        data = bytes(cast(Any, frame).side_data[Type.DISPLAYMATRIX])
    except KeyError:
        return None
    return struct.unpack("=9i", data[:36]) if len(data) >= 36 else None


def _track(stream: Any) -> SubtitleTrack:
    from av.stream import Disposition

    context = stream.codec_context
    codec = context.name if context is not None else "unknown"
    return SubtitleTrack(
        index=stream.index,
        codec=codec,
        language=_language(stream.metadata.get("language")),
        title=stream.metadata.get("title"),
        is_text=codec
        not in {"dvdsub", "dvd_subtitle", "pgssub", "hdmv_pgs_subtitle", "dvbsub", "xsub", "unknown"},
        is_default=bool(stream.disposition & Disposition.default),
        is_forced=bool(stream.disposition & Disposition.forced),
    )


def _language(tag: str | None) -> str | None:
    return None if tag in (None, "", "und", "unk") else tag


def _stated_duration(container: InputContainer) -> float | None:
    """Seconds from the container, else from the longest stream, else from a DURATION tag."""
    if container.duration is not None and 0 < container.duration <= _LONGEST_SECONDS * _MICROSECONDS:
        return container.duration / _MICROSECONDS
    stated = [0.0]
    for stream in container.streams:
        if stream.duration and stream.duration > 0 and stream.time_base:
            stated.append(float(stream.duration * stream.time_base))
        stated.append(_tagged_seconds(stream.metadata.get("DURATION", "")))
    return max((seconds for seconds in stated if seconds <= _LONGEST_SECONDS), default=0.0) or None


def _tagged_seconds(text: str) -> float:
    """Seconds of a Matroska tag such as 00:00:09.960000000; 0 where it is none."""
    match = re.fullmatch(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)", text.strip())
    return int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3]) if match else 0.0


def _scanned_duration(path: Path) -> float | None:
    """Seconds from the first to the end of the last packet; frames are counted where none has a time."""
    import av

    first, last, untimed = None, Fraction(0), 0
    with open_media(path) as container:
        stream = picture_stream(container)
        rate = stream_rate(stream) if stream is not None else None
        try:
            for packet in container.demux():
                if packet.size == 0:
                    continue
                stamp = packet.pts if packet.pts is not None else packet.dts
                if stamp is None:
                    untimed += stream is not None and packet.stream_index == stream.index
                    continue
                at = stamp * packet.time_base
                first = at if first is None else min(first, at)
                last = max(last, at + (packet.duration or 0) * packet.time_base)
        except av.error.FFmpegError:
            pass  # what lies behind the damage has no known length
    if first is not None and last - first <= _LONGEST_SECONDS:
        return float(last - first) or None
    return float(untimed / rate) if untimed and rate else None


def _tags(metadata: Mapping[str, str]) -> dict[str, str]:
    """The container's tags that say something to people, not of the program that wrote it."""
    tags = {key.lower(): " ".join(str(value).split()) for key, value in metadata.items()}
    return {key: value[:_LONGEST_TAG] for key, value in tags.items() if value and key not in _WRITERS_TAGS}


def _nothing_inside(path: Path, probed: Probe) -> str:
    name = printable(path)
    if probed.subtitle_tracks and not probed.container.startswith(("mov", "matroska")):
        suffix = {"webvtt": ".vtt", "ass": ".ass"}.get(probed.container, ".srt")
        return (
            f"{name}: holds subtitles ({probed.container}), no pictures or sound; "
            f"let its name end in {suffix} to index its words"
        )
    return f"{name}: no pictures or sound in it that can be decoded ({probed.container}); leave it out"


def _cannot_open(path: Path, error: Exception) -> str:
    """One line: the path, the cause, what to do."""
    number = getattr(error, "errno", None)
    if number in (errno.EACCES, errno.EPERM):
        return f"{printable(path)}: no permission to read it; allow it with `chmod u+r` or run as its owner"
    if number == errno.ENAMETOOLONG:
        return f"{printable(path)}: the name is too long ({len(os.fsencode(path))} bytes); rename the file"
    if number == errno.ENOENT:
        return f"{printable(path)}: there is no such file; check the path"
    if number == errno.EISDIR:
        return f"{printable(path)}: a folder, not a file; give the files in it"
    try:
        return f"{printable(path)}: {_why_not_media(path)}"
    except OSError:
        return f"{printable(path)}: cannot be opened ({error})"


def _why_not_media(path: Path) -> str:
    if lacks_index(path):
        return (
            "cut off: the index of the MP4 (moov) is missing, as after a broken download or recording; "
            "copy it again, or rebuild it with a tool such as untrunc"
        )
    with path.open("rb") as file:
        head = file.read(4096)
    if b"\x00" not in head and sum(byte < 9 or 13 < byte < 32 for byte in head) == 0:
        return f"holds text, not video or sound, whatever its name says ({head[:40]!r}…); leave it out"
    return "not a media file that FFmpeg knows, or its beginning is damaged; copy or download it again"
