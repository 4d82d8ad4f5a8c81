"""Long videos by segments: a query's best segments, joined to proposals of where to look.

The first two of SPR's three stages ("Segment-Proposal-Ranking", for ranked moments; the third is
`rank.rank_proposals`). 1. Videos are cut into segments of equal length without overlap, and each is encoded
by itself (`units.py`): any system that chooses videos chooses segments, with the vectors it keeps. An hour is
then searched at the grain of seconds, and a system with places for 100 clips never sees more than a segment.
2. A query's best segments are sorted by place; neighbours become one proposal, which ranks as its best
segment does.

As SPR: 4 seconds, 200 segments a query, plain joining. Its options: "const_gap_g" is `gap`, "adp_gap_a" is
`reach`. It repeats the last frame of a short last segment; here such a segment has fewer clips. SPR's own
segment model (CLIP frames, one vector a segment) is not here: a segment has the keys that the retriever
keeps of it, and scores what the retriever gives it. Neighbours are searched exactly ("flat").

Shapes: Q queries, P proposals of all queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whenabouts.overlap import place_in_group
from whenabouts.types import UsageError
from whenabouts_systems.ranking.candidates import Candidates
from whenabouts_systems.ranking.encoded_corpus import Floats, Indices
from whenabouts_systems.ranking.units import Units


@dataclass(frozen=True, slots=True)
class SegmentSettings:
    """How videos are cut and proposals made; the defaults are SPR's.

    `seconds` of a segment, rounded to whole clips of the features (at least one). `depth`: so many segments
    of a query are joined. Two stretches of such segments are one proposal where at most `gap` segments, or
    `reach` times the segments of both stretches together, are missing between them. `proposals`: so many of
    the best are kept (None: all). `padding_seconds` are added on both sides before a proposal is refined.
    """

    seconds: float = 4.0
    depth: int = 200
    gap: int = 0
    reach: float = 0.0
    proposals: int | None = None
    padding_seconds: float = 8.0

    def __post_init__(self) -> None:
        if not 0 < self.seconds < float("inf"):
            raise UsageError(f"segments: seconds is {self.seconds!r}; accepted: a number above 0")
        for name, least in (("depth", 1), ("gap", 0), ("proposals", 1)):
            value = getattr(self, name)
            if value is None and name == "proposals":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"segments: {name} is {value!r}; accepted: a whole number, {least} or more")
        for name in ("reach", "padding_seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UsageError(f"segments: {name} is {getattr(self, name)!r}; accepted: 0 or more")


@dataclass(frozen=True, eq=False)
class Proposals:
    """P stretches of videos to look into; query i has offsets[i] .. offsets[i + 1], best first.

    `video`, `start` and `end` in seconds, `score` of the best segment; all (P,).
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
        """(P,) the number of the query of each."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def first(self, count: int) -> Proposals:
        """All of them: how many there are is bounded by the segments that are joined."""
        return self

    def part(self, low: int, high: int) -> Proposals:
        """Those of the queries from `low` to `high` - 1, which become the queries from 0 on."""
        offsets = self.offsets[low : high + 1]
        mine = slice(int(offsets[0]), int(offsets[-1]))
        return Proposals(
            offsets - offsets[0], self.video[mine], self.start[mine], self.end[mine], self.score[mine]
        )


def joined_segments(candidates: Candidates, segments: Units, settings: SegmentSettings) -> Proposals:
    """Segments of each query, best first, as proposals: neighbours of one video are one."""
    real = candidates.exist.cpu().numpy()
    query, rank = real.nonzero()
    number = candidates.rows.cpu().numpy()[real]
    score = candidates.scores.float().cpu().numpy()[real]
    order = np.lexsort((number, query))  # segments are numbered video after video, by place
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
    """Where each proposal begins among segments (N,) in order of query and number."""
    if not len(number):
        return np.zeros(0, np.int64)
    same = (query[1:] == query[:-1]) & (video[1:] == video[:-1])
    missing = np.diff(number) - 1
    begins = np.flatnonzero(np.concatenate([[True], ~(same & (missing <= settings.gap))]))
    if not settings.reach:
        return begins
    lasts = np.append(begins[1:], len(number)) - 1
    kept, first, last = [0], int(number[0]), int(number[lasts[0]])
    for at in range(1, len(begins)):  # what has grown reaches farther: one after the other
        opened, closed = int(number[begins[at]]), int(number[lasts[at]])
        lengths = (last - first + 1) + (closed - opened + 1)
        if not same[begins[at] - 1] or opened - last - 1 > settings.reach * lengths:
            kept.append(at)
            first = opened
        last = closed
    return begins[kept]


def _firsts_of_least(values: Indices, begins: Indices) -> Indices:
    """(G,) where the least value of each group lies; groups are consecutive and begin at `begins`."""
    if not len(begins):
        return begins
    group = np.zeros(len(values), np.int64)
    group[begins[1:]] = 1
    order = np.lexsort((values, group.cumsum()))
    return np.asarray(order[begins], np.int64)
