"""What was judged and what was answered, as columns: between the readers of files and evaluation."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import Judgement, Moment, Qrels, Query, Run, ScoredMoment, UsageError, Video

_log = logging.getLogger("whenabouts")

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

Task = Literal["VCMR", "SVMR", "VR"]
"""Which list of a run: moments of the corpus, moments of the given video, or videos."""


@dataclass(frozen=True)
class Annotations:
    """Videos, queries and what is true of them: one split of a data set, or one file of judgements.

    Judgement i says that [start[i], end[i]) seconds of `videos[video[i]]` answer `queries[query[i]]` to the
    grade `relevance[i]`. The five columns are (N,), sorted by query and within a query as the file has them.
    A judgement without a usable moment has start == end: the video is right, and no span can hit it.

    `pools` are the videos to search for a query, where the data set says so (MVMR). `counts` says how often
    each rule for odd data applied (see `Collector`).
    """

    name: str
    videos: tuple[Video, ...]
    queries: tuple[Query, ...]
    query: Indices
    video: Indices
    start: Floats
    end: Floats
    relevance: Floats
    pools: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def qrels(self) -> Qrels:
        """Query id -> judgements, those without a usable moment left out."""
        judged: dict[str, list[Judgement]] = {query.id: [] for query in self.queries}
        for query, video, start, end, relevance in judgement_rows(self):
            if start < end:
                moment = Moment(self.videos[video].id, start, end)
                judged[self.queries[query].id].append(Judgement(moment, relevance))
        return judged

    @classmethod
    def from_qrels(cls, qrels: Qrels, name: str = "qrels") -> Annotations:
        """Annotations that hold nothing but judgements made in Python."""
        collector = Collector(name)
        for query_id, judgements in qrels.items():
            collector.add_query(query_id)
            for judgement in judgements:
                if not isinstance(judgement, Judgement):
                    raise UsageError(
                        f"query {query_id!r}: {judgement!r}: judgements are Judgements of Moments"
                    )
                moment = judgement.moment
                collector.judge(query_id, moment.video_id, moment.start, moment.end, judgement.relevance)
        return collector.annotations()


class Collector:
    """Gathers annotations as a file is read, and keeps the rules for odd data in one place.

    - A moment that ends after its video is cut there, where the video's duration is known and `cut` is
      true; with `cut` false its times stay as they are (a released evaluation may compare with raw times).
    - A moment that starts before 0 starts at 0.
    - A moment that is empty or reversed (also after cutting) keeps its video and loses its span.
    - A query id that comes a second time with another text is left out; the first one stays.
    - A video that comes again in a pool counts once, where it comes first.
    - A judgement that repeats one of the same query, word for word, stays: two descriptions may have been
      given of one moment, and the released evaluations of ranked moments count each.

    Every rule that applied is counted, logged once by `annotations`, and kept in `Annotations.counts`.
    """

    CUT = "moments end after their video"
    EARLY = "moments start before 0"
    EMPTY = "moments have no length"
    REVERSED = "moments end before they start"
    REPEATED_QUERY = "query ids come twice"
    REPEATED_JUDGEMENT = "judgements come twice"
    REPEATED_IN_POOL = "videos come twice in a pool"

    def __init__(self, name: str, *, cut: bool = True) -> None:
        self.name = name
        self._cut = cut
        self._videos: dict[str, Video] = {}
        self._queries: dict[str, Query] = {}
        self._video_codes: dict[str, int] = {}
        self._query_codes: dict[str, int] = {}
        self._rows: list[tuple[int, int, float, float, float]] = []
        self._seen: set[tuple[int, int, float, float, float]] = set()
        self._pools: dict[str, tuple[str, ...]] = {}
        self._counts: dict[str, int] = {}

    def count(self, what: str, times: int = 1) -> None:
        """Note that a rule for odd data applied."""
        self._counts[what] = self._counts.get(what, 0) + times

    def add_video(self, /, video_id: str, duration: float | None = None, **metadata: Any) -> None:
        """A video of the collection; saying it again with a duration or more metadata completes it."""
        known = self._videos.get(video_id)
        if known is not None:
            if duration is None and not metadata:
                return
            duration = known.duration if duration is None else duration
            metadata = {**known.metadata, **metadata}
        self._video_codes.setdefault(video_id, len(self._video_codes))
        self._videos[video_id] = Video(video_id, duration, metadata=MappingProxyType(metadata))

    def add_query(self, /, query_id: str, text: str = "", **metadata: Any) -> bool:
        """A query; False when its id is taken by another text, and then its judgements must not be added."""
        known = self._queries.get(query_id)
        if known is None:
            self._query_codes[query_id] = len(self._query_codes)
            self._queries[query_id] = Query(query_id, text, MappingProxyType(metadata))
        elif text and known.text != text:
            self.count(self.REPEATED_QUERY)
            return False
        return True

    def judge(self, query_id: str, video_id: str, start: float, end: float, relevance: float = 1.0) -> None:
        """A judgement of a query that was added; the rules of the class apply to its times (seconds)."""
        if not (math.isfinite(start) and math.isfinite(end) and math.isfinite(relevance)):
            raise UsageError(
                f"{self.name}: query {query_id!r}: {start!r}-{end!r}, relevance {relevance!r}: must be finite"
            )
        self.add_video(video_id)
        start, end = self._usable(video_id, start, end)
        row = (self._query_codes[query_id], self._video_codes[video_id], start, end, relevance)
        if row in self._seen:
            self.count(self.REPEATED_JUDGEMENT)
        self._seen.add(row)
        self._rows.append(row)

    def _usable(self, video_id: str, start: float, end: float) -> tuple[float, float]:
        duration = self._videos[video_id].duration
        if start > end:
            self.count(self.REVERSED)
            return start, start
        if start == end:
            self.count(self.EMPTY)
            return start, start
        if start < 0:
            self.count(self.EARLY)
            start = 0.0
        if duration is not None and end > duration:
            self.count(self.CUT)
            end = duration if self._cut else end
        if start >= end:
            self.count(self.EMPTY)
            return start, start
        return start, end

    def set_pool(self, query_id: str, video_ids: Sequence[str]) -> None:
        """The videos among which a query is to be answered; one that comes again counts once."""
        once = tuple(dict.fromkeys(video_ids))
        for video_id in once:
            self.add_video(video_id)
        if len(once) < len(video_ids):
            self.count(self.REPEATED_IN_POOL, len(video_ids) - len(once))
        self._pools[query_id] = once

    def annotations(self) -> Annotations:
        """All that was gathered; says in the log which rules applied, and how often."""
        for what, times in self._counts.items():
            _log.info("%s: %d %s", self.name, times, what)
        rows = np.array(self._rows, np.float64).reshape(-1, 5)
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return Annotations(
            name=self.name,
            videos=tuple(self._videos.values()),
            queries=tuple(self._queries.values()),
            query=rows[:, 0].astype(np.int64),
            video=rows[:, 1].astype(np.int64),
            start=np.ascontiguousarray(rows[:, 2]),
            end=np.ascontiguousarray(rows[:, 3]),
            relevance=np.ascontiguousarray(rows[:, 4]),
            pools=MappingProxyType(self._pools),
            counts=MappingProxyType(self._counts),
        )


def judgement_rows(annotations: Annotations) -> Iterator[tuple[int, int, float, float, float]]:
    """(number of the query, number of the video, start, end, relevance) of each judgement, in their order."""
    columns = (
        annotations.query,
        annotations.video,
        annotations.start,
        annotations.end,
        annotations.relevance,
    )
    return zip(*(column.tolist() for column in columns), strict=True)


@dataclass(frozen=True)
class RunBlock:
    """The answers to some queries: a run is read in such blocks, so that its size does not matter.

    Query i has rows offsets[i] .. offsets[i + 1], best first. `video` indexes `video_ids`; rows that name
    a video and no moment have start and end NaN. `video`, `start`, `end`, `score` are (N,).

    `confidence` (Q,), where a system tells it, is how sure each query's first answer is, in [0, 1]; NaN
    where it is not told.
    """

    query_ids: tuple[str, ...]
    offsets: Indices
    video_ids: tuple[str, ...]
    video: NDArray[np.int32]
    start: Floats
    end: Floats
    score: Floats
    confidence: Floats | None = None

    def __len__(self) -> int:
        return len(self.query_ids)


class RunSource(Protocol):
    """A run that can be read block by block, more than once; nothing is read before it is asked for."""

    @property
    def name(self) -> str:
        """What to call it in tables and errors: the file's path."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The lists it holds. A run of one list holds ("VCMR",) or, without moments, ("VR",)."""

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The answers of one list. No query comes twice; rows of a query lie best first."""


@dataclass(frozen=True)
class MemoryRun:
    """A run whose blocks are at hand."""

    name: str
    lists: Mapping[Task, tuple[RunBlock, ...]]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The lists it holds."""
        return tuple(self.lists)

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The answers of one list."""
        yield from self.lists[task]

    @classmethod
    def from_run(cls, run: Run, name: str = "run") -> MemoryRun:
        """A run made in Python: query id -> scored moments. Sorted by score, then by moment."""
        return cls(name, {"VCMR": (_block_of(run),)})


def _block_of(run: Run) -> RunBlock:
    codes: dict[str, int] = {}
    ordered: list[ScoredMoment] = []
    offsets = [0]
    for query_id, moments in run.items():
        for scored in moments:
            if not isinstance(scored, ScoredMoment) or not math.isfinite(scored.score):
                raise UsageError(
                    f"query {query_id!r}: {scored!r}: answers are ScoredMoments with finite scores"
                )
        ordered.extend(sorted(moments, key=lambda scored: scored.sort_key))
        offsets.append(len(ordered))
    return RunBlock(
        query_ids=tuple(run),
        offsets=np.array(offsets, np.int64),
        video=np.array([codes.setdefault(m.moment.video_id, len(codes)) for m in ordered], np.int32),
        video_ids=tuple(codes),
        start=np.array([m.moment.start for m in ordered], np.float64),
        end=np.array([m.moment.end for m in ordered], np.float64),
        score=np.array([m.score for m in ordered], np.float64),
    )


def best_first(block: RunBlock) -> RunBlock:
    """The same rows, sorted within each query by score descending, then video id, start and end.

    Rows already in that order are returned as they are, without a copy.
    """
    query = np.repeat(np.arange(len(block)), np.diff(block.offsets))
    beside = query[1:] == query[:-1]
    rising = query[1:][beside & (block.score[1:] > block.score[:-1])]
    tied = beside & (block.score[1:] == block.score[:-1])
    if not len(rising) and not tied.any():
        return block
    # Only what may move is sorted: rows of equal scores, and whole queries whose scores rise somewhere.
    moving = np.append(tied, False) | np.insert(tied, 0, False)
    moving |= np.isin(query, np.unique(rising)) if len(rising) else False
    rows = np.flatnonzero(moving)
    codes, video = np.unique(block.video[rows], return_inverse=True)
    names = [block.video_ids[code] for code in codes.tolist()]
    rank_of_id = np.empty(len(names), np.int64)
    rank_of_id[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    keys = (block.end[rows], block.start[rows], rank_of_id[video], -block.score[rows], query[rows])
    order = np.arange(len(query))
    order[rows] = rows[np.lexsort(keys)]
    return RunBlock(
        block.query_ids,
        block.offsets,
        block.video_ids,
        block.video[order],
        block.start[order],
        block.end[order],
        block.score[order],
        block.confidence,
    )


def moments_of(source: RunSource, task: Task = "VCMR") -> Iterator[tuple[str, list[ScoredMoment]]]:
    """(query id, scored moments), one query at a time; spans without length are left out."""
    for block in source.blocks(task):
        video, start, end, score = (c.tolist() for c in (block.video, block.start, block.end, block.score))
        for number, query_id in enumerate(block.query_ids):
            rows = range(int(block.offsets[number]), int(block.offsets[number + 1]))
            yield (
                query_id,
                [
                    ScoredMoment(Moment(block.video_ids[video[r]], start[r], end[r]), score[r])
                    for r in rows
                    if start[r] < end[r]
                ],
            )
