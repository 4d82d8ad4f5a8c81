"""Open media files with FFmpeg so that a hostile file can make it read only that file.

FFmpeg opens what a file names: the parts of a play list, the references of a QuickTime film, an address on
the network. Several measures prevent that. Only formats of recordings and subtitles are allowed, and others
are refused before their header is read. FFmpeg opens no file by name, but reads an open descriptor that was
checked to be a regular file. Every request to open another file is refused, as are all protocols.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from whenabouts.intake.opening import open_descriptor
from whenabouts.types import UsageError
from whenabouts.video.objects import ObjectPath, ObjectReader, refusals, source_path

if TYPE_CHECKING:
    from av.container import InputContainer

FORMATS = (
    "mov,matroska,webm,avi,mpegts,mpeg,asf,flv,live_flv,ogg,mxf,gxf,nut,rm,ivr,wtv,dv,ivf,obu,av1,nsv,swf,gif,"
    "yuv4mpegpipe,h261,h263,h264,hevc,vvc,evc,m4v,mpegvideo,mjpeg,vc1,cavsvideo,dirac,dnxhd,"
    "aac,ac3,eac3,ac4,aiff,amr,amrnb,amrwb,ape,au,caf,dts,dtshd,flac,mp3,mpc,mpc8,mlp,truehd,tak,tta,voc,w64,"
    "wav,wv"
)
"""FFmpeg's names of the formats of recordings. None of them needs another file, though `mov` may name one."""

# Not recordings, but identified, so that an error can say: give it a name that ends in .srt.
_SUBTITLES = "ass,srt,webvtt"
_OPTIONS = {
    "format_whitelist": f"{FORMATS},{_SUBTITLES}",
    # No protocol with which FFmpeg could open anything itself.
    "protocol_whitelist": "none",
    "enable_drefs": "0",
    "use_absolute_path": "0",
}

MAX_PIXELS = "WHENABOUTS_MAX_PIXELS"
"""The environment variable for the most pixels of a decoded picture (`--max-pixels`)."""

_MOST_PIXELS = 8192 * 4320
_PROBED_TIMES = 8


def most_pixels() -> int:
    """The most pixels of a decoded picture: those of 8K cinema, or the value of `MAX_PIXELS`.

    A decoder holds up to some thirty pictures, so this bounds the memory of each one. Raises UsageError.
    """
    text = os.environ.get(MAX_PIXELS, "").strip()
    if not text:
        return _MOST_PIXELS
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise UsageError(f"{MAX_PIXELS} is {text[:40]!r}; give a number of pixels, such as {_MOST_PIXELS}")
    return int(text)


def open_container(path: Path, *, hidden: Sequence[tuple[int, int]] = ()) -> InputContainer:
    """An open container with its own descriptor; the caller closes it.

    FFmpeg reads the file without the bytes of `hidden`, each (first, one past the last), in order.

    Raises OSError if the file is not a regular one or cannot be read, `av.error.FFmpegError` if FFmpeg cannot
    read it or its format is not allowed.
    """
    return _opened(_Without(_bytes_of(path), hidden) if hidden else _bytes_of(path), _OPTIONS)


def discard_others(container: InputContainer, *indices: int) -> None:
    """Let FFmpeg discard the packets of all streams but those with these `indices`."""
    from av.stream import Discard

    for stream in container.streams:
        if stream.index not in indices:
            stream.discard = Discard.all


def packets_of(container: InputContainer, streams: Any) -> Iterator[Any]:
    """The packets of a stream, or of several, in stored order.

    Raises `av.error.FFmpegError`.
    """
    try:
        yield from container.demux(streams)
    except IndexError:  # at the end, if a stream appeared that the header does not name (joined broadcasts)
        return


def open_picture(data: IO[bytes], kind: str) -> InputContainer:
    """An open container of a single picture, read by FFmpeg's demuxer `kind`; the caller closes it.

    Raises `av.error.FFmpegError` if FFmpeg cannot read it.
    """
    return _opened(data, {"protocol_whitelist": "none"}, kind)


def _opened(data: Any, options: dict[str, str], kind: str | None = None) -> InputContainer:
    """An open container whose decoders refuse pictures of more than `most_pixels`."""
    import av

    # Probing allows more, so that a message can name the size; some formats are probed with a picture or two.
    probed = options | {"max_pixels": str(_PROBED_TIMES * most_pixels())}
    # Tags of other encodings than UTF-8 are no reason to refuse a file.
    container: InputContainer = av.open(
        data, "r", format=kind, options=probed, io_open=_refuse, metadata_errors="replace"
    )
    for stream in container.streams.video:
        if stream.codec_context is not None:
            stream.codec_context.options = {"max_pixels": str(most_pixels())}
    return container


def _refuse(url: str, flags: int, options: dict[str, str]) -> NoReturn:
    raise PermissionError(f"the file refers to another one, which is not opened: {url[:200]!r}")


class _Bytes:
    """The bytes of a file for FFmpeg, which recognises some formats by the suffix of `name`."""

    def __init__(self, path: Path) -> None:
        self._descriptor = open_descriptor(path)
        self.name = f"file:{path.absolute()}"

    def read(self, size: int) -> bytes:
        try:
            return os.read(self._descriptor, size)
        except OSError as error:
            refusals.note(error.strerror or str(error))
            raise _of_ffmpeg(error) from error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        try:
            return os.lseek(self._descriptor, offset, whence)
        except OSError as error:
            raise _of_ffmpeg(error) from error

    def tell(self) -> int:
        return os.lseek(self._descriptor, 0, os.SEEK_CUR)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


class _ObjectBytes:
    """As `_Bytes`, for an object in a store."""

    def __init__(self, path: ObjectPath) -> None:
        self._reader = ObjectReader(path)
        self.name = f"file:/{path.key}"
        self.seek, self.tell = self._reader.seek, self._reader.tell

    def read(self, size: int) -> bytes:
        try:
            return self._reader.read(size) or b""
        except OSError as error:
            raise _of_ffmpeg(error) from error


class _Without:
    """Bytes without the `hidden` ones (`open_container`)."""

    def __init__(self, source: _Bytes | _ObjectBytes, hidden: Sequence[tuple[int, int]]) -> None:
        self._source, self._hidden, self.name = source, hidden, source.name
        self._at = 0

    def read(self, size: int) -> bytes:
        place, end = self._at, math.inf
        for first, past in self._hidden:
            if place < first:
                end = first
                break
            place += past - first
        self._source.seek(place, os.SEEK_SET)
        data = self._source.read(int(min(size, end - place)))
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            offset += self._source.seek(0, os.SEEK_END) - sum(past - first for first, past in self._hidden)
        elif whence == os.SEEK_CUR:
            offset += self._at
        self._at = max(0, offset)
        return self._at

    def tell(self) -> int:
        return self._at


def _bytes_of(path: Path) -> _Bytes | _ObjectBytes:
    place = source_path(path)
    return _ObjectBytes(place) if isinstance(place, ObjectPath) else _Bytes(place)


def _of_ffmpeg(error: OSError) -> Any:
    """An OSError as an error of FFmpeg, which callers expect in the middle of a file."""
    import av

    return av.error.FFmpegError(error.errno or 5, error.strerror or str(error))
