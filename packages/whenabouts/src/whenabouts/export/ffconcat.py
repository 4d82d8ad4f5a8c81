"""A list for FFmpeg's concat demuxer, which joins the moments. A format of `export`, loaded by name.

The demuxer itself begins each moment at the key frame before it. The command in the list's first lines makes
it exact by dropping frames outside of [inpoint, outpoint). Sound that a file stores after its pictures ends
early (the demuxer stops at the first stream that reaches the outpoint).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO

from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.export.source import shown_path
from whenabouts.export.text import one_line
from whenabouts.types import UsageError

NAME = "ffconcat"
SUFFIXES = (".ffconcat", ".ffcat")
MEDIA_TYPE = "text/plain; charset=utf-8"
_EXACT = (
    "ffmpeg -copyts -safe 0 -segment_time_metadata 1 -i LIST -vf select=concatdec_select "
    "-af aselect=concatdec_select,aresample=async=1 OUT.mp4"
)


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """Write file, inpoint and outpoint of each moment. Raises UsageError for a line break in a file name."""
    out.write(f"ffconcat version 1.0\n# pictures exact to the frame: {_EXACT}\n".encode())
    for moment in moments:
        if any(letter in moment.path for letter in "\n\r\0"):
            raise UsageError(
                f"{shown_path(moment.path)!r}: a line break in a name cannot be written to this list; "
                "rename the file"
            )
        out.write(f"# {moment.rank}: {one_line(moment.query or moment.text, 120)}\n".encode())
        out.write(b"file '" + os.fsencode(moment.path).replace(b"'", b"'\\''") + b"'\n")
        out.write(f"inpoint {moment.start:.6f}\noutpoint {moment.end:.6f}\n".encode())
    return [
        f"players begin each moment at the key frame before it; pictures are exact with: {_EXACT}; "
        "pictures and sound with `whenabouts cut --join`"
    ]
