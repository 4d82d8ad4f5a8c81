"""The time grid: the only place that converts seconds to clip indices and back.

Clip i of a video covers [i * clip_seconds, (i + 1) * clip_seconds), clipped to the video. The functions take
numbers or arrays, which broadcast; `ClipGrid` is the grid of one video.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts.types import UsageError

INSTANT = 1e-6
"""Times at most this far apart (seconds) are equal; floats round the exact rational times of frames."""

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def clip_counts(duration: ArrayLike, clip_seconds: ArrayLike) -> Indices:
    """Numbers of clips of videos of these durations (seconds); the last clip may be shorter.

    >>> clip_counts([9.0, 8.0], 2.0).tolist()
    [5, 4]
    """
    # The tolerance is subtracted before the division, because it is in seconds.
    clips = np.ceil((np.asarray(duration, np.float64) - INSTANT) / np.asarray(clip_seconds))
    return np.asarray(np.maximum(clips, 0), np.int64)


def clips_at(seconds: ArrayLike, clip_seconds: ArrayLike) -> Indices:
    """Indices of the clips that contain instants, on a grid without an end; negative before the video."""
    return np.asarray(
        np.floor((np.asarray(seconds, np.float64) + INSTANT) / np.asarray(clip_seconds)), np.int64
    )


def clip_spans(start: ArrayLike, end: ArrayLike, clip_seconds: ArrayLike) -> tuple[Indices, Indices]:
    """First and last clips (inclusive) that overlap [start, end), on a grid without an end.

    >>> [clips.tolist() for clips in clip_spans([1.9, 2.0], [4.0, 4.1], 2.0)]
    [[0, 1], [1, 2]]
    """
    first = clips_at(start, clip_seconds)
    # Two instants: one that `clips_at` adds, one because `end` is exclusive.
    return first, np.maximum(first, clips_at(np.asarray(end, np.float64) - 2 * INSTANT, clip_seconds))


def span_seconds(
    first: ArrayLike, last: ArrayLike, clip_seconds: ArrayLike, duration: ArrayLike | None = None
) -> tuple[Floats, Floats]:
    """Start and end in seconds of the clips first..last (inclusive), clipped to `duration` if given."""
    clip = np.asarray(clip_seconds, np.float64)
    start, end = np.asarray(first, np.float64) * clip, (np.asarray(last, np.float64) + 1) * clip
    return start, end if duration is None else np.minimum(end, np.asarray(duration, np.float64))


def clip_among(starts: Floats, seconds: float, *, ends: bool = False) -> int:
    """Index of the clip that contains an instant, among clips that begin at `starts` (T,) seconds.

    With `ends` the instant is an exclusive end. Instants outside belong to the first or the last clip.

    >>> clip_among(np.array([0.0, 2.0, 4.0]), 4.0), clip_among(np.array([0.0, 2.0, 4.0]), 4.0, ends=True)
    (2, 1)
    """
    instant = seconds - INSTANT if ends else seconds + INSTANT
    return int(np.clip(np.searchsorted(starts, instant, side="right") - 1, 0, len(starts) - 1))


def whole_clips(seconds: float, clip_seconds: float) -> int:
    """The nearest whole number of clips in a length of time, at least one.

    >>> whole_clips(4.0, 1.5)
    3
    """
    return max(1, math.floor(seconds / clip_seconds + 0.5))


def same_instant(a: float, b: float) -> bool:
    """Whether two times, or two clip lengths, are equal up to rounding."""
    return abs(a - b) <= INSTANT


@dataclass(frozen=True, slots=True)
class ClipGrid:
    """A video cut into clips of equal length; the last one may be shorter.

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
        return int(clip_counts(self.duration, self.clip_seconds))

    def index_at(self, seconds: float) -> int:
        """The clip that contains an instant; instants outside belong to the first or last clip."""
        if len(self) == 0:
            raise UsageError(f"a video of {self.duration} s has no clip at {seconds} s")
        return min(max(int(clips_at(seconds, self.clip_seconds)), 0), len(self) - 1)

    def bounds(self, index: int) -> tuple[float, float]:
        """Start and end of a clip in seconds."""
        if not 0 <= index < len(self):
            raise UsageError(f"clip {index} is not one of the {len(self)} clips")
        return self.seconds_of(index, index)

    def spans_of(self, start: ArrayLike, end: ArrayLike) -> tuple[Indices, Indices]:
        """First and last clips (N,), both inclusive, that overlap N spans [start, end), cut to the video."""
        first, last = clip_spans(start, end, self.clip_seconds)
        return np.clip(first, 0, len(self) - 1), np.clip(last, 0, len(self) - 1)

    def seconds_of(self, first: int, last: int) -> tuple[float, float]:
        """Start and end in seconds of the clips first..last, inclusive."""
        if first > last:
            raise UsageError(f"span {first}..{last} is reversed")
        start, end = span_seconds(first, last, self.clip_seconds, self.duration)
        return float(start), float(end)
