"""An M3U list for players: VLC starts and stops at the moments. A format of `export`, chosen by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.lines import one_line
from whenabouts.video.files import file_url

NAME = "m3u"
SUFFIXES = (".m3u", ".m3u8")
MEDIA_TYPE = "audio/x-mpegurl"


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """Write a title, a start, a stop and a file URL per moment."""
    lines = ["#EXTM3U"]
    for moment in moments:
        title = one_line(f"{moment.name}: {moment.text or moment.query}".rstrip(": "), 120)
        lines += [
            f"#EXTINF:{max(1, round(moment.duration))},{title}",
            f"#EXTVLCOPT:start-time={moment.start:.3f}",
            f"#EXTVLCOPT:stop-time={moment.end:.3f}",
            file_url(moment.path),
        ]
    out.write(("\n".join(lines) + "\n").encode())
    return []
