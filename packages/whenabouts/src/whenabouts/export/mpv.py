"""A list for mpv (EDL), which plays the moments as one film. A format of `export`, chosen by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO

from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options

NAME = "mpv"
SUFFIXES = (".mpv-edl",)
MEDIA_TYPE = "text/plain; charset=utf-8"


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """Write a line per moment, each file name with its length in bytes, so that no character is special."""
    out.write(b"# mpv EDL v0\n")
    for moment in moments:
        name = os.fsencode(moment.path)
        out.write(b"%%%d%%%s,%.6f,%.6f\n" % (len(name), name, moment.start, moment.duration))
    return []
