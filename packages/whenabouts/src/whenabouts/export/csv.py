"""CSV (RFC 4180): one row per moment, for spreadsheets and scripts. A format of `export`, chosen by name.

It begins with a byte-order mark, because Excel reads a file without one in an old encoding of the system.
Pandas, Polars, DuckDB and PyArrow drop it; Python's `csv` needs the encoding "utf-8-sig".
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import IO

from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.export.source import shown_path
from whenabouts.export.text import clock, number, share
from whenabouts.export.timeline import frame_numbers
from whenabouts.lines import one_line

NAME = "csv"
SUFFIXES = (".csv",)
MEDIA_TYPE = "text/csv; charset=utf-8"
COLUMNS = (
    "rank", "video_id", "name", "path", "start", "end", "start_time", "end_time",
    "first_frame", "end_frame", "frame_rate", "score", "confidence", "query", "text", "note", "tags",
    "title", "recorded",
)  # fmt: skip
# Spreadsheets evaluate a cell that begins like this as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """Write a heading and one row per moment."""
    notes: list[str] = []
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\r\n")
    rows.writerow(COLUMNS)
    for moment in moments:
        frames = frame_numbers(moment, options, notes)
        rows.writerow(
            (
                moment.rank,
                *map(defused, (moment.video_id, moment.name, shown_path(moment.path))),
                f"{moment.start:.3f}",
                f"{moment.end:.3f}",
                clock(moment.start),
                clock(moment.end),
                *(("", "", "") if frames is None else (frames.first, frames.end, frames.rate)),
                number(moment.score, 6),
                share(moment.confidence, 6),
                *map(defused, (moment.query, moment.text, moment.note, ", ".join(moment.tags))),
                defused(moment.title),
                moment.recorded,
            )
        )
    out.write(text.getvalue().encode("utf-8-sig"))
    return notes


def defused(text: str) -> str:
    """Text on one line that no spreadsheet evaluates: formulas get a leading quotation mark.

    >>> defused('=HYPERLINK("http://x")'), defused("plain")
    ('\\'=HYPERLINK("http://x")', 'plain')
    """
    plain = one_line(text)
    return f"'{plain}" if plain.startswith(_FORMULA) else plain
