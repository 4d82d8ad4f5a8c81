"""Sets of time ranges in videos: union, complement, intersection, and tests of clips against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts.types import Moment

Floats = NDArray[np.float64]

WHOLE = np.array([[0.0, np.inf]])
"""The range of a whole video."""

_LEAST_SHARED = 0.05
"""Least overlap in seconds: borders of neighbouring clips may differ by rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Time ranges (n, 2) of videos by id: half-open, in seconds, sorted, disjoint, not empty."""

    by_video: Mapping[str, Floats]

    @classmethod
    def of(cls, video_ids: Sequence[str], start: ArrayLike, end: ArrayLike) -> Spans:
        """Ranges given one by one, in any order and in seconds; those that touch or overlap are merged."""
        starts, ends = np.asarray(start, np.float64), np.asarray(end, np.float64)
        ids, owner = np.unique(np.asarray(video_ids, object).astype(str), return_inverse=True)
        order = np.lexsort((starts, owner))
        borders = np.searchsorted(owner[order], np.arange(len(ids) + 1))
        by_video = {}
        for place, video_id in enumerate(ids.tolist()):
            rows = order[borders[place] : borders[place + 1]]
            if len(joined := _joined(starts[rows], ends[rows])):
                by_video[video_id] = joined
        return cls(by_video)

    def with_whole(self, video_ids: Iterable[str]) -> Spans:
        """The union with the whole of some videos."""
        return Spans({**self.by_video, **dict.fromkeys(video_ids, WHOLE)})

    def outside(self, video_ids: Iterable[str]) -> Spans:
        """The complement of these ranges in some videos."""
        without = {name: _gaps(self.by_video[name]) if name in self.by_video else WHOLE for name in video_ids}
        return Spans({video_id: spans for video_id, spans in without.items() if len(spans)})

    def __and__(self, other: Spans) -> Spans:
        """The intersection."""
        shared = self.by_video.keys() & other.by_video.keys()
        both = {video_id: _common(self.by_video[video_id], other.by_video[video_id]) for video_id in shared}
        return Spans({video_id: spans for video_id, spans in both.items() if len(spans)})

    def touch(self, video_ids: Sequence[str], start: Floats, end: Floats) -> NDArray[np.bool_]:
        """Whether each of n clips overlaps a range of its video, (n,)."""
        ids, owner = np.unique(np.asarray(video_ids, object).astype(str), return_inverse=True)
        touched = np.zeros(len(start), np.bool_)
        for place, video_id in enumerate(ids.tolist()):
            rows = np.flatnonzero(owner == place)
            touched[rows] = self.touch_in(video_id, start[rows], end[rows])
        return touched

    def touch_in(self, video_id: str, start: Floats, end: Floats) -> NDArray[np.bool_]:
        """Whether each of n clips of one video overlaps one of the video's ranges, (n,)."""
        spans = self.by_video.get(video_id)
        if spans is None:
            return np.zeros(len(start), np.bool_)
        first = np.searchsorted(spans[:, 1], start + _LEAST_SHARED, side="right")
        begins = spans[np.minimum(first, len(spans) - 1), 0]
        touched: NDArray[np.bool_] = (first < len(spans)) & (begins < end - _LEAST_SHARED)
        return touched

    def cut(self, moment: Moment) -> Moment | None:
        """A moment from the first to the last range that it overlaps, clipped to these; None if to none."""
        spans = self.by_video.get(moment.video_id)
        if spans is None:
            return None
        shared = spans[(spans[:, 1] > moment.start) & (spans[:, 0] < moment.end)]
        if not len(shared):
            return None
        start, end = max(moment.start, float(shared[0, 0])), min(moment.end, float(shared[-1, 1]))
        return Moment(moment.video_id, start, end)


def _joined(start: Floats, end: Floats) -> Floats:
    """The ranges of one video, sorted by start, without empty ones, merged where they touch."""
    kept = end > start
    start, end = start[kept], np.maximum.accumulate(end[kept]) if kept.any() else end[kept]
    if not len(start):
        return np.zeros((0, 2))
    begins = np.append(True, start[1:] > end[:-1])
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:] - 1, len(start) - 1)
    return np.stack([start[firsts], end[lasts]], axis=1)


def _common(left: Floats, right: Floats) -> Floats:
    """The intersection of two lists of ranges."""
    if left is WHOLE or right is WHOLE:
        return right if left is WHOLE else left
    start, end = np.concatenate([_gaps(left), _gaps(right)]).T
    order = np.argsort(start)
    return _gaps(_joined(start[order], end[order]))


def _gaps(spans: Floats) -> Floats:
    """The ranges from 0 on that a list of ranges leaves out."""
    gaps = np.stack([np.append(0.0, spans[:, 1]), np.append(spans[:, 0], np.inf)], axis=1)
    return gaps[gaps[:, 1] > gaps[:, 0]]
