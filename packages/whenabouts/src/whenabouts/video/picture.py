"""Reads a single picture, turned upright, from a JPEG, PNG, WebP, GIF, BMP or TIFF file."""

from __future__ import annotations

import errno
import io
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.opening import read_regular
from whenabouts.video.files import printable
from whenabouts.video.frames import upright
from whenabouts.video.opened import open_picture
from whenabouts.video.probe import MediaError, check_pixels

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

MOST_PICTURE_BYTES = 64 << 20
KINDS = "JPEG, PNG, WebP, GIF, BMP or TIFF"
# The demuxer of each kind, and its magic bytes.
_FORMATS = (
    ("jpeg_pipe", re.compile(rb"\xff\xd8\xff")),
    ("png_pipe", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("webp_pipe", re.compile(rb"RIFF.{4}WEBP", re.DOTALL)),
    ("gif", re.compile(rb"GIF8[79]a")),
    ("bmp_pipe", re.compile(rb"BM.{4}\0\0\0\0", re.DOTALL)),
    ("tiff_pipe", re.compile(rb"II\*\0|MM\0\*")),
)
# EXIF data (a TIFF header, then tags) as each kind of file carries it.
_EXIF = re.compile(rb"(?:Exif\0\0|\A|eXIf|EXIF.{4})(?P<tiff>II\*\0|MM\0\*)", re.DOTALL)
_ORIENTATION = 0x0112
# Orientation -> swap axes, then mirror left-right, then mirror top-bottom (EXIF 2.3, 4.6.4 A).
_TURNS = {
    1: (False, False, False),
    2: (False, True, False),
    3: (False, True, True),
    4: (False, False, True),
    5: (True, False, False),
    6: (True, True, False),
    7: (True, True, True),
    8: (True, False, True),
}


def read_picture(path: Path, size: int | None = None) -> NDArray[np.uint8]:
    """The picture in a file: (H, W, 3) RGB, turned as its EXIF states, short side at most `size` pixels.

    For an animation, its first picture. Raises MediaError if the file is missing, not a picture, damaged, an
    animated WebP, over 64 MiB, or has too many pixels.
    """
    try:
        data = read_regular(path, MOST_PICTURE_BYTES)
    except FileNotFoundError:
        raise MediaError(f"{printable(path)}: no such file") from None
    except OSError as error:
        reason = error.strerror if error.errno != errno.ENAMETOOLONG else "too long for the name of a file"
        raise MediaError(f"{printable(path)}: cannot be read: {reason}") from error
    return decode_picture(data, str(printable(path)), size)


def decode_picture(data: bytes, name: str, size: int | None = None) -> NDArray[np.uint8]:
    """`read_picture` for the bytes of a file, called `name` in messages."""
    import av

    kind = next((kind for kind, head in _FORMATS if head.match(data)), None)
    if kind is None:
        raise MediaError(f"{name}: not a picture that can be read; give a {KINDS} file")
    try:
        with open_picture(io.BytesIO(data), kind) as container:
            stream = container.streams.video[0]
            check_pixels(Path(name), stream)
            frame: VideoFrame | None = next(iter(container.decode(stream)), None)
    except (av.error.FFmpegError, ValueError, IndexError) as error:
        if kind == "webp_pipe" and b"ANIM" in data[:64]:
            raise MediaError(
                f"{name}: an animated WebP, which is not read; give one of its pictures"
            ) from error
        raise MediaError(f"{name}: a damaged picture ({error})") from error
    if frame is None:
        raise MediaError(f"{name}: a damaged picture, nothing of it can be decoded")
    # Pixels count as square: the resolution that a picture's file states is for printing.
    return upright(frame, None, size, turn=_TURNS.get(_orientation(data), _TURNS[1]))


def _orientation(data: bytes) -> int:
    """The orientation in a picture's EXIF data, unchecked (1 to 8 are known); 1 without one."""
    head = _EXIF.search(data)
    if head is None:
        return 1
    order = "<" if head["tiff"][:2] == b"II" else ">"
    try:
        entries = head.start("tiff") + struct.unpack_from(f"{order}I", data, head.end("tiff"))[0]
        (count,) = struct.unpack_from(f"{order}H", data, entries)
        for place in range(entries + 2, entries + 2 + 12 * count, 12):
            tag, _, _, value = struct.unpack_from(f"{order}HHIH", data, place)
            if tag == _ORIENTATION:
                return int(value)
    except struct.error:
        pass  # truncated data
    return 1
