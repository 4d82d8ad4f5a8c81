"""CSV (RFC 4180): a row a moment, for spreadsheets and scripts."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import IO

from whenabouts.export._frames import numbers_of, rate_text
from whenabouts.export._text import clock, number, one_line
from whenabouts.export.clip import Clip
from whenabouts.export.options import Options
from whenabouts.export.source import shown_path

NAME = "csv"
SUFFIXES = (".csv",)
MEDIA_TYPE = "text/csv; charset=utf-8"
COLUMNS = (
    "rank", "video_id", "name", "path", "start", "end", "start_time", "end_time",
    "first_frame", "end_frame", "frame_rate", "score", "confidence", "query", "text",
)  # fmt: skip
# Spreadsheets take a cell that begins so for a formula, and run it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")


def write(clips: Sequence[Clip], out: IO[bytes], options: Options) -> list[str]:
    """A heading and a row a moment."""
    notes: list[str] = []
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\r\n")
    rows.writerow(COLUMNS)
    for clip in clips:
        found = numbers_of(clip, options, notes)
        frames = ("", "", "") if found is None else (found.first, found.end, rate_text(found.rate))
        rows.writerow(
            (
                clip.rank,
                *map(defused, (clip.video_id, clip.name, shown_path(clip.path))),
                f"{clip.start:.3f}",
                f"{clip.end:.3f}",
                clock(clip.start),
                clock(clip.end),
                *frames,
                number(clip.score, 6),
                number(clip.confidence, 6),
                defused(clip.query),
                defused(clip.text),
            )
        )
    out.write(text.getvalue().encode())
    return notes


def defused(text: str) -> str:
    """Text on one line that no spreadsheet takes for a formula: a quotation mark stands before it.

    >>> defused('=HYPERLINK("http://x")'), defused("plain")
    ('\\'=HYPERLINK("http://x")', 'plain')
    """
    plain = one_line(text)
    return f"'{plain}" if plain.startswith(_FORMULA) else plain
