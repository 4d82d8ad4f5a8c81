"""A moment on its way out of whenabouts: everything that a list or a cut file says of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clip:
    """A moment of a file: [start, end) in float seconds of the source's own clock, from 0 at its first frame.

    `path` is where the file lies, absolute; `name` is what to call it. `score` and `confidence` are None for
    a moment that somebody named instead of searching for it; `query` is then empty.
    """

    rank: int
    video_id: str
    path: str
    name: str
    start: float
    end: float
    score: float | None = None
    confidence: float | None = None
    text: str = ""
    query: str = ""

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return self.end - self.start
