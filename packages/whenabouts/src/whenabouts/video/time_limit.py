"""The longest time that a file can hold, by its size: times in damaged and hostile files jump arbitrarily.

Long still pictures (slides, a screen) are real, and so are gaps between joined recordings. But a file of a
thousand bytes with six pictures a day apart does not hold a week: an index with a row for each second would
be a million times as large as the file.
"""

from __future__ import annotations

from fractions import Fraction

ALWAYS_SECONDS = 3600
"""This much time without pictures is always accepted."""

BYTES_PER_SECOND = 64
"""And one second more for this many bytes of the file: speech at its lowest rate takes ten times as many."""

FREE_GAP_SECONDS = 2
"""Gaps up to this length do not count."""

LONGEST_GAP_SECONDS = 86_400
"""A gap longer than a day is a joint between recordings, whatever the size."""


class TimeLimit:
    """Distinguishes gaps between pictures from jumps of damaged times, for one pass over a file."""

    def __init__(self, size: int) -> None:
        """`size` is the file's size in bytes."""
        self._left = Fraction(most_idle_seconds(size))

    def allows(self, gap: Fraction) -> bool:
        """Whether a gap is plausible; accepted gaps use up the limit."""
        counted = gap - FREE_GAP_SECONDS
        if gap > LONGEST_GAP_SECONDS or counted > self._left:
            return False
        self._left -= max(Fraction(0), counted)
        return True


def most_idle_seconds(size: int) -> float:
    """The longest plausible time without pictures or sound in a file of `size` bytes."""
    return ALWAYS_SECONDS + max(0, size) / BYTES_PER_SECOND
