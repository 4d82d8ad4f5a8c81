"""A line of text with its times."""

from __future__ import annotations

from dataclasses import dataclass

Marks = tuple[tuple[int, str], ...]
"""Positions in a cue's text at which somebody begins to speak, with the name, "" if unnamed."""


@dataclass(frozen=True, slots=True)
class Word:
    """One spoken word with its time in seconds."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class Cue:
    """A line of text said or shown in [start, end) seconds. `words` is empty if unknown.

    `confidence` in [0, 1] is a speech recogniser's mean certainty; None for written words. `speakers` has the
    positions in `text` at which somebody begins to speak, with names (`speakers.marks_of`).
    """

    start: float
    end: float
    text: str
    words: tuple[Word, ...] = ()
    confidence: float | None = None
    speakers: Marks = ()
