"""Search long videos by segments: join a query's best segments to proposals, the time ranges to search.

These are the first two stages of SPR ("Segment-Proposal-Ranking", for ranked moments); the third is
`rank.rank_proposals`.

1. Videos are cut into segments of equal length without overlap, and each is encoded alone (`units.py`). Every
   system that chooses videos can choose segments. An hour is then searched in steps of seconds, and a system
   with positions for 100 clips never sees more than a segment.
2. A query's best segments are sorted by position. Adjacent segments become one proposal, which has the rank
   of its best segment.

Defaults are SPR's: 4 seconds, 200 segments for each query, joining only adjacent segments. SPR's option
"const_gap_g" is `gap`, and "adp_gap_a" is `reach`. Departures: SPR repeats the last frame of a short last
segment, while here it has fewer clips. SPR's segment model (CLIP frames, one vector a segment) is not
included: a segment has the retriever's keys and score. Nearest neighbours are exact ("flat").

Shapes: Q queries, P proposals of all queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whenabouts.overlap import place_in_group
from whenabouts_systems.models.settings import Count, NotNegative, Positive, Size, check_fields
from whenabouts_systems.ranking.candidates import Candidates
from whenabouts_systems.ranking.encoded_corpus import Floats, Indices
from whenabouts_systems.ranking.units import Units


@dataclass(frozen=True, slots=True)
class SegmentSettings:
    """The settings by which videos are cut and proposals made; the defaults are SPR's.

    - `seconds` of a segment, rounded to whole clips of the features, at least one.
    - `depth`: the number of a query's best segments that are joined.
    - `gap` and `reach`: two groups of segments become one proposal if at most `gap` segments are missing
      between them, or at most `reach` times the segments of both groups.
    - `proposals`: the number of a query's best proposals that are kept (None: all).
    - `padding_seconds`: the time added on both sides before a proposal is searched.

    Raises UsageError for a value of a wrong type or out of range.
    """

    seconds: Positive = 4.0
    depth: Size = 200
    gap: Count = 0
    reach: NotNegative = 0.0
    proposals: Size | None = None
    padding_seconds: NotNegative = 8.0

    def __post_init__(self) -> None:
        check_fields(self, "segments")


@dataclass(frozen=True, eq=False)
class Proposals:
    """P time ranges to search; those of query i are offsets[i]:offsets[i + 1], best first.

    `video` numbers the video, `start` and `end` are seconds, `score` is the best segment's; all (P,).
    """

    offsets: Indices
    video: Indices
    start: Floats
    end: Floats
    score: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.video)

    @property
    def query(self) -> Indices:
        """(P,) the number of each proposal's query."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def part(self, low: int, high: int) -> Proposals:
        """The proposals of the queries `low` to `high` - 1, renumbered from 0."""
        offsets = self.offsets[low : high + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        return Proposals(
            offsets - offsets[0], self.video[rows], self.start[rows], self.end[rows], self.score[rows]
        )


def joined_segments(candidates: Candidates, segments: Units, settings: SegmentSettings) -> Proposals:
    """The proposals of each query: its segments (best first), those close together in a video joined."""
    real = candidates.exist.cpu().numpy()
    query, rank = real.nonzero()
    number = candidates.rows.cpu().numpy()[real]
    score = candidates.scores.float().cpu().numpy()[real]
    order = np.lexsort((number, query))  # segments are numbered video after video, by position
    query, rank, number, score = query[order], rank[order], number[order], score[order]
    begins = _stretches(query, segments.video[number], number, settings)
    best = _firsts_of_least(rank, begins)
    last = np.append(begins[1:], len(number)) - 1
    order = np.lexsort((rank[best], query[begins]))
    order = order[place_in_group(query[begins][order]) < (settings.proposals or len(number) + 1)]
    opened, closed, chosen = number[begins[order]], number[last[order]], best[order]
    counts = np.bincount(query[chosen], minlength=len(real))
    return Proposals(
        np.concatenate([[0], counts.cumsum()]).astype(np.int64),
        segments.video[opened],
        segments.start[opened],
        segments.end[closed],
        score[chosen],
    )


def _stretches(query: Indices, video: Indices, number: Indices, settings: SegmentSettings) -> Indices:
    """The index at which each proposal begins, among segments (N,) sorted by query and number."""
    if not len(number):
        return np.zeros(0, np.int64)
    same = (query[1:] == query[:-1]) & (video[1:] == video[:-1])
    missing = np.diff(number) - 1
    begins = np.flatnonzero(np.concatenate([[True], ~(same & (missing <= settings.gap))]))
    if not settings.reach:
        return begins
    lasts = np.append(begins[1:], len(number)) - 1
    kept, first, last = [0], int(number[0]), int(number[lasts[0]])
    for at in range(1, len(begins)):  # in order, because a grown proposal reaches farther
        opened, closed = int(number[begins[at]]), int(number[lasts[at]])
        lengths = (last - first + 1) + (closed - opened + 1)
        if not same[begins[at] - 1] or opened - last - 1 > settings.reach * lengths:
            kept.append(at)
            first = opened
        last = closed
    return begins[kept]


def _firsts_of_least(values: Indices, begins: Indices) -> Indices:
    """(G,) the index of the least value of each group; groups are consecutive and begin at `begins`."""
    if not len(begins):
        return begins
    group = np.zeros(len(values), np.int64)
    group[begins[1:]] = 1
    order = np.lexsort((values, group.cumsum()))
    return np.asarray(order[begins], np.int64)
