"""Media files opened with FFmpeg, so that a file can make it read that file and nothing else.

FFmpeg opens what a file names: the parts of a play list, the references of a QuickTime film, a page on the
network. Three things stand against that, each enough by itself: only the formats of recordings are taken
(`FORMATS`), and it is refused by name before its header is read what is none; FFmpeg is given no file name
to open but the bytes of a descriptor that is open already, which was checked to be a regular file; and
whatever else it asks to open is refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from whenabouts.intake.opening import open_descriptor
from whenabouts.types import UsageError
from whenabouts.video.objects import ObjectPath, ObjectReader, source_path

if TYPE_CHECKING:
    from av.container import InputContainer

FORMATS = (
    "mov,matroska,webm,avi,mpegts,mpeg,asf,flv,live_flv,ogg,mxf,gxf,nut,rm,ivr,wtv,dv,ivf,obu,av1,nsv,swf,gif,"
    "yuv4mpegpipe,h261,h263,h264,hevc,vvc,evc,m4v,mpegvideo,mjpeg,vc1,cavsvideo,dirac,dnxhd,"
    "aac,ac3,eac3,ac4,aiff,amr,amrnb,amrwb,ape,au,caf,dts,dtshd,flac,mp3,mpc,mpc8,mlp,truehd,tak,tta,voc,w64,"
    "wav,wv"
)
"""The names of the formats in which recordings come, as FFmpeg has them. None of them needs another file."""

# Not recordings, but said to be what they are: their words are found under another name.
_SUBTITLES = "ass,srt,webvtt"
_OPTIONS = {
    "format_whitelist": f"{FORMATS},{_SUBTITLES}",
    # No protocol by which FFmpeg could open anything by itself.
    "protocol_whitelist": "none",
    "enable_drefs": "0",
    "use_absolute_path": "0",
}


MAX_PIXELS = "WHENABOUTS_MAX_PIXELS"
"""The environment variable that says how many pixels a picture may have to be decoded (`--max-pixels`)."""

_MOST_PIXELS = 8192 * 4320
_PROBED_TIMES = 8


def most_pixels() -> int:
    """How many pixels a picture may have to be decoded: 8K as cinemas show it, or what `MAX_PIXELS` says.

    A decoder holds up to some thirty pictures at once, so this bounds its memory. Raises UsageError.
    """
    text = os.environ.get(MAX_PIXELS, "").strip()
    if not text:
        return _MOST_PIXELS
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise UsageError(f"{MAX_PIXELS} is {text[:40]!r}; give a number of pixels, such as {_MOST_PIXELS}")
    return int(text)


def open_container(path: Path) -> InputContainer:
    """An open container that reads through a descriptor of its own; the caller closes it.

    Raises OSError for what is no regular file or cannot be read, `av.error.FFmpegError` for what FFmpeg
    cannot read, and for a format that is not taken (as one with invalid arguments).
    """
    import av

    limit = {"max_pixels": str(most_pixels())}
    # Headers may say more, so that a message can name the size; some formats are probed by a picture or two.
    probed = {"max_pixels": str(_PROBED_TIMES * most_pixels())}
    container = av.open(_bytes_of(path), "r", options=_OPTIONS | probed, io_open=_refuse)
    for stream in container.streams.video:
        if stream.codec_context is not None:
            stream.codec_context.options = limit
    return container


def open_picture(data: IO[bytes], kind: str) -> InputContainer:
    """An open container of a single picture of a kind (one of FFmpeg's demuxers); the caller closes it.

    Raises `av.error.FFmpegError` for what FFmpeg cannot read.
    """
    import av

    options = {"protocol_whitelist": "none", "max_pixels": str(_PROBED_TIMES * most_pixels())}
    container = av.open(data, "r", format=kind, options=options, io_open=_refuse)
    for stream in container.streams.video:
        if stream.codec_context is not None:
            stream.codec_context.options = {"max_pixels": str(most_pixels())}
    return container


def _refuse(url: str, flags: int, options: dict[str, str]) -> NoReturn:
    raise PermissionError(f"a file that names another one, which is not opened: {url[:200]!r}")


class _Bytes:
    """The bytes of a file for FFmpeg, which tells some formats by the ending of its `name`."""

    def __init__(self, path: Path) -> None:
        self._descriptor = open_descriptor(path)
        self.name = f"file:{path.absolute()}"

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        try:
            return os.read(self._descriptor, size)
        except OSError as error:
            raise _of_ffmpeg(error) from error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """The new place, in bytes from the beginning."""
        try:
            return os.lseek(self._descriptor, offset, whence)
        except OSError as error:
            raise _of_ffmpeg(error) from error

    def tell(self) -> int:
        """The place where the next byte is read."""
        return os.lseek(self._descriptor, 0, os.SEEK_CUR)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


class _ObjectBytes:
    """The same of an object in a store."""

    def __init__(self, path: ObjectPath) -> None:
        self._reader = ObjectReader(path)
        self.name = f"file:/{path.key}"
        self.seek, self.tell = self._reader.seek, self._reader.tell

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        try:
            return self._reader.read(size) or b""
        except OSError as error:
            raise _of_ffmpeg(error) from error


def _bytes_of(path: Path) -> _Bytes | _ObjectBytes:
    place = source_path(path)
    return _ObjectBytes(place) if isinstance(place, ObjectPath) else _Bytes(place)


def _of_ffmpeg(error: OSError) -> Any:
    """An error of reading as FFmpeg's own, which is what its callers expect in the middle of a file."""
    import av

    return av.error.FFmpegError(error.errno or 5, error.strerror or str(error))
