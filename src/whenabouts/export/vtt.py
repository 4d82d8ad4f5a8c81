"""WebVTT: a cue a moment, as chapters of a player; what they scored stands in notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from whenabouts.export._text import clock, number, one_line
from whenabouts.export.clip import Clip
from whenabouts.export.options import Options
from whenabouts.export.source import shown_path

NAME = "vtt"
SUFFIXES = (".vtt",)
MEDIA_TYPE = "text/vtt; charset=utf-8"
_LONGEST_TITLE = 200
_SEVERAL = (
    "the moments lie in several videos: the times are those of one file in which they follow one another, "
    "as `whenabouts cut --join` makes it"
)


def write(clips: Sequence[Clip], out: IO[bytes], options: Options) -> list[str]:
    """Moments of one video at their times in it; of several, one after the other, as in a joined cut."""
    is_one = len({clip.path for clip in clips}) == 1
    notes = [] if is_one else [_SEVERAL]
    lines = ["WEBVTT", ""]
    lines += _note("chapters: " + ("times of " + shown_path(clips[0].path) if is_one else notes[0]))
    at = 0.0
    for clip in sorted(clips, key=lambda clip: (clip.start, clip.end)) if is_one else clips:
        start, end = (clip.start, clip.end) if is_one else (at, at + clip.duration)
        at += clip.duration
        lines += _note(_facts(clip))
        lines += [str(clip.rank), f"{clock(start)} --> {_later(start, end)}", _title(clip), ""]
    out.write("\n".join(lines).encode("utf-8", "backslashreplace"))
    return notes


def _later(start: float, end: float) -> str:
    """The end, at least a millisecond behind the start: a cue must not be empty."""
    return clock(max(end, start + 0.001))


def _note(text: str) -> list[str]:
    return [f"NOTE {_without_arrow(one_line(text))}", ""]


def _facts(clip: Clip) -> str:
    facts = [("rank", str(clip.rank)), ("score", number(clip.score)), ("confidence", number(clip.confidence))]
    said = " ".join(f"{name}={value}" for name, value in facts if value)
    return f"{said} source={shown_path(clip.path)}#t={clip.start:.3f},{clip.end:.3f}"


def _title(clip: Clip) -> str:
    text = one_line(clip.text or clip.query or clip.name, _LONGEST_TITLE) or f"moment {clip.rank}"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _without_arrow(text: str) -> str:
    """An arrow would begin a cue."""
    return text.replace("-->", "->")
