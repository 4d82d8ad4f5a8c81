"""Finds the peaks of a smooth curve, each with its neighbours of nearly the same height.

Speech has such curves: the score of a passage already includes the minute around it, because its full-text
index holds the neighbouring words and its vector is blended with theirs. A segment above a threshold, which
suits pictures (`zero_shot.py`), can absorb neighbouring topics.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from whenabouts.moments.zero_shot import checked_offsets
from whenabouts.overlap import Indices
from whenabouts.types import UsageError


@dataclass(frozen=True)
class Config:
    """Settings of the peaks, chosen on one half of the recordings of `docs/finding.md` (328 titles).

    - `share`: neighbouring clips belong to a moment while they score at least this share of its peak. Values
      from 0.5 to 0.9 change the hits among the first 1, 5 and 10 by at most 0.3 points.
    - `reach_seconds`: largest distance of a moment's border from the middle of its peak.
    - `max_gap_seconds`: a moment ends before a longer silence.
    - `apart_seconds`: least distance between the middles of two peaks of one video, because a second peak
      nearby is of the same topic. With 0, 45, 90 and 180 s, 76.8, 78.0, 78.7 and 77.4 % of the titles have
      their moment among the first five (`benchmarks/results/spoken_choices.json`).
    - `apart_share`: upper limit of that distance, as a share of the video's length.
    - `count`: greatest number of moments over all videos.
    """

    share: float = 0.8
    reach_seconds: float = 90.0
    max_gap_seconds: float = 30.0
    apart_seconds: float = 90.0
    apart_share: float = 0.1
    count: int = 60

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"share is {self.share!r}; it must lie above 0 and be at most 1")
        for name in ("reach_seconds", "max_gap_seconds", "apart_seconds", "apart_share"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name} is {getattr(self, name)!r}; it must be 0 or more")
        if self.count < 1:
            raise UsageError(f"count is {self.count!r}; ask for 1 moment or more")


@dataclass(frozen=True, eq=False)
class Peaks:
    """M moments, best first: the rows (M,) of their peak clips, first clips and last clips (inclusive)."""

    peak: Indices
    first: Indices
    last: Indices

    def __len__(self) -> int:
        return len(self.peak)


def find_peaks(
    score: ArrayLike, start: ArrayLike, end: ArrayLike, offsets: ArrayLike, config: Config | None = None
) -> Peaks:
    """At most `config.count` moments of V videos with N clips together, highest peak first; ties by row.

    `score`, `start`, `end` (N,): the curve and the seconds of its clips, video after video, each in order of
    start; video v has the clips `offsets[v]` to `offsets[v + 1]` (V + 1,). Moments of a video share no clip.
    Raises UsageError for arrays that do not fit together or are not finite.
    """
    line = _Line(score, start, end, offsets, config or Config())
    left, moments = line.left, list[tuple[int, int, int]]()
    while len(moments) < line.config.count and len(left) and left[peak := int(left.argmax())] > -np.inf:
        first, last = line.stretch(peak)
        moments.append((peak, first, last))
        line.take(peak, first, last)
    rows = np.asarray(moments, np.int64).reshape(-1, 3)
    return Peaks(rows[:, 0], rows[:, 1], rows[:, 2])


class _Line:
    """The state of a search for peaks.

    `left` (N,): scores of clips that may still be peaks, else -inf. `free` (N,): clips not yet in a moment.
    `middle` (N,): middles of the clips. `least_distance`: first row of a video -> seconds between two peaks.
    """

    def __init__(
        self, score: ArrayLike, start: ArrayLike, end: ArrayLike, offsets: ArrayLike, config: Config
    ) -> None:
        columns = [np.asarray(column, np.float64) for column in (score, start, end)]
        count = len(columns[0])
        if {column.shape for column in columns} != {(count,)} or not np.isfinite(columns).all():
            raise UsageError("scores, starts and ends: give one finite number of each per clip")
        self.score, self.start, self.end = columns
        self.offsets: list[int] = checked_offsets(offsets, count, "clips").tolist()
        self.config, self.left, self.free = config, self.score.copy(), np.ones(count, np.bool_)
        self.middle, self.least_distance = (self.start + self.end) / 2, dict[int, float]()

    def video_of(self, row: int) -> tuple[int, int]:
        """First row of a row's video, and one past its last row."""
        video = bisect_right(self.offsets, row) - 1
        return self.offsets[video], self.offsets[video + 1]

    def stretch(self, peak: int) -> tuple[int, int]:
        """First and last row of the moment around a peak; it joins free neighbours as `config` allows."""
        low, high = self.video_of(peak)
        config, middle = self.config, self.middle[peak]
        reach = config.reach_seconds
        may_join = self.free[low:high] & (self.score[low:high] >= config.share * self.score[peak])
        first = last = peak
        while first > low and may_join[first - 1 - low] and middle - self.start[first - 1] <= reach:
            if self.start[first] - self.end[first - 1] > config.max_gap_seconds:
                break
            first -= 1
        while last + 1 < high and may_join[last + 1 - low] and self.end[last + 1] - middle <= reach:
            if self.start[last + 1] - self.end[last] > config.max_gap_seconds:
                break
            last += 1
        return first, last

    def take(self, peak: int, first: int, last: int) -> None:
        """Exclude a moment's clips, and peaks too near to its peak, from the search."""
        low, high = self.video_of(peak)
        if low not in self.least_distance:
            seconds = self.end[low:high].max() - self.start[low]
            self.least_distance[low] = min(self.config.apart_seconds, self.config.apart_share * seconds)
        is_near = np.abs(self.middle[low:high] - self.middle[peak]) < self.least_distance[low]
        self.left[low:high][is_near] = -np.inf
        self.left[first : last + 1] = -np.inf
        self.free[first : last + 1] = False
