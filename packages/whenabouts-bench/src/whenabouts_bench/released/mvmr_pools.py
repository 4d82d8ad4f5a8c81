"""MVMR pools as the released construction program makes them, where it departs from the paper.

1. Of several near sentences of a video, the last one in the file represents it, and its moment is the
   positive (paper: the most similar one).
2. Positive candidates, the source video among them, are shuffled and cut to 20 before the visual check.
3. Positives are scored without idf, and compared with a mean that was scored with it (paper: one EMScore).
4. The mean of negatives is over one video drawn a query.
5. Similarities must lie beyond the thresholds (paper: a similarity equal to t+ or t- suffices).
6. Other moments of the source video that are described alike never become positives; a system that finds
   them is counted wrong. k counts videos, not moments.
7. Every video is pooled to the same number of frames, which are not normalised again.
8. Queries whose pool stays short are kept in the file; the evaluation leaves them out.
9. Times of videos with a frame rate (TACoS) are written in frames, with the rate beside them.

The program has no seed; ours does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import Video
from whenabouts_bench.relevance.emscore import Frames, pooled_evenly
from whenabouts_bench.relevance.pools import Construction, Floats, Indices, Pool, PoolSettings, VisualCheck
from whenabouts_bench.relevance.similarity import Described, Thresholds

_CANDIDATES = 20


class ReleasedFrames(Frames):
    """Frames averaged to one number for all videos (departure 7 of the module)."""

    @staticmethod
    def pooled(rows: Floats, most: int) -> Floats:
        """(most, D) average frames; those of a shorter video come several times."""
        return pooled_evenly(rows, most)


class BeyondThresholds(Thresholds):
    """Thresholds that similarities must lie beyond, not reach (departure 5)."""

    def reached(self, similarity: Floats) -> NDArray[np.bool_]:
        return similarity > np.float32(self.positive)

    def avoided(self, similarity: Floats) -> NDArray[np.bool_]:
        return similarity < np.float32(self.negative)


class ReleasedCheck(VisualCheck):
    """The visual check with positives scored without idf (departure 3), and scores beyond the means."""

    def positive(self, queries: Indices, videos: Indices) -> NDArray[np.bool_]:
        return self.scorer.score(queries, videos, idf=False).full_f > self.least_positive

    def negative(self, queries: Indices, videos: Indices) -> NDArray[np.bool_]:
        return self.scorer.score(queries, videos).full_f < self.most_negative


def last_per_video(column: Indices, similarity: Floats, described: Described) -> tuple[Indices, Floats]:
    """(places, similarities) of the last near sentence of each video; `column` ascends."""
    last = np.flatnonzero(np.diff(described.video[column], append=-1))
    return column[last], similarity[last]


class ReleasedConstruction(Construction):
    """The construction of pools with departures 1, 2, 4, 6 and 8 of the module."""

    drawn = 1
    check = ReleasedCheck

    def candidates(self, query: int) -> tuple[Indices, Floats]:
        """One near sentence per video, the last."""
        return last_per_video(*self.distance.near(query), self.described)

    def shuffled_candidates(self, query: int) -> Indices:
        return super().shuffled_candidates(query)[:_CANDIDATES]

    def beside(self, query: int) -> list[tuple[int, float]]:
        return []

    def count_own(self, query: int, beside: Sequence[tuple[int, float]]) -> int:
        return len(self.own_videos(query))

    def keeps(self, pool: Pool) -> bool:
        return True


class AsReleased(PoolSettings):
    """Settings of the released program's construction."""

    released = True
    frames = ReleasedFrames
    construction = ReleasedConstruction

    @property
    def thresholds(self) -> Thresholds:
        return BeyondThresholds(self.positive, self.negative)

    def rate_of(self, video: Video) -> float | None:
        """The video's frame rate, if known: times are written in frames."""
        return video.metadata.get("fps")
