"""Diagnose each query of a run: its failure class, from the ranks of the right video and the right moment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from whenabouts_bench.evaluation.matching import NEVER, Rows, Truth, inside_pools, rows_of
from whenabouts_bench.evaluation.metrics import Listing
from whenabouts_bench.evaluation.protocols import Protocol
from whenabouts_bench.formats.annotations import Floats, Indices
from whenabouts_bench.formats.runs import RunBlock, RunSource, Task

GOOD: Final = 0.5
"""The minimal IoU of a good moment with a positive."""
LEVELS: Final = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""The IoU thresholds of the curves."""

GOOD_FIRST, RANKED_LOW, SPAN_WRONG, VIDEO_LATE, VIDEO_MISSED, NOT_ANSWERED = range(6)
"""Failure classes: indices of `CLASSES`."""


class FailureClass(NamedTuple):
    """A way to answer rightly or to fail."""

    key: str
    name: str
    meaning: str


CLASSES: Final = (
    FailureClass("found", "found", "the first row is a good moment (IoU ≥ 0.5 with a positive)"),
    FailureClass("ranked-low", "ranked low", "a good moment is in the list, but not first"),
    FailureClass(
        "span-wrong", "video right, span wrong", "the first row is in a right video; no row is a good moment"
    ),
    FailureClass(
        "video-late", "video late", "a right video is in the list, but not first; no row is a good moment"
    ),
    FailureClass("video-missed", "video missed", "no right video is in the list"),
    FailureClass("not-answered", "not answered", "the run has no row for the query"),
)


class Band(NamedTuple):
    """Ranks from `first` to `last`; `last` 0 means unbounded."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """The heading: "2–5", "over 100"."""
        return f"{self.first}–{self.last}" if self.last else f"over {self.first - 1}"


BANDS: Final = (Band(2, 5), Band(6, 10), Band(11, 100), Band(101, 0))
"""Bands of the first good moment's rank, for queries that are ranked low."""


@dataclass(frozen=True)
class Diagnosis:
    """The ranks of the right video and the right moment of every query in a run.

    Arrays have a row per query that counts, in the order of `queries`. Ranks are 0-based; `NEVER` if absent.
    """

    queries: Indices
    """(Q,) the truth's indices of the queries."""
    names_moments: bool
    """False for a run of videos, where `good_rank` is the rank of the right video."""
    rows: Indices
    """(Q,) the number of rows, up to the protocol's `list_depth`."""
    video_rank: Indices
    """(Q,) rank of the first row in a right video."""
    level_rank: Indices
    """(Q, L) rank of the first row whose IoU reaches each of `LEVELS`."""
    best_iou: Floats
    """(Q,) best IoU in the list."""

    @cached_property
    def good_rank(self) -> Indices:
        """(Q,) rank of the first good moment; of the first right video if the run names no moments."""
        return self.rank_at(GOOD) if self.names_moments else self.video_rank

    def rank_at(self, level: float) -> Indices:
        """(Q,) rank of the first row whose IoU with a positive reaches one of `LEVELS`."""
        return np.asarray(self.level_rank[:, LEVELS.index(level)])

    @cached_property
    def classes(self) -> Indices:
        """(Q,) index in `CLASSES`."""
        good, video = self.good_rank, self.video_rank
        cases = (
            (self.rows == 0, NOT_ANSWERED),
            (good == 0, GOOD_FIRST),
            ((good < NEVER) & self.names_moments, RANKED_LOW),
            (video == 0, SPAN_WRONG),
            (video < NEVER, VIDEO_LATE),
        )
        conditions, numbers = [case for case, _ in cases], [number for _, number in cases]
        return np.asarray(np.select(conditions, numbers, VIDEO_MISSED), np.int64)

    @cached_property
    def class_counts(self) -> Indices:
        """(6,) queries per class."""
        return np.bincount(self.classes, minlength=len(CLASSES)).astype(np.int64)

    @cached_property
    def band_counts(self) -> Indices:
        """(4,) queries that are ranked low, per band of their first good moment."""
        ranks = self.good_rank[self.classes == RANKED_LOW] + 1
        starts = np.array([band.first for band in BANDS])
        return np.bincount(np.searchsorted(starts, ranks, "right") - 1, minlength=len(BANDS)).astype(np.int64)

    def recall_by_depth(self, depths: Indices, level: float | None = None) -> Floats:
        """(K,) share of queries with a row in a right video, or that reaches `level`, in the first K."""
        ranks = np.sort(self.video_rank if level is None else self.rank_at(level))
        return np.asarray(np.searchsorted(ranks, depths, "left") / max(len(ranks), 1))

    def recall_by_level(self, depth: int) -> Floats:
        """(L,) share of queries with a row among the first `depth` that reaches each of `LEVELS`."""
        return np.asarray((self.level_rank < depth).sum(axis=0) / max(len(self.level_rank), 1))


def diagnose(truth: Truth, source: RunSource, protocol: Protocol) -> Diagnosis:
    """The ranks of the right video and the right moment of every query that counts.

    `truth` has all judgements; the right moments are its `positives`. IoU follows the protocol. The run is
    read once, blockwise.
    """
    positives, count, names_moments = truth.positives(), len(truth.query_ids), False
    lengths, video_rank = np.zeros(count, np.int64), np.full(count, NEVER)
    level_rank, best = np.full((count, len(LEVELS)), NEVER), np.zeros(count)
    for block in source.blocks(moments_task(source)):
        rows = listed(block, positives, protocol)
        queries, listing = rows.queries, Listing(rows, positives, protocol)
        names_moments |= not bool(np.isnan(rows.start).all())
        read = np.minimum(np.diff(block.offsets), protocol.list_depth or NEVER)
        sizes = dict(zip(block.query_ids, read, strict=True))
        lengths[queries] = [sizes[truth.query_ids[query]] for query in queries.tolist()]
        video_rank[queries] = listing.first_right_video
        for column, level in enumerate(LEVELS):
            level_rank[queries, column] = listing.first_hit(level)
        np.maximum.at(best, queries[rows.query], listing.best)
    counted = np.flatnonzero(truth.counts)
    # An empty run may name moments.
    names_moments = names_moments or not lengths[counted].any()
    ranks = (video_rank[counted], level_rank[counted])
    return Diagnosis(counted, names_moments, lengths[counted], *ranks, best[counted])


def moments_task(source: RunSource) -> Task:
    """The list of a run to diagnose: moments of the corpus, else its first list."""
    return "VCMR" if "VCMR" in source.tasks else source.tasks[0]


def listed(block: RunBlock, truth: Truth, protocol: Protocol) -> Rows:
    """The rows of a block that the protocol's metrics of moments read."""
    return inside_pools(rows_of(block, truth), truth).upto(protocol.list_depth)
