"""The time grid: the only place where seconds become clip indices and back. Standard library only."""

from __future__ import annotations

import math
from dataclasses import dataclass

from whenabouts.types import UsageError

# Seconds that differ by less than this are one instant: floats of exact rationals, not noise.
_INSTANT = 1e-6


@dataclass(frozen=True, slots=True)
class ClipGrid:
    """A video cut into clips of equal length; the last one may be shorter.

    Clip i covers [i * clip_seconds, (i + 1) * clip_seconds), cut off at `duration`.

    >>> grid = ClipGrid(clip_seconds=2.0, duration=9.0)
    >>> len(grid), grid.bounds(4)
    (5, (8.0, 9.0))
    """

    clip_seconds: float
    duration: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.clip_seconds) and self.clip_seconds > 0):
            raise UsageError(
                f"clip_seconds is {self.clip_seconds!r}; it must be a positive number of seconds"
            )
        if not (math.isfinite(self.duration) and self.duration >= 0):
            raise UsageError(f"duration is {self.duration!r}; it must be a number of seconds, 0 or more")

    def __len__(self) -> int:
        return max(0, math.ceil((self.duration - _INSTANT) / self.clip_seconds))

    def index_at(self, seconds: float) -> int:
        """The clip that holds an instant; instants outside the video fall into its first or last clip."""
        if len(self) == 0:
            raise UsageError(f"a video of {self.duration} s has no clip at {seconds} s")
        index = math.floor((seconds + _INSTANT) / self.clip_seconds)
        return min(max(index, 0), len(self) - 1)

    def bounds(self, index: int) -> tuple[float, float]:
        """Start and end of a clip in seconds."""
        if not 0 <= index < len(self):
            raise UsageError(f"clip {index} is not one of the {len(self)} clips")
        return index * self.clip_seconds, min((index + 1) * self.clip_seconds, self.duration)

    def span_of(self, start: float, end: float) -> tuple[int, int]:
        """First and last clip (inclusive) that share time with [start, end).

        >>> ClipGrid(2.0, 9.0).span_of(1.9, 4.0)
        (0, 1)
        """
        if not start < end:
            raise UsageError(f"{start!r}-{end!r} is no span of time; start must come before end")
        first = self.index_at(start)
        last = self.index_at(max(start, end - 2 * _INSTANT))
        return first, max(first, last)

    def seconds_of(self, first: int, last: int) -> tuple[float, float]:
        """Start and end in seconds of the clips first..last, inclusive."""
        if first > last:
            raise UsageError(f"span {first}..{last} is reversed")
        return self.bounds(first)[0], self.bounds(last)[1]
