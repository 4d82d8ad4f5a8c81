"""The frame numbers of moments for tables, where the file can still be read."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from whenabouts.export.clip import Clip
from whenabouts.export.options import Options
from whenabouts.export.timeline import frames_of
from whenabouts.types import WhenaboutsError


@dataclass(frozen=True, slots=True)
class Numbers:
    """Frames [first, end) at a rate; `is_constant` says whether the file's own rate is that."""

    first: int
    end: int
    rate: Fraction
    is_constant: bool


def numbers_of(clip: Clip, options: Options, notes: list[str]) -> Numbers | None:
    """A moment's frames; None, with a note, where the file has none or cannot be read."""
    try:
        source = options.sources[clip.path]
        if source.times is None:
            return None
        rate = options.rate or source.rate
        first, end, said = frames_of(clip, source, rate)
    except WhenaboutsError as error:
        notes.append(f"no frame numbers: {error}")
        return None
    notes += [note for note in said if note not in notes]
    return Numbers(first, end, rate, source.is_constant and rate == source.rate)


def rate_text(rate: Fraction) -> str:
    """A rate as editors write it: 25 or 30000/1001."""
    return str(rate)
