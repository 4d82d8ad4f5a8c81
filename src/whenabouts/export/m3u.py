"""An M3U list for players: VLC starts and stops at the moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from whenabouts.export._text import one_line
from whenabouts.export.clip import Clip
from whenabouts.export.options import Options
from whenabouts.export.source import file_url

NAME = "m3u"
SUFFIXES = (".m3u", ".m3u8")
MEDIA_TYPE = "audio/x-mpegurl"


def write(clips: Sequence[Clip], out: IO[bytes], options: Options) -> list[str]:
    """A title, a start, a stop and a file URL a moment."""
    lines = ["#EXTM3U"]
    for clip in clips:
        title = one_line(f"{clip.name}: {clip.text or clip.query}".rstrip(": "), 120)
        lines += [
            f"#EXTINF:{max(1, round(clip.duration))},{title}",
            f"#EXTVLCOPT:start-time={clip.start:.3f}",
            f"#EXTVLCOPT:stop-time={clip.end:.3f}",
            file_url(clip.path),
        ]
    out.write(("\n".join(lines) + "\n").encode())
    return []
