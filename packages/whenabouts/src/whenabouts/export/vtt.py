"""WebVTT: a cue per moment, as chapters; scores are in notes. A format of `export`, chosen by name."""

from __future__ import annotations

import html
from collections.abc import Sequence
from fractions import Fraction
from typing import IO

from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.export.source import shown_path
from whenabouts.export.text import clock, scores
from whenabouts.lines import one_line
from whenabouts.types import WhenaboutsError
from whenabouts.video.spans import cut_borders
from whenabouts.video.timecode import exact

NAME = "vtt"
SUFFIXES = (".vtt",)
MEDIA_TYPE = "text/vtt; charset=utf-8"
_LONGEST_TITLE = 200
_SEVERAL = (
    "the moments are in several videos: the times are those of a file that joins them, "
    "as `whenabouts cut --join` makes it"
)


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """Write moments of one video at their times in it; moments of several in a row, as in a joined cut."""
    is_one = len({moment.path for moment in moments}) == 1
    notes = [] if is_one else [_SEVERAL]
    lines = ["WEBVTT", ""]
    lines += _note("chapters: " + ("times of " + shown_path(moments[0].path) if is_one else notes[0]))
    at = Fraction(0)
    for moment in sorted(moments, key=lambda moment: (moment.start, moment.end)) if is_one else moments:
        start, end = moment.start, moment.end
        if not is_one:
            length = _joined_length(moment, options, notes)
            start, end, at = float(at), float(at + length), at + length
        lines += _note(_facts(moment))
        end = max(end, start + 0.001)  # a cue must not be empty
        lines += [str(moment.rank), f"{clock(start)} --> {clock(end)}", _title(moment), ""]
    out.write("\n".join(lines).encode("utf-8", "backslashreplace"))
    return list(dict.fromkeys(notes))


def _joined_length(moment: FileMoment, options: Options, notes: list[str]) -> Fraction:
    """The seconds that `cut --join` writes of a moment; its duration, with a note, if no file can be read."""
    start, end = exact(moment.start), exact(moment.end)
    try:
        source = options.sources[moment.path]
    except WhenaboutsError as error:
        notes.append(f"no frame times, so the length of a moment can differ by a frame: {error}")
        return end - start
    begins, ends = cut_borders(
        source.times, start, min(end, source.duration), has_sound=source.sound_rate > 0
    )
    return ends - begins


def _note(text: str) -> list[str]:
    plain = one_line(text).replace("-->", "->")  # an arrow would begin a cue
    return [f"NOTE {plain}", ""]


def _facts(moment: FileMoment) -> str:
    facts = [("rank", str(moment.rank)), *scores(moment)]
    shown = " ".join(f"{name}={value}" for name, value in facts)
    return f"{shown} source={shown_path(moment.path)}#t={moment.start:.3f},{moment.end:.3f}"


def _title(moment: FileMoment) -> str:
    text = one_line(moment.text or moment.query, _LONGEST_TITLE) or f"moment {moment.rank}"
    return html.escape(text, quote=False)  # WebVTT has HTML's escapes
