"""A list for FFmpeg's concat demuxer, which joins the moments; a format of `export`, chosen by name.

The demuxer alone begins each moment at the key frame before it. The command in the list's second line drops
the frames outside of [inpoint, outpoint). If a file stores sound later than its pictures, the sound ends
early, because the demuxer stops at the first stream that reaches the outpoint.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO

from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.export.source import shown_path
from whenabouts.lines import one_line
from whenabouts.types import UsageError

NAME = "ffconcat"
SUFFIXES = (".ffconcat", ".ffcat")
MEDIA_TYPE = "text/plain; charset=utf-8"
_EXACT = (
    "ffmpeg -copyts -safe 0 -segment_time_metadata 1 -i LIST -vf select=concatdec_select "
    "-af aselect=concatdec_select,aresample=async=1 OUT.mp4"
)


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """Write path, start and end of each moment. Raises UsageError for a path with a line break or NUL."""
    out.write(f"ffconcat version 1.0\n# pictures exact to the frame: {_EXACT}\n".encode())
    for moment in moments:
        if any(letter in moment.path for letter in "\n\r\0"):
            raise UsageError(
                f"{shown_path(moment.path)!r}: this list cannot hold a path with a line break or a "
                "NUL character; rename the file or folder"
            )
        out.write(f"# {moment.rank}: {one_line(moment.query or moment.text, 120)}\n".encode())
        out.write(b"file '" + os.fsencode(moment.path).replace(b"'", b"'\\''") + b"'\n")
        out.write(f"inpoint {moment.start:.6f}\noutpoint {moment.end:.6f}\n".encode())
    return [
        f"players begin each moment at the key frame before it; for exact pictures: {_EXACT}; "
        "for exact pictures and sound: `whenabouts cut --join`"
    ]
