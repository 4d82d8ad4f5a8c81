"""What went wrong with each query of a run: where its video and its moment stand in the list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuepoint.formats.columns import Annotations, RunBlock, RunSource, Task
from cuepoint.overlap import temporal_iou

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

GOOD: Final = 0.5
"""From this IoU with a positive on, a predicted moment is good."""
LEVELS: Final = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""The IoU thresholds of the curves."""
DEPTHS: Final = (1, 5, 10, 100)
"""How far down a list the curves look."""

FOUND, RANKED_LOW, SPAN_WRONG, VIDEO_LATE, VIDEO_MISSED, NOT_ANSWERED = range(6)
"""Failure classes: positions in `CLASSES`."""


class FailureClass(NamedTuple):
    """One of the ways in which an answer can be right or fail."""

    key: str
    name: str
    meaning: str


CLASSES: Final = (
    FailureClass("found", "found", "the first row is a good moment (IoU ≥ 0.5 with a positive)"),
    FailureClass("ranked-low", "ranked low", "a good moment is in the list, but not first"),
    FailureClass(
        "span-wrong",
        "video right, span wrong",
        "the first row is in a right video; no row of the list is a good moment",
    ),
    FailureClass(
        "video-late",
        "video late",
        "a right video is in the list, but not first; no row is a good moment",
    ),
    FailureClass("video-missed", "video missed", "no right video is in the list"),
    FailureClass("not-answered", "not answered", "the run has no row for the query"),
)


class Band(NamedTuple):
    """Ranks from `first` to `last`; `last` 0 means without end."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """As a heading: "2–5", "over 100"."""
        return f"{self.first}–{self.last}" if self.last else f"over {self.first - 1}"


BANDS: Final = (Band(2, 5), Band(6, 10), Band(11, 100), Band(101, 0))
"""Where the first good moment of a query stands that is ranked low."""


@dataclass(frozen=True)
class Positives:
    """What is true of some queries: the judgements with a relevance above 0, sorted by query and video.

    Query and video are positions in `query_ids` and in the annotations' videos; the columns are (N,).
    """

    query_ids: tuple[str, ...]
    video_ids: tuple[str, ...]
    query: Indices
    video: Indices
    start: Floats
    end: Floats
    relevance: Floats

    @classmethod
    def of(cls, annotations: Annotations, query_ids: Sequence[str]) -> Positives:
        """The positives of the named queries; queries the annotations lack have none."""
        place = {query_id: position for position, query_id in enumerate(query_ids)}
        position = np.array([place.get(query.id, -1) for query in annotations.queries], np.int64)
        judged = position[annotations.query] if len(position) else annotations.query
        kept = np.flatnonzero((judged >= 0) & (annotations.relevance > 0))
        kept = kept[np.lexsort((annotations.video[kept], judged[kept]))]
        return cls(
            query_ids=tuple(query_ids),
            video_ids=tuple(video.id for video in annotations.videos),
            query=judged[kept],
            video=annotations.video[kept],
            start=annotations.start[kept],
            end=annotations.end[kept],
            relevance=annotations.relevance[kept],
        )

    @cached_property
    def counts(self) -> Indices:
        """(Q,) how many positives a query has."""
        return np.bincount(self.query, minlength=len(self.query_ids)).astype(np.int64)

    @cached_property
    def firsts(self) -> Indices:
        """(Q,) row of a query's most relevant positive, the first of equals; -1 where it has none."""
        order = np.lexsort((np.arange(len(self.query)), -self.relevance, self.query))
        query, at = np.unique(self.query[order], return_index=True)
        rows = np.full(len(self.query_ids), -1, np.int64)
        rows[query] = order[at]
        return rows

    @cached_property
    def pairs(self) -> tuple[Indices, Indices]:
        """(P + 1,) rows where each (query, video) begins, and (P,) its key, ascending."""
        keys, begins = np.unique(self.query * len(self.video_ids) + self.video, return_index=True)
        return np.append(begins, len(self.query)), keys

    def overlaps(self, query: Indices, video: Indices, start: Floats, end: Floats) -> tuple[Flags, Floats]:
        """Of predicted moments, (N,) whether the video is right, and the best IoU with a positive in it.

        A row without a span (NaN, or empty) has the IoU 0.
        """
        begins, keys = self.pairs
        iou = np.zeros(len(query))
        if not len(keys):
            return np.zeros(len(query), bool), iou
        key = np.where(video >= 0, query * len(self.video_ids) + video, -1)
        at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        right = keys[at] == key
        rows, at = np.flatnonzero(right), at[right]
        sizes = begins[at + 1] - begins[at]
        edges = np.cumsum(sizes) - sizes
        truth = np.arange(sizes.sum()) - np.repeat(edges - begins[at], sizes)
        row = np.repeat(rows, sizes)
        each = temporal_iou(start[row], end[row], self.start[truth], self.end[truth])
        if len(rows):
            iou[rows] = np.maximum.reduceat(each, edges)
        return right, iou


@dataclass(frozen=True)
class Diagnosis:
    """Where the right video and the right moment of every query stand in a run.

    All arrays have a row per query, in the order of `query_ids`. Ranks count the rows of the list from 1;
    0 means that there is none.
    """

    query_ids: tuple[str, ...]
    names_moments: bool
    """False for a run of videos: a right video is all that can be asked of it, and `good_rank` is its rank."""
    rows: Indices
    video_rank: Indices
    """Rank of the first row in a right video."""
    level_rank: Indices
    """(Q, L) rank of the first row whose IoU reaches each of `LEVELS`."""
    best_iou: Floats
    """Best IoU anywhere in the list."""
    best_within: Floats
    """(Q, D) best IoU among the first `DEPTHS` rows."""
    video_within: Flags
    """(Q, D) whether a right video is among the first `DEPTHS` rows."""

    @cached_property
    def good_rank(self) -> Indices:
        """(Q,) rank of the first good moment; of the first right video where the run names no moments."""
        return self.rank_at(GOOD) if self.names_moments else self.video_rank

    def rank_at(self, level: float) -> Indices:
        """(Q,) rank of the first row whose IoU with a positive reaches one of `LEVELS`."""
        return np.asarray(self.level_rank[:, LEVELS.index(level)])

    @cached_property
    def classes(self) -> Indices:
        """(Q,) position in `CLASSES` of what became of each query."""
        good, video = self.good_rank, self.video_rank
        late = np.full(len(self.rows), VIDEO_LATE, np.int64)
        ranked_low = (good > 1) & self.names_moments
        return np.select(
            [self.rows == 0, good == 1, ranked_low, video == 1, video > 1],
            [np.full_like(late, one) for one in (NOT_ANSWERED, FOUND, RANKED_LOW, SPAN_WRONG)] + [late],
            VIDEO_MISSED,
        ).astype(np.int64)

    @cached_property
    def class_counts(self) -> Indices:
        """(6,) how many queries are of each class; they add up to the queries."""
        return np.bincount(self.classes, minlength=len(CLASSES)).astype(np.int64)

    @cached_property
    def band_counts(self) -> Indices:
        """(4,) of the queries that are ranked low, how many have their first good moment in each band."""
        ranks = self.good_rank[self.classes == RANKED_LOW]
        starts = np.array([band.first for band in BANDS])
        return np.bincount(np.searchsorted(starts, ranks, "right") - 1, minlength=len(BANDS)).astype(np.int64)

    @property
    def ranked_low_in_right_video(self) -> int:
        """How many queries that are ranked low have a right video in the first row nevertheless."""
        return int(np.sum((self.classes == RANKED_LOW) & (self.video_rank == 1)))

    def recall_by_depth(self, depths: Indices, level: float | None = None) -> Floats:
        """(K,) share of queries with a row that reaches `level` among the first K rows, for each K.

        Without a level, with a row in a right video.
        """
        ranks = self.video_rank if level is None else self.rank_at(level)
        hits = np.sort(ranks[ranks > 0])
        return np.asarray(np.searchsorted(hits, depths, "right") / max(len(ranks), 1))

    def recall_by_level(self, depth: int) -> Floats:
        """(L,) share of queries with a row among the first `depth` that reaches each of `LEVELS`."""
        ranks = self.level_rank
        return np.asarray(((ranks > 0) & (ranks <= depth)).sum(axis=0) / max(len(ranks), 1))


def diagnose(positives: Positives, source: RunSource, task: Task = "VCMR") -> Diagnosis:
    """Where the right video and the right moment of every query stand in one list of a run.

    The run is read once, block by block; queries that are not asked about are passed over.
    """
    gathering = _Gathering(positives)
    for block in source.blocks(task):
        gathering.add(block)
    return gathering.diagnosis()


class _Gathering:
    """Fills the columns of a diagnosis as blocks come."""

    def __init__(self, positives: Positives) -> None:
        count = len(positives.query_ids)
        self.positives = positives
        self.query_codes = {query_id: code for code, query_id in enumerate(positives.query_ids)}
        self.video_codes = {video_id: code for code, video_id in enumerate(positives.video_ids)}
        self.rows = np.zeros(count, np.int64)
        self.video_rank = np.zeros(count, np.int64)
        self.level_rank = np.zeros((count, len(LEVELS)), np.int64)
        self.best_iou = np.zeros(count)
        self.best_within = np.zeros((count, len(DEPTHS)))
        self.names_moments = False
        self.names_videos = False

    def add(self, block: RunBlock) -> None:
        """Take in the answers to some queries."""
        codes = np.array([self.query_codes.get(name, -1) for name in block.query_ids], np.int64)
        sizes = np.diff(block.offsets)
        self.rows[codes[codes >= 0]] = sizes[codes >= 0]
        query = np.repeat(codes, sizes)
        rank = np.arange(len(query)) - np.repeat(block.offsets[:-1], sizes) + 1
        kept = np.flatnonzero(query >= 0)
        self.names_videos |= bool(len(kept))
        self.names_moments |= not bool(np.isnan(block.start[kept]).all())
        of_truth = np.array([self.video_codes.get(name, -1) for name in block.video_ids], np.int64)
        video = of_truth[block.video[kept]] if len(kept) else np.zeros(0, np.int64)
        right, iou = self.positives.overlaps(query[kept], video, block.start[kept], block.end[kept])
        self._note(query[kept][right], rank[kept][right], iou[right])

    def _note(self, query: Indices, rank: Indices, iou: Floats) -> None:
        """Take in the rows in right videos; those of a query lie together, best first."""
        _first(self.video_rank, query, rank)
        for column, level in enumerate(LEVELS):
            reached = iou >= level
            _first(self.level_rank[:, column], query[reached], rank[reached])
        np.maximum.at(self.best_iou, query, iou)
        for column, depth in enumerate(DEPTHS):
            near = rank <= depth
            np.maximum.at(self.best_within[:, column], query[near], iou[near])

    def diagnosis(self) -> Diagnosis:
        """What was gathered."""
        return Diagnosis(
            query_ids=self.positives.query_ids,
            # A run without a single row is not known to name no moments.
            names_moments=self.names_moments or not self.names_videos,
            rows=self.rows,
            video_rank=self.video_rank,
            level_rank=self.level_rank,
            best_iou=self.best_iou,
            best_within=self.best_within,
            video_within=(self.video_rank[:, None] > 0) & (self.video_rank[:, None] <= np.array(DEPTHS)),
        )


def _first(ranks: Indices, query: Indices, rank: Indices) -> None:
    """Set `ranks` of each query to its first rank here; the rows of a query lie together, best first."""
    leads = np.ones(len(query), bool)
    np.not_equal(query[1:], query[:-1], out=leads[1:])
    ranks[query[leads]] = rank[leads]
