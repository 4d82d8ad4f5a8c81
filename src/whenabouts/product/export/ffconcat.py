"""A list for FFmpeg's concat reader: `ffmpeg -safe 0 -i moments.ffconcat out.mp4` joins the moments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO

from whenabouts.product.export._text import one_line
from whenabouts.product.export.moments import FileMoment
from whenabouts.product.export.options import Options
from whenabouts.product.export.source import shown_path
from whenabouts.types import UsageError

NAME = "ffconcat"
SUFFIXES = (".ffconcat", ".ffcat")
MEDIA_TYPE = "text/plain; charset=utf-8"


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """A file, an inpoint and an outpoint a moment. Raises UsageError for a name it cannot hold."""
    out.write(b"ffconcat version 1.0\n")
    for moment in moments:
        if any(letter in moment.path for letter in "\n\r\0"):
            raise UsageError(
                f"{shown_path(moment.path)!r}: a line break in a name cannot be written to this list; "
                "rename the file"
            )
        out.write(f"# {moment.rank}: {one_line(moment.query or moment.text, 120)}\n".encode())
        out.write(b"file '" + os.fsencode(moment.path).replace(b"'", b"'\\''") + b"'\n")
        out.write(f"inpoint {moment.start:.6f}\noutpoint {moment.end:.6f}\n".encode())
    return []
