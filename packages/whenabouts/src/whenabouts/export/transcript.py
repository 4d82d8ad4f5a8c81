"""A video's words as a file: subtitles (SubRip, WebVTT) or plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from whenabouts.export.text import clock, one_line

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
    """The passages as UTF-8: numbered cues (srt), cues (vtt), or a passage a line without times (txt).

    A text stays on one line, as plain text: an arrow or a tag in it can neither begin a cue nor style one.
    """
    texts = [one_line(line.text).replace("-->", "->") for line in lines]
    if form == "txt":
        return "".join(f"{text}\n" for text in texts).encode()
    # A cue must not be empty.
    times = [(clock(line.start), clock(max(line.end, line.start + 0.001))) for line in lines]
    if form == "srt":
        cues = (
            f"{place}\n{start.replace('.', ',')} --> {end.replace('.', ',')}\n{text}\n\n"
            for place, (text, (start, end)) in enumerate(zip(texts, times, strict=True), 1)
        )
        return "".join(cues).encode()
    escaped = (text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for text in texts)
    cues = (f"{start} --> {end}\n{text}\n\n" for text, (start, end) in zip(escaped, times, strict=True))
    return f"WEBVTT\n\n{''.join(cues)}".encode()
