"""What of a corpus may answer a query: some videos, and of these some stretches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.lookup import rows_of
from whenabouts.index.records import ClipBlock, ClipHits
from whenabouts.index.spans import Spans
from whenabouts.moments.zero_shot import Moments
from whenabouts.types import Moment, ScoredMoment


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a filter leaves: videos by id (None: all), and of these only some stretches (None: all of them).

    `notes` are for the user.
    """

    videos: Sequence[str] | None = None
    spans: Spans | None = None
    notes: tuple[str, ...] = ()

    def hits(self, find: Callable[[int], ClipHits], count: int) -> ClipHits:
        """The best `count` hits that are allowed: of more and more those that share time with a stretch."""
        count_to_find = count
        while True:
            hits = find(count_to_find)
            if self.spans is None:
                return hits
            kept = np.flatnonzero(self.spans.touch(hits.video_ids, hits.start, hits.end))[:count]
            if len(kept) == count or len(hits) < count_to_find:
                inside = np.zeros(len(hits), np.bool_)
                inside[kept] = True
                return rows_of(hits, inside)
            count_to_find *= 4

    def moments(self, moments: Iterable[ScoredMoment]) -> list[ScoredMoment]:
        """Those moments that share time with a stretch, cut to it."""
        if self.spans is None:
            return list(moments)
        cut = ((scored, self.spans.cut(scored.moment)) for scored in moments)
        return [replace(scored, moment=moment) for scored, moment in cut if moment is not None]


EVERYWHERE = Allowed()


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Clips of videos as runs without a gap: a block whose "videos" are the runs, and each one's own video.

    Moments are found in each run alone, so that none reaches over clips that may not answer.
    """

    block: ClipBlock
    video: NDArray[np.int64]
    first: NDArray[np.int64]

    def of_videos(self, moments: Moments) -> Moments:
        """Moments of the runs as those of their videos; clips are counted in the video's own rows."""
        run = moments.video
        return replace(
            moments,
            video=self.video[run],
            first_clip=moments.first_clip + self.first[run],
            last_clip=moments.last_clip + self.first[run],
        )


def inside(
    block: ClipBlock, scores: NDArray[np.float64], spans: Spans | None
) -> tuple[ClipBlock, NDArray[np.float64], Runs]:
    """The clips that share time with stretches of their videos, their scores, and the runs of them."""
    videos = np.arange(len(block.video_ids))
    if spans is None:
        return block, scores, Runs(block, videos, np.zeros(len(videos), np.int64))
    own = [
        spans.touch_in(video_id, block.start[rows], block.end[rows])
        for video_id, rows in ((name, block.rows(place)) for place, name in enumerate(block.video_ids))
    ]
    kept = np.concatenate([np.zeros(0, np.bool_), *own])
    video, rows = np.repeat(videos, np.diff(block.offsets))[kept], np.flatnonzero(kept)
    some = block.take(kept)
    begins = np.append(True, (np.diff(rows) > 1) | (np.diff(video) > 0))[: len(rows)]
    first = np.flatnonzero(begins)
    owner = video[first]
    offsets = np.append(first, len(rows)).astype(np.int64)
    runs = replace(some, video_ids=[block.video_ids[place] for place in owner.tolist()], offsets=offsets)
    return some, scores[kept], Runs(runs, owner, first - some.offsets[owner])


def cut(moments: Moments, block: ClipBlock, spans: Spans | None) -> Moments:
    """Moments from the first to the last stretch in them."""
    if spans is None or not len(moments):
        return moments
    rows = zip(moments.video.tolist(), moments.start.tolist(), moments.end.tolist(), strict=True)
    cut = [spans.cut(Moment(block.video_ids[video], start, end)) for video, start, end in rows]
    kept = moments.take(np.flatnonzero([moment is not None for moment in cut]))
    start, end = np.array([(m.start, m.end) for m in cut if m is not None]).reshape(-1, 2).T
    return replace(kept, start=start, end=end)
