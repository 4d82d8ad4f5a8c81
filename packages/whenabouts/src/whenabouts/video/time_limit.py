"""How much time a file can hold, by its size: times in damaged and hostile files leap as far as they like.

Pictures that stand for long (slides, a still screen) are real, and so are holes between recordings that were
joined. But a file of a thousand bytes that shows six pictures a day apart holds no week: whatever is made of
it, a row for each second, would be a million times as large as the file.
"""

from __future__ import annotations

from fractions import Fraction

ALWAYS_SECONDS = 3600
"""So much time without pictures is always believed."""

BYTES_PER_SECOND = 64
"""And for so many bytes of the file one second more: speech at its lowest rate takes ten times as many."""

FREE_GAP_SECONDS = 2
"""A picture is believed to stand so long without being counted."""

LONGEST_GAP_SECONDS = 86_400
"""A gap longer than a day is a joint between recordings, whatever the size."""


class TimeLimit:
    """Tells gaps between pictures from leaps of damaged times, for one file that is read once."""

    def __init__(self, size: int) -> None:
        """`size` is that of the file in bytes."""
        self._left = Fraction(most_idle_seconds(size))

    def allows(self, gap: Fraction) -> bool:
        """Whether a gap of so many seconds is a time, and not a leap; those that are use the limit up."""
        counted = gap - FREE_GAP_SECONDS
        if gap > LONGEST_GAP_SECONDS or counted > self._left:
            return False
        self._left -= max(Fraction(0), counted)
        return True


def most_idle_seconds(size: int) -> float:
    """How long a file of so many bytes may last without pictures or sound that are in it."""
    return ALWAYS_SECONDS + max(0, size) / BYTES_PER_SECOND
