"""Markers for Adobe Premiere Pro, as the table that its menu item File > Export > Markers writes.

A format of `export`, chosen by name. The table has six columns, separated by tabs: Marker Name, Description,
In, Out (In plus Duration), Duration, Marker Type. Drop-frame time codes have semicolons throughout
(`00;01;00;02`). Source: comments and samples in the import function of Markerbox, a panel (2021).

Premiere could not import such a table in 2020 (README of the panel twitch-markers), but Markerbox can. As a
comment in its code says, it loses letters such as ü when it reads UTF-16, so this module writes UTF-8.
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
_JOINED = (
    "the moments are in several videos, so the times are those of a sequence of all moments; export the same "
    "moments as EDL to make that sequence"
)


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """Write the column names and a comment marker for each moment; returns notes for the user.

    If all moments are in one video, In and Out count its frames. Otherwise they count the frames of a
    sequence in which the moments follow one another. Counting begins at zero, as in Premiere, or at
    `start_timecode`. Raises what `make_timeline` raises.
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
    return [*timeline.notes, *([] if is_one else [_JOINED])]


def _cell(text: str) -> str:
    """Text of a cell with formulas defused, and ' in place of ", which some readers treat as a delimiter."""
    return defused(text).replace('"', "'")
