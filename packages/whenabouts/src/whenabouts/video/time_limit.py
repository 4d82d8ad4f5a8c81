"""How much time a file can hold, by its size. The times in damaged and hostile files jump arbitrarily.

Long still pictures (slides, a screen) are real, and so are gaps between joined recordings. But a file of a
thousand bytes with six pictures a day apart does not hold a week: an index with a row for each second would
be a million times as large as the file. The length that a file states is bounded likewise (`probe.py`).
"""

from __future__ import annotations

from fractions import Fraction

ALWAYS_SECONDS = 3600
"""Time that is accepted for a file of any size."""

BYTES_PER_SECOND = 64
"""Every 64 bytes of a file allow one second more; speech at its lowest rate takes ten times as many."""

FREE_GAP_SECONDS = 2
"""Gaps up to this length are free; of a longer one only the excess counts."""

LONGEST_GAP_SECONDS = 86_400
"""A longer gap is never accepted, whatever the size: it is a joint between recordings."""


class TimeLimit:
    """A budget of time without pictures for one pass over a file. Jumps of damaged times exceed it."""

    def __init__(self, size: int) -> None:
        """`size` is the file's size in bytes."""
        self._left = Fraction(most_idle_seconds(size))

    def allows(self, gap: Fraction) -> bool:
        """Whether a gap is plausible. If so, the call spends the gap's excess from the budget."""
        counted = gap - FREE_GAP_SECONDS
        if gap > LONGEST_GAP_SECONDS or counted > self._left:
            return False
        self._left -= max(Fraction(0), counted)
        return True


def most_idle_seconds(size: int) -> float:
    """Seconds that a file of `size` bytes may state as its length, or hold without pictures or sound."""
    return ALWAYS_SECONDS + max(0, size) / BYTES_PER_SECOND
