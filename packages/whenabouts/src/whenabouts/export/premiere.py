"""Markers for Adobe Premiere Pro: the table that its File, Export, Markers writes.

A format of `export`, loaded by name. Six columns with tabs between them: Marker Name, Description, In, Out,
Duration, Marker Type. Drop-frame time codes have semicolons throughout (`00;01;00;02`). Out is In plus
Duration. Source: the comments and samples in the import function of Markerbox, a panel for Premiere (2021).

Premiere itself had no import of such a table (README of the panel twitch-markers, 2020); Markerbox reads it.
Premiere writes UTF-16, this module UTF-8: Markerbox loses letters such as ü of UTF-16, by its own comment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from whenabouts.export.csv import defused
from whenabouts.export.marker import marker_name, marker_note
from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.export.timeline import make_timeline
from whenabouts.video.timecode import timecode

NAME = "premiere"
SUFFIXES = (".tsv",)
MEDIA_TYPE = "text/tab-separated-values; charset=utf-8"
COLUMNS = ("Marker Name", "Description", "In", "Out", "Duration", "Marker Type")
_SEVERAL = (
    "the moments are in several videos: the times are those of a sequence that joins them, as an EDL of the "
    "same moments makes it"
)


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """Write a heading and a comment marker for each moment.

    Moments of one video have their times in it; moments of several follow one another. Time codes begin at
    zero, as Premiere's sequences do, unless a start is given.
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
    """Text without quotation marks: some readers take them as borders of the cell, and some do not."""
    return defused(text).replace('"', "'")
