"""The contents of a media file: pictures, sound, subtitles and length, without decoding."""

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

from whenabouts.intake.faults import DataFault
from whenabouts.times import whole_number
from whenabouts.types import LONGEST_SECONDS, WhenaboutsError
from whenabouts.video.files import printable
from whenabouts.video.headers import counts_frames, edit_starts, lacks_index, missing_bytes, track_matrices
from whenabouts.video.joints import on_one_clock
from whenabouts.video.objects import open_source
from whenabouts.video.opened import most_pixels, open_container, packets_of
from whenabouts.video.time_limit import FREE_GAP_SECONDS, TimeLimit, most_idle_seconds

if TYPE_CHECKING:
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_MICROSECONDS = 1_000_000
# Formats that may state the end time instead of the length: 140 s for 40 s that start at 100 s.
_STATE_ENDS = {"matroska", "nut", "asf", "flv"}
_ON_TIME_SECONDS = 0.1
# Formats that state no length. FFmpeg guesses it from the beginning: 1,071 s for 80 s with 60 s of silence.
_STATE_NOTHING = {"aac", "ac3", "eac3", "amr", "dts", "loas", "mlp", "truehd"}
COUNTED_FORMATS = {"h264", "hevc", "vvc", "mjpeg", "m4v", "h263", "h261", "cavsvideo"}
"""Raw streams without times, or with times that restart: their frames are counted."""
# One frame in ten minutes; lower rates come from damaged headers.
_SLOWEST_RATE = Fraction(1, 600)
# Beginnings of files that users mistake for recordings: lists of other files, and single pictures.
_PLAYLIST_HEAD = re.compile(
    rb"(?i)(\xef\xbb\xbf)?\s*(#EXTM3U|ffconcat version|\[playlist\]|\[reference\]|<ASX|<smil|<MPD|v=0\r?\n|"
    rb"(<\?xml[^>]{0,200}>\s*(<!--[^>]{0,200}-->\s*)?)<(MPD|SmoothStreamingMedia|manifest|CompositionPlaylist|"
    rb"AssetMap|playlist|smil))"
)
_PICTURE_HEAD = re.compile(
    rb"\xff\xd8\xff|\x89PNG|BM.{4}\0\0\0\0|II\*\0|MM\0\*|RIFF.{4}WEBP|P[1-7]\s|\0\0[\1\2]\0[^\0]|"
    rb"\xff\x0a|\0\0\0\x0cJXL |.{4}ftyp(avi[fs]|hei[cx]|mif1)|8BPS|v/1\1|qoif",
    re.DOTALL,
)
_LONGEST_TAG = 1000
# More chapters come from damaged headers; a film of two hours has about twenty.
_MOST_CHAPTERS = 1000
# Tags of the writing program, which nobody searches by.
WRITERS_TAGS = {"major_brand", "minor_version", "compatible_brands", "encoder", "handler_name", "vendor_id"}

# ISO 639-2 codes (containers have B or T), each followed by its ISO 639-1 code if that is not its beginning.
_CODES = (
    "aar abk afr aka albsq amh ara argan armhy asm ava aveae aym aze bak bambm baqeu bel benbn bihbh bis bod "
    "bosbs bre bulbg burmy cat cescs cha chece chizh chucu chvcv corkw cos cre cym czecs dan deu divdv dutnl "
    "dzo ell eng epoeo estet eus eweee faofo fas fijfj fin fra fre fryfy fulff geoka gerde glagd glega glg "
    "glvgv greel grngn guj hatht hau heb herhz hin hmoho hrv hun hye iboig iceis idoio iii ikuiu ileie inaia "
    "indid ipkik isl ita javjv jpnja kalkl kankn kasks kat kaukr kazkk khmkm kik kinrw kirky komkv konkg kor "
    "kuakj kur laolo lat lavlv lim linln litlt ltzlb lub luglg macmk mahmh malml maomi marmr mayms mkd mlgmg "
    "mltmt monmn mrimi msa mya nau navnv nblnr nde ndong nep nld nno nobnb nor nya oci oji ori ormom oss pan "
    "perfa plipi polpl porpt pusps que rohrm ron rumro runrn rus sagsg san sin slksk slosk slv smese smo sna "
    "sndsd som sotst spaes sqi srdsc srp ssw sun swa swesv tahty tam tattt tel tgk tgltl tha tibbo tir ton "
    "tsntn tso tuktk turtr twi uigug ukr urd uzb ven vie vol welcy wlnwa wol xho yid yor zhaza zho zul"
)
_SHORT_CODES = {code[:3]: code[3:] or code[:2] for code in _CODES.split()}


class MediaError(WhenaboutsError):
    """A file cannot be read as media; the message names the path, the cause and the remedy."""


class BrokenMedia(MediaError, DataFault):
    """A file's bytes are damaged, are not media, or are more than is decoded."""


@dataclass(frozen=True, slots=True)
class PictureStream:
    """The pictures of a video.

    `index` is the stream's number in the container; `width`, `height` are pixels of the picture as shown
    (rotated, square pixels); `rate` is the mean frames a second, None if unknown.
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
class Chapter:
    """A part of a recording, [start, end) in seconds, as the container names it; `title` may be empty."""

    start: float
    end: float
    title: str


@dataclass(frozen=True, slots=True)
class Probe:
    """The contents of a media file.

    - `duration`: seconds, None if unknown; for a truncated file, that of the complete one if stated.
    - `missing_bytes`: missing end of a truncated file, 0 for a complete one.
    - `sound_language`: language of the first sound track, None if unstated.
    - `sound_tracks`: languages of all decodable sound tracks, "" if unstated.
    - `metadata`: the container's tags (title, creation_time, …), keys in lower case.
    - `chapters`: by start.
    - `start_timecode`: of the first frame, "" without one.
    """

    container: str
    duration: float | None
    picture: PictureStream | None
    has_audio: bool
    subtitle_tracks: tuple[SubtitleTrack, ...]
    missing_bytes: int = 0
    sound_language: str | None = None
    sound_tracks: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    chapters: tuple[Chapter, ...] = ()
    start_timecode: str = ""


def probe(path: Path) -> Probe:
    """The contents of the file at `path`. No picture is decoded.

    The pictures are those of the first real video stream, not cover art or thumbnails. If the container
    states no duration, the streams are asked, then all packets are read. Raises MediaError for a file that is
    not media, empty, truncated before its index, or without permission.
    """
    with open_media(path) as container:
        stream = picture_stream(container)
        probed = Probe(
            container=container.format.name,
            duration=_stated_duration(path, container),
            picture=_picture(path, stream) if stream is not None else None,
            has_audio=any(audio.codec_context is not None for audio in container.streams.audio),
            subtitle_tracks=tuple(_track(track) for track in container.streams.subtitles),
            missing_bytes=missing_bytes(path),
            sound_language=next(
                (_language(audio.metadata.get("language")) for audio in container.streams.audio), None
            ),
            sound_tracks=tuple(language for _, language in sounds_of(container)),
            metadata=_tags(container.metadata),
            chapters=_chapters(container),
            start_timecode=start_timecode(container),
        )
        begins = (container.start_time or 0) / _MICROSECONDS
    if probed.picture is None and not probed.has_audio:
        raise BrokenMedia(_nothing_inside(path, probed))
    duration = scanned_duration(path) if probed.duration is None else probed.duration
    return replace(probed, duration=duration, chapters=_from_zero(probed.chapters, begins, duration))


def open_media(path: Path) -> InputContainer:
    """An open container; the caller closes it. Raises MediaError with a cause and a remedy.

    The packets of a joined file come on one clock (`joints`). Only this file is read: a disguised play list
    can reach neither the network nor other files.
    """
    import av

    try:
        return on_one_clock(path, open_container(path))
    except WhenaboutsError:
        raise
    except (OSError, ValueError, av.error.FFmpegError) as error:
        is_of_data = isinstance(error, av.error.FFmpegError) and error.errno != errno.ENOMEM
        raise (BrokenMedia if is_of_data else MediaError)(_cannot_open(path, error)) from error


def base_language(language: str) -> str:
    """A language without its region or script, as its ISO 639-1 code if there is one.

    >>> base_language("pt-BR"), base_language("eng"), base_language("ger"), base_language("haw")
    ('pt', 'en', 'de', 'haw')
    """
    tag = re.split("[-_]", language.lower())[0]
    return _SHORT_CODES.get(tag, tag)


def chosen_sound(languages: Sequence[str], named: str) -> int:
    """The index of the sound track that is named by its number (from 1) or language; 0 if none is.

    >>> chosen_sound(["eng", "ger"], "de"), chosen_sound(["eng", "ger"], "2"), chosen_sound(["eng"], "2")
    (1, 1, 0)
    """
    if (number := whole_number(named)) is not None:
        return number - 1 if 0 < number <= len(languages) else 0
    sought = base_language(named)
    return next((at for at, tag in enumerate(languages) if named and base_language(tag) == sought), 0)


def sounds_of(container: InputContainer) -> list[tuple[AudioStream, str]]:
    """The decodable sound tracks, each with its language, "" if unstated."""
    return [
        (audio, _language(audio.metadata.get("language")) or "")
        for audio in container.streams.audio
        if audio.codec_context is not None
    ]


def picture_stream(container: InputContainer) -> VideoStream | None:
    """The first real video stream: decodable, not cover art, not a thumbnail."""
    from av.stream import Disposition

    beside = Disposition.attached_pic | Disposition.timed_thumbnails | Disposition.still_image
    for stream in container.streams.video:
        if stream.codec_context is None or stream.disposition & beside:
            continue
        if stream.codec_context.width > 0 and stream.codec_context.height > 0:
            return stream
    return None


def start_timecode(container: InputContainer) -> str:
    """The first frame's time code, as cameras write it; "" without one."""
    holders: list[Any] = [*container.streams, container]
    return next((str(each.metadata["timecode"]) for each in holders if each.metadata.get("timecode")), "")


def stream_rate(stream: VideoStream) -> Fraction | None:
    """Frames a second as stated by container or codec, None if unknown."""
    for rate in (stream.average_rate, stream.guessed_rate, stream.base_rate):
        if rate is not None and _SLOWEST_RATE <= rate <= 1000:
            return Fraction(rate)
    return None


def shown_size(width: int, height: int, aspect: Fraction | None) -> tuple[int, int]:
    """Width and height with square pixels, of pictures with another pixel aspect ratio.

    >>> shown_size(720, 576, Fraction(64, 45))
    (1024, 576)
    """
    if not aspect or aspect == 1 or not Fraction(1, 10) <= aspect <= 10:
        return width, height
    return max(1, round(width * aspect)), height


def turn_of(matrix: Sequence[int] | None) -> tuple[bool, bool, bool]:
    """How to rotate a picture upright: (swap axes, then mirror left-right, then mirror top-bottom).

    `matrix` is the display matrix, row by row in fixed point (ISO 14496-12, 8.3.2): x' = a x + c y, y' = b x
    + d y. Other angles are rounded to a quarter turn; None and all zeros rotate nothing.
    """
    if matrix is None or not any(matrix):
        return False, False, False
    a, b, _, c, d = matrix[:5]
    if abs(a) + abs(d) >= abs(b) + abs(c):
        return False, a < 0, d < 0
    return True, c < 0, b < 0


def check_pixels(path: Path, stream: VideoStream) -> None:
    """Raise MediaError for pictures larger than the limit."""
    width, height, most = stream.codec_context.width, stream.codec_context.height, most_pixels()
    if width * height > most:
        raise BrokenMedia(
            f"{printable(path)}: pictures of {width} x {height} are larger than the limit ({most:,} pixels); "
            f"give --max-pixels {width * height} or WHENABOUTS_MAX_PIXELS (and `whenabouts index --retry`)"
        )


def _picture(path: Path, stream: VideoStream) -> PictureStream:
    check_pixels(path, stream)
    context = stream.codec_context
    width, height = shown_size(context.width, context.height, context.sample_aspect_ratio)
    # PyAV has the matrix on decoded frames only, and a probe decodes nothing.
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
    except (KeyError, ValueError):  # ValueError: other side data are of a kind unknown to PyAV (EXIF)
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


def _stated_duration(path: Path, container: InputContainer) -> float | None:
    """Seconds that the container states, else the most that a stream or its DURATION tag states.

    None, so that packets are read, if none is stated that a file of this size can hold, if the format or this
    MP3 states none, or if the file does not start at 0 and may state its end, as an MP4 after a pause does.
    """
    names = set(container.format.name.split(","))
    starts = abs(container.start_time or 0) / _MICROSECONDS
    if "asf" in names:  # FFmpeg writes the end time plus the start of the last stream
        begins = [(stream.start_time or 0) * (stream.time_base or 0) for stream in container.streams]
        starts = float(max(begins, default=0))
    if names & (_STATE_NOTHING | COUNTED_FORMATS) or (starts > _ON_TIME_SECONDS and names & _STATE_ENDS):
        return None
    if "mp3" in names and not counts_frames(path):
        return None
    if starts > _ON_TIME_SECONDS and "mov" in names and any(edits[:1] == [-1] for edits in edit_starts(path)):
        return None
    most = min(LONGEST_SECONDS, most_idle_seconds(container.size))
    if container.duration is not None and 0 < container.duration <= most * _MICROSECONDS:
        return container.duration / _MICROSECONDS
    stated = [0.0]
    for stream in container.streams:
        if stream.duration and stream.duration > 0 and stream.time_base:
            stated.append(float(stream.duration * stream.time_base))
        stated.append(_tagged_seconds(stream.metadata.get("DURATION", "")))
    return max((seconds for seconds in stated if seconds <= most), default=0.0) or None


def _tagged_seconds(text: str) -> float:
    """Seconds of a Matroska tag such as 00:00:09.960000000; 0 if malformed."""
    match = re.fullmatch(r"(\d{1,9}):(\d\d):(\d\d(?:\.\d+)?)", text.strip())
    return int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3]) if match else 0.0


def scanned_duration(path: Path) -> float | None:
    """Seconds from the first to the end of the last packet of pictures or sound.

    In raw streams, and if packets have no times, frames are counted. Gaps that a file of this size cannot
    hold are left out.
    """
    import av

    untimed = 0
    with open_media(path) as container:
        stream = picture_stream(container)
        rate = stream_rate(stream) if stream is not None else None
        extent = _Extent(container.size)
        is_counted = container.format.name in COUNTED_FORMATS
        try:
            for packet in packets_of(container, list(container.streams)):
                if packet.size == 0 or packet.is_discard or packet.stream.type not in ("video", "audio"):
                    continue
                stamp = packet.pts if packet.pts is not None else packet.dts
                if stamp is None or is_counted:
                    untimed += stream is not None and packet.stream_index == stream.index
                else:
                    extent.add(stamp * packet.time_base, (packet.duration or 0) * packet.time_base)
        except av.error.FFmpegError:
            pass  # the length after the damage is unknown
        most = most_idle_seconds(container.size) + untimed * FREE_GAP_SECONDS
    if extent.seconds:
        return float(extent.seconds)
    return min(float(untimed / rate), most) if untimed and rate else None


class _Extent:
    """The time covered by packets, in stored order."""

    def __init__(self, size: int) -> None:
        self._limit = TimeLimit(size)
        self._earliest: Fraction | None = None
        self._last = self._covered = self._tail = Fraction(0)

    def add(self, at: Fraction, length: Fraction) -> None:
        """Add a packet shown for `length` seconds from `at` on."""
        if self._earliest is None:
            self._earliest = self._last = at
        gap = at - self._last
        if gap > 0:
            self._covered += gap if self._limit.allows(gap) else min(length, Fraction(FREE_GAP_SECONDS))
            self._last, self._tail = at, max(self._tail - gap, length)
        elif -gap < FREE_GAP_SECONDS:
            # Packets are in decoding order: one that is shown earlier may come later.
            self._covered += max(Fraction(0), self._earliest - at)
            self._earliest, self._tail = min(self._earliest, at), max(self._tail, length + gap)

    @property
    def seconds(self) -> Fraction:
        """From the first packet to the end of the last."""
        return self._covered + (self._tail if self._limit.allows(self._tail) else 0)


def _tags(metadata: Mapping[str, str]) -> dict[str, str]:
    """The container's tags, without those of the writing program."""
    tags = {key.lower(): " ".join(str(value).split()) for key, value in metadata.items()}
    return {key: value[:_LONGEST_TAG] for key, value in tags.items() if value and key not in WRITERS_TAGS}


def _chapters(container: InputContainer) -> tuple[Chapter, ...]:
    """The container's chapters by start, without those whose times come from a damaged header."""
    chapters = []
    for chapter in container.chapters()[:_MOST_CHAPTERS]:
        unit = chapter["time_base"] or Fraction(0)
        start, end = float(chapter["start"] * unit), float(chapter["end"] * unit)
        title = " ".join(chapter["metadata"].get("title", "").split())[:_LONGEST_TAG]
        if 0 <= start < end <= LONGEST_SECONDS:
            chapters.append(Chapter(start, end, title))
    return tuple(sorted(chapters, key=lambda chapter: (chapter.start, chapter.end)))


def _from_zero(chapters: tuple[Chapter, ...], begins: float, duration: float | None) -> tuple[Chapter, ...]:
    """Chapters with times from the beginning of the file.

    In Matroska, their times are those of the file's clock, which may begin at `begins` seconds, but FFmpeg
    writes some from 0. Chapters that end long after the file's `duration` are on its clock.
    """
    if not chapters or duration is None or chapters[-1].end <= duration + max(begins, _ON_TIME_SECONDS) / 2:
        return chapters
    moved = (Chapter(max(0.0, each.start - begins), each.end - begins, each.title) for each in chapters)
    return tuple(chapter for chapter in moved if chapter.start < chapter.end)


def _nothing_inside(path: Path, probed: Probe) -> str:
    name = printable(path)
    if probed.subtitle_tracks and not probed.container.startswith(("mov", "matroska")):
        suffix = {"webvtt": ".vtt", "ass": ".ass"}.get(probed.container, ".srt")
        return (
            f"{name}: holds subtitles ({probed.container}), no pictures or sound; "
            f"let its name end in {suffix} to index its words"
        )
    return f"{name}: holds no pictures or sound that can be decoded ({probed.container}); leave it out"


def _cannot_open(path: Path, error: Exception) -> str:
    """A line with the path, the cause and the remedy."""
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
    except OSError as unreadable:
        return f"{printable(path)}: cannot be opened: {unreadable.strerror}; give a file with a recording"


def _why_not_media(path: Path) -> str:
    if lacks_index(path):
        return (
            "cut off: the index of the MP4 (moov) is missing, as after a broken download or recording; "
            "copy it again, or rebuild it with a tool such as untrunc"
        )
    with open_source(path) as file:
        head = file.read(4096)
    if not head:
        return "the file is empty (0 bytes); copy or download it again"
    if _PLAYLIST_HEAD.match(head):
        return "a list of other files, not a recording; index these files"
    if _PICTURE_HEAD.match(head):
        return "a picture, not a video; leave it out"
    if b"\x00" not in head and sum(byte < 9 or 13 < byte < 32 for byte in head) == 0:
        return f"holds text, not video or sound, whatever its name says ({head[:40]!r}…); leave it out"
    return "not a media file that FFmpeg knows, or its beginning is damaged; copy or download it again"
