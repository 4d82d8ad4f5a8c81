"""Markers for Adobe Premiere Pro, as the table that its menu item File > Export > Markers writes.

`whenabouts.export` loads this module by name. The table has six columns, separated by tabs: Marker Name,
Description, In, Out (In plus Duration), Duration, Marker Type. Drop-frame time codes have semicolons
throughout (`00;01;00;02`). Source: comments and samples in the import function of Markerbox, a panel (2021).

Premiere could not import such a table in 2020 (README of the panel twitch-markers), but Markerbox can. It
loses letters such as ü from Premiere's UTF-16, as a comment in it says, so this module writes UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from whenabouts.export.csv import defused
from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.export.text import marker_name, marker_note
from whenabouts.export.timeline import make_timeline
from whenabouts.video.timecode import timecode

NAME = "premiere"
SUFFIXES = (".tsv",)
MEDIA_TYPE = "text/tab-separated-values; charset=utf-8"
COLUMNS = ("Marker Name", "Description", "In", "Out", "Duration", "Marker Type")
_SEVERAL = (
    "the moments are in several videos: the times count in a sequence that joins them, which an EDL of the "
    "same moments makes"
)


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """Write the column names and a comment marker for each moment; the result is notes for the user.

    If all moments are in one video, their times are frames of it; else, of a sequence of all moments. Time
    codes begin at zero, as in Premiere, unless a start is given. Raises UsageError as `make_timeline`.
    """
    timeline = make_timeline(moments, options, rates="one")
    is_one = len({moment.path for moment in moments}) == 1
    zero = 0 if options.start_timecode is None else timeline.start

    def code(frame: int) -> str:
        text = timecode(frame, timeline.rate, drop=timeline.drop)
        return text.replace(":", ";") if timeline.drop else text

    rows = [COLUMNS]
    for event in timeline.events:
        first = zero + (event.first if is_one else event.record - timeline.start)
        note = " | ".join(filter(None, (event.moment.name, marker_note(event.moment))))
        times = (code(first), code(first + event.length), code(event.length))
        rows.append((_cell(marker_name(event.moment)), _cell(note), *times, "Comment"))
    out.write("".join("\t".join(row) + "\r\n" for row in rows).encode("utf-8", "backslashreplace"))
    return [*timeline.notes, *([] if is_one else [_SEVERAL])]


def _cell(text: str) -> str:
    """Text of a cell, with ' for ": only some readers take quotation marks as the borders of a cell."""
    return defused(text).replace('"', "'")
