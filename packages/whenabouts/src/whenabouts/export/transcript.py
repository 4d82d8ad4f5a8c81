"""A video's words as a file: subtitles (SubRip, WebVTT) or plain text."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Literal, Protocol

from whenabouts.export.text import clock
from whenabouts.lines import one_line

TranscriptFormat = Literal["srt", "vtt", "txt"]
MEDIA_TYPES: dict[TranscriptFormat, str] = {
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
}


class Line(Protocol):
    """A spoken passage: its times in seconds, and its text."""

    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def text(self) -> str: ...


def transcript(lines: Sequence[Line], form: TranscriptFormat) -> bytes:
    """The passages as UTF-8: numbered cues (srt), cues (vtt), or a passage per line without times (txt).

    Each text stays on one line. In vtt, tags and arrows are escaped; in srt, arrows are shortened.
    """
    texts = [one_line(line.text) for line in lines]
    if form == "txt":
        return "".join(f"{text}\n" for text in texts).encode()
    # A cue must not be empty.
    times = [f"{clock(line.start)} --> {clock(max(line.end, line.start + 0.001))}" for line in lines]
    if form == "vtt":
        escaped = (html.escape(text, quote=False) for text in texts)
        cues = (f"{time}\n{text}\n\n" for time, text in zip(times, escaped, strict=True))
        return f"WEBVTT\n\n{''.join(cues)}".encode()
    # SubRip has no escapes for an arrow.
    cues = (
        f"{place}\n{time.replace('.', ',')}\n{text.replace('-->', '->')}\n\n"
        for place, (time, text) in enumerate(zip(times, texts, strict=True), 1)
    )
    return "".join(cues).encode()
