"""Long videos searched by segments: equal pieces as little videos, the best of them joined to proposals.

The first two of SPR's three stages ("Segment-Proposal-Ranking", for ranked moments; the third is in
`refining.py`). 1. Videos are cut into segments of equal length without overlap, and each is encoded by
itself, as if it were a video: any system that chooses videos chooses segments, with the vectors it keeps. An
hour is then searched at the grain of seconds, and a system with places for 100 clips never sees more than a
segment. 2. A query's best segments are sorted by place; neighbours become one proposal, which ranks as its
best segment does.

As SPR: 4 seconds, 200 segments a query, plain joining. Its options: "const_gap_g" is `gap`, "adp_gap_a" is
`reach`. It repeats the last frame of a short last segment; here such a segment has fewer clips. SPR's own
segment model (CLIP frames, one vector a segment) is not here: a segment has the keys that the retriever
keeps of it, and scores what the retriever says of it. Neighbours are searched exactly ("flat").

Shapes: V videos, W windows (a segment is one), Q queries, P proposals of all queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.clips import clip_spans, same_instant, whole_clips
from whenabouts.features.source import Rows
from whenabouts.models.inputs import Inputs
from whenabouts.models.protocol import ClipBatch, QueryEncoding
from whenabouts.ranking.corpus import CorpusEncoding, Progress, encode_corpus
from whenabouts.ranking.retrieve import Candidates, best_videos, can_retrieve, query_blocks, score_corpus
from whenabouts.types import UsageError, Video

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

# Scores (float32) of segments that are held at once.
_NUMBERS = 1 << 26


@dataclass(frozen=True, slots=True)
class SegmentSettings:
    """How videos are cut and proposals made; the defaults are SPR's.

    `seconds` of a segment, rounded to whole clips of the features (at least one). `depth`: so many segments
    of a query are joined. Two stretches of found segments are one proposal where at most `gap` segments, or
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


class Footage(Protocol):
    """Videos as features, row by row: `training.examples.Examples`, `trained.segments.StoredFootage`."""

    @property
    def inputs(self) -> Inputs:
        """How rows are made ready for the system."""

    @property
    def videos(self) -> Sequence[Video]:
        """The corpus."""

    @property
    def durations(self) -> Floats:
        """(V,) seconds."""

    @property
    def row_counts(self) -> Indices:
        """(V,) rows of each video that count, each of `inputs.clip_seconds`."""

    def rows_of_video(self, row: int) -> Mapping[str, Rows]:
        """Stream -> (T, D) rows of a video."""


def segment_clips(inputs: Inputs, seconds: float, name: str) -> int:
    """How many clips segments of so many seconds have for a system, rounded to whole ones.

    Raises UsageError for segments shorter than a clip, or of more clips than the system has places for.
    """
    clip, most = inputs.clip_seconds, inputs.max_clips
    if not 0 < seconds < float("inf"):
        raise UsageError(f"segments of {seconds!r} seconds: give a number above 0, such as 4")
    if seconds < clip and not same_instant(seconds, clip):
        raise UsageError(
            f"segments of {seconds:g} s are shorter than the clips of {name} ({clip:g} s); give {clip:g} or "
            "more"
        )
    clips = whole_clips(seconds, clip)
    if clips > most:
        raise UsageError(
            f"segments of {seconds:g} s are {clips} clips of {clip:g} s, and {name} has places for {most}; "
            f"give {most * clip:g} or less"
        )
    return clips


@dataclass(frozen=True, eq=False)
class Windows:
    """W stretches of videos, each read as a video: rows `first` to `stop` - 1 of video `video`; all (W,)."""

    footage: Footage
    video: Indices
    first: Indices
    stop: Indices

    @classmethod
    def equal(cls, footage: Footage, seconds: float) -> Windows:
        """Whole videos cut into segments, video after video; the last of each may be shorter."""
        size = whole_clips(seconds, footage.inputs.clip_seconds)
        rows = np.asarray(footage.row_counts, np.int64)
        counts = -(-rows // size)
        video = np.repeat(np.arange(len(rows)), counts)
        place = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        return cls(footage, video, place * size, np.minimum((place + 1) * size, rows[video]))

    @classmethod
    def around(cls, footage: Footage, video: Indices, start: Floats, end: Floats) -> Windows:
        """The rows that hold the seconds from `start` to `end` (W,), as far as the videos have them."""
        clip, rows = footage.inputs.clip_seconds, np.asarray(footage.row_counts, np.int64)[video]
        first, last = clip_spans(start, end, clip)
        first = first.clip(0, rows - 1)
        return cls(footage, np.asarray(video, np.int64), first, np.clip(last + 1, first + 1, rows))

    def __len__(self) -> int:
        return len(self.video)

    @property
    def start(self) -> Floats:
        """(W,) the seconds at which each begins."""
        return np.asarray(self.first * self.footage.inputs.clip_seconds, np.float64)

    @property
    def end(self) -> Floats:
        """(W,) the seconds at which each ends: no later than its video."""
        ends = self.stop * self.footage.inputs.clip_seconds
        return np.asarray(np.minimum(ends, self.footage.durations[self.video]), np.float64)

    def take(self, numbers: Indices) -> Windows:
        """Some of them."""
        return Windows(self.footage, self.video[numbers], self.first[numbers], self.stop[numbers])

    def clip_batch(self, numbers: Indices) -> ClipBatch:
        """Some windows as a system reads videos; each video of theirs is read once, one after the other."""
        some = self.take(np.asarray(numbers, np.int64))
        _, begins, owner = np.unique(some.video, return_index=True, return_inverse=True)
        pieces: list[Mapping[str, Rows]] = [{} for _ in range(len(some))]
        rows: Mapping[str, Rows] = {}
        read = -1
        for at in np.argsort(begins[owner.reshape(-1)], kind="stable").tolist():
            video, span = int(some.video[at]), slice(int(some.first[at]), int(some.stop[at]))
            if video != read:
                rows, read = self.footage.rows_of_video(video), video
            pieces[at] = {stream: np.array(one[span]) for stream, one in rows.items()}
        told = zip(some.video.tolist(), some.first.tolist(), some.stop.tolist(), strict=True)
        videos = self.footage.videos
        names = [f"{videos[video].id}, rows {low} to {high - 1}" for video, low, high in told]
        return self.footage.inputs.clips(pieces, names=names)

    def encoded(
        self, model: Any, *, folder: str | Path | None = None, progress: Progress | None = None
    ) -> CorpusEncoding:
        """All windows as a corpus: row w of it is window w."""
        inputs, seconds = self.footage.inputs, self.end - self.start
        told = list(zip((self.stop - self.first).tolist(), seconds.tolist(), strict=True))
        return encode_corpus(
            model,
            self.clip_batch,
            [f"{number:012d}" for number in range(len(self))],
            clips=np.array([inputs.clips_of(rows) for rows, _ in told], np.int64),
            clip_seconds=np.array([inputs.clip_seconds_of(*one) for one in told]),
            durations=seconds,
            folder=folder,
            progress=progress,
        )


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

    def part(self, low: int, high: int) -> Proposals:
        """Those of the queries from `low` to `high` - 1, which become the queries from 0 on."""
        offsets = self.offsets[low : high + 1]
        mine = slice(int(offsets[0]), int(offsets[-1]))
        return Proposals(
            offsets - offsets[0], self.video[mine], self.start[mine], self.end[mine], self.score[mine]
        )


@dataclass(frozen=True, eq=False)
class SegmentIndex:
    """The segments of a corpus as a retriever keeps them."""

    model: Any
    segments: Windows
    encoding: CorpusEncoding
    settings: SegmentSettings

    @classmethod
    def of(
        cls,
        model: Any,
        footage: Footage,
        settings: SegmentSettings,
        *,
        folder: str | Path | None = None,
        progress: Progress | None = None,
    ) -> SegmentIndex:
        """Videos, cut and encoded, in memory or in a `folder`. UsageError for what chooses no videos."""
        if not can_retrieve(model):
            raise UsageError("this system chooses no videos, and so no segments; name a retriever")
        segments = Windows.equal(footage, settings.seconds)
        return cls(model, segments, segments.encoded(model, folder=folder, progress=progress), settings)

    @property
    def unfound(self) -> int:
        """How many videos have no segment of which the system reads anything."""
        return len(self.segments.footage.videos) - len(np.unique(self.segments.video[self.encoding.audible]))

    def nearest(self, queries: QueryEncoding, allowed: Tensor | None = None) -> Candidates:
        """The `depth` best segments of each query; `allowed` (Q, V) bool restricts it to some videos.

        A segment of which the system reads nothing (a pause, if it reads subtitles alone) is not found.
        """
        found = []
        of_video, audible = torch.from_numpy(self.segments.video), torch.from_numpy(self.encoding.audible)
        for some in query_blocks(len(queries), max(1, _NUMBERS // len(self.segments))):
            rows = torch.arange(some.start, some.stop)
            asked = queries.take(rows.to(_device_of(queries)))
            scores = score_corpus(self.model, asked, self.encoding)
            there = audible.expand(len(rows), -1) if allowed is None else allowed[rows][:, of_video] & audible
            found.append(best_videos(scores, self.settings.depth, there.to(scores.device)))
        return Candidates(torch.cat([one.rows for one in found]), torch.cat([one.scores for one in found]))

    def proposals(self, queries: QueryEncoding, allowed: Tensor | None = None) -> Proposals:
        """The proposals of each query, best first."""
        return joined_segments(self.nearest(queries, allowed), self.segments, self.settings)


def joined_segments(found: Candidates, segments: Windows, settings: SegmentSettings) -> Proposals:
    """Segments of each query, best first, as proposals: neighbours of one video are one."""
    real = (found.scores > -torch.inf).cpu().numpy()
    query, rank = real.nonzero()
    number = found.rows.cpu().numpy()[real]
    score = found.scores.float().cpu().numpy()[real]
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


def place_in_group(groups: Indices) -> Indices:
    """(N,) how many of the same group stand before each; equal numbers (0 or more) are neighbours.

    >>> place_in_group(np.array([2, 2, 5, 2])).tolist()
    [0, 1, 0, 0]
    """
    opens = np.flatnonzero(np.diff(groups, prepend=-1))
    return np.asarray(np.arange(len(groups)) - np.repeat(opens, np.diff(opens, append=len(groups))), np.int64)


def _device_of(queries: QueryEncoding) -> torch.device:
    return next(iter((*queries.search.values(), *queries.parts.values()))).device
