"""Runs: the answers of a system to queries, read and written in blocks of bounded size."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol, cast, get_args

import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.files import FormatError, Losses
from whenabouts.types import Moment, Run, ScoredMoment, UsageError
from whenabouts_bench.formats.annotations import Floats, Indices

_log = logging.getLogger("whenabouts")

Task = Literal["VCMR", "SVMR", "VR"]
"""A list of a run: moments of the corpus, moments of the given video, or videos."""


RunRow = tuple[str, float, float, float]
"""video id, start, end (NaN without a moment), score"""

NO_TIMES = "videos without a moment are written with the times 0 and 0: they keep their rank"
"""Logged by formats whose rows must have times."""

BLOCK_ROWS = 250_000
"""The size of blocks: about 30 MB while reading."""


@dataclass(frozen=True)
class RunBlock:
    """The answers to some queries, a part of a run.

    Query i has rows offsets[i] .. offsets[i + 1], best first. `video` indexes `video_ids`; rows that name a
    video without moment have start and end NaN. `video`, `start`, `end`, `score` are (N,). `confidence` (Q,),
    if any, is that of each query's first answer, in [0, 1], or NaN.
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
    """A run that can be read block by block, more than once; files are read on demand."""

    @property
    def name(self) -> str:
        """The name in tables and errors: the file's path."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The lists it holds: of a single list, ("VCMR",) or, without moments, ("VR",)."""

    @property
    def answered(self) -> Mapping[Task, Task] | None:
        """Task -> the list that answers it; None if the run does not say which task it answers.

        A system that ranks moments and has no list of videos answers VR with its moments, too.
        """

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The answers of one list. Queries are distinct; rows of a query are sorted best first."""


RANKED_CORPUS: Mapping[Task, Task] = MappingProxyType({"VCMR": "VCMR", "VR": "VCMR"})
"""The tasks of a ranking of a corpus's moments, which ranks videos by their best moment, too."""


UNSAID: Mapping[Task, Task] = MappingProxyType({})
"""The `own_answered` of a run in memory that does not say which task it answers."""


def own_lists(tasks: Iterable[Task]) -> Mapping[Task, Task]:
    """Task -> list, if each list answers its own task."""
    return {task: task for task in tasks}


def answered_by(source: RunSource, given: Mapping[str, str]) -> Mapping[Task, Task]:
    """Task -> the list that answers it: as the run says, or else inferred from its moments.

    `given` is the true video of each query. A run that does not say has ranked a corpus if a moment is
    outside its query's video; otherwise the videos were given. If both are possible (one video for all
    queries, or one moment per query), it answers both.
    """
    if source.answered is not None:
        return source.answered
    if source.tasks != ("VCMR",):
        return own_lists(source.tasks)
    most_rows = 0
    for block in source.blocks():
        codes = {video_id: code for code, video_id in enumerate(block.video_ids)}
        true = np.array([codes.get(given.get(query_id, ""), -1) for query_id in block.query_ids], np.int64)
        judged = np.array([query_id in given for query_id in block.query_ids], bool)
        query = query_of_rows(block)
        if (judged[query] & (block.video != true[query])).any():
            return RANKED_CORPUS
        most_rows = max(most_rows, int(np.diff(block.offsets)[judged].max(initial=0)))
    if most_rows > 1 and len(set(given.values())) > 1:
        return {"SVMR": "VCMR"}
    return {**RANKED_CORPUS, "SVMR": "VCMR"}


class CountedRun:
    """A run that counts the queries, rows and confidences that are read from it."""

    def __init__(self, source: RunSource) -> None:
        self._source = source
        self.name = source.name
        self.tasks = source.tasks
        self.answered = source.answered
        self._counts: dict[Task, tuple[int, int, int]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        queries = rows = sure = 0
        for block in self._source.blocks(task):
            queries, rows = queries + len(block), rows + len(block.video)
            sure += 0 if block.confidence is None else int(np.isfinite(block.confidence).sum())
            yield block
        self._counts[task] = (queries, rows, sure)

    def total(self) -> tuple[int, int, int]:
        """(queries, rows, confidences) of the first list that was read."""
        return next(iter(self._counts.values()), (0, 0, 0))


def saliency_of(source: RunSource) -> Mapping[str, Floats]:
    """Query id -> predicted saliency of each clip (T,); empty if the run has none."""
    saliency = getattr(source, "saliency", None)
    return {} if saliency is None else cast(Mapping[str, Floats], saliency())


def check_task(source: RunSource, task: Task) -> None:
    """Raise UsageError if a run does not hold a list."""
    if task not in source.tasks:
        raise UsageError(f"{source.name} holds {', '.join(source.tasks)}, not {task}")


@dataclass
class FileRun:
    """A run of one list in a file, read on demand; rows sorted by score, then moment.

    `read` returns blocks in the order of the file, and raises FormatError. If `entries` names the rows, the
    number of queries whose scores contradict the order is logged once. `ties` says how another program orders
    equal scores; it is logged once, with the number of queries that have any.
    """

    path: Path
    name: str
    tasks: tuple[Task, ...]
    read: Callable[[Path], Iterator[RunBlock]]
    entries: str = ""
    answered: Mapping[Task, Task] | None = None
    ties: str = ""
    _is_logged: bool = field(default=False, init=False)

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The answers in blocks. Raises UsageError if the run does not hold the list `task`."""
        check_task(self, task)
        contradicting, tied = 0, 0
        for block in self.read(self.path):
            contradicting += count_rising(block)
            ordered = best_first(block)
            tied += count_tied(ordered) if self.ties else 0
            yield ordered
        if self._is_logged:
            return
        self._is_logged = True
        if contradicting and self.entries:
            message = "%s: the scores of %d queries contradict the order of their %s; the scores count"
            _log.warning(message, self.path, contradicting, self.entries)
        if tied:
            message = "%s: %d queries have equal scores, ordered by video, start and end; %s"
            _log.warning(message, self.path, tied, self.ties)


@dataclass(frozen=True)
class MemoryRun:
    """A run in memory."""

    name: str
    lists: Mapping[Task, tuple[RunBlock, ...]]
    own_answered: Mapping[Task, Task] | None = None
    """Task -> list, if lists do not answer their own tasks."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(self.lists)

    @property
    def answered(self) -> Mapping[Task, Task] | None:
        return own_lists(self.tasks) if self.own_answered is None else self.own_answered or None

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        check_task(self, task)
        yield from self.lists[task]

    @classmethod
    def from_run(cls, run: Run, name: str = "run", task: Task = "VCMR") -> MemoryRun:
        """A run made in Python: query id -> scored moments. Sorted by score, then by moment.

        With `task` "SVMR", moments are in each query's given video. Moments of a corpus rank its videos, too.
        """
        return cls(name, {task: (_block_of(run),)}, RANKED_CORPUS if task == "VCMR" else None)


def _block_of(run: Run) -> RunBlock:
    builder = RunBlockBuilder()
    for query_id, moments in run.items():
        for scored in moments:
            if not isinstance(scored, ScoredMoment) or not math.isfinite(scored.score):
                raise UsageError(
                    f"query {query_id!r}: {scored!r}: answers are ScoredMoments with finite scores"
                )
        ordered = [(scored.moment, scored.score) for scored in sorted(moments, key=lambda s: s.sort_key)]
        builder.add(query_id, [(m.video_id, m.start, m.end, score) for m, score in ordered])
    return builder.block()


def best_first(block: RunBlock) -> RunBlock:
    """The rows of each query by descending score, then video id, start and end; no copy if sorted."""
    query = query_of_rows(block)
    neighbours = query[1:] == query[:-1]
    rising = query[1:][neighbours & (block.score[1:] > block.score[:-1])]
    tied = neighbours & (block.score[1:] == block.score[:-1])
    if not len(rising) and not tied.any():
        return block
    # Only rows that may move are sorted: those of equal scores, and queries whose scores rise.
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
    columns = ("video", "start", "end", "score")
    return replace(block, **{name: getattr(block, name)[order] for name in columns})


def moments_of(source: RunSource, task: Task = "VCMR") -> Iterator[tuple[str, list[ScoredMoment]]]:
    """(query id, scored moments), one query at a time; empty spans are left out."""
    for block in source.blocks(task):
        for query_id, rows in rows_of(block):
            yield query_id, [ScoredMoment(Moment(v, s, e), score) for v, s, e, score in rows if s < e]


class RunBlockBuilder:
    """Collects rows in Python, for small files."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._offsets = [0]
        self._codes: dict[str, int] = {}
        self._video: list[int] = []
        self._numbers: list[tuple[float, float, float]] = []

    def __len__(self) -> int:
        return len(self._video)

    def add(self, query_id: str, rows: Iterable[RunRow]) -> None:
        """Add the answers to a query."""
        for video_id, start, end, score in rows:
            self._video.append(self._codes.setdefault(video_id, len(self._codes)))
            self._numbers.append((start, end, score))
        self._ids.append(query_id)
        self._offsets.append(len(self._video))

    def block(self) -> RunBlock:
        """The rows added since the last call."""
        numbers = np.array(self._numbers, np.float64).reshape(-1, 3)
        times = (np.ascontiguousarray(numbers[:, column]) for column in range(3))
        offsets, video = np.array(self._offsets, np.int64), np.array(self._video, np.int32)
        block = RunBlock(tuple(self._ids), offsets, tuple(self._codes), video, *times)
        self.__init__()  # type: ignore[misc]
        return block


def query_of_rows(block: RunBlock) -> Indices:
    """(N,) query index of each row."""
    return np.repeat(np.arange(len(block)), np.diff(block.offsets))


def rows_of(block: RunBlock, no_time: float = np.nan) -> Iterator[tuple[str, list[RunRow]]]:
    """(query id, rows) of each query; `no_time` replaces missing times."""
    times = (np.where(np.isnan(column), no_time, column) for column in (block.start, block.end))
    start, end, score = (column.tolist() for column in (*times, block.score))
    rows = list(zip((block.video_ids[code] for code in block.video.tolist()), start, end, score, strict=True))
    offsets = block.offsets.tolist()
    for number, query_id in enumerate(block.query_ids):
        yield query_id, rows[offsets[number] : offsets[number + 1]]


def count_rising(block: RunBlock) -> int:
    """The number of queries whose scores contradict the order of the rows."""
    query = query_of_rows(block)
    rising = (block.score[1:] > block.score[:-1]) & (query[1:] == query[:-1])
    return len(np.unique(query[1:][rising]))


def count_tied(block: RunBlock) -> int:
    """The number of queries with equal scores in float32, as trec_eval holds them; rows are best first."""
    query = query_of_rows(block)
    with np.errstate(over="ignore"):
        score = block.score.astype(np.float32)
    return len(np.unique(query[1:][(score[1:] == score[:-1]) & (query[1:] == query[:-1])]))


def falling_scores(counts: Indices) -> Floats:
    """Scores n, n-1, .. 1 for lists of these lengths, for formats without scores."""
    ends = np.cumsum(counts)
    return np.asarray(np.repeat(ends, counts) - np.arange(int(counts.sum())), np.float64)


def refuse_empty(path: Path, answered: bool) -> None:
    """Raise FormatError if a run has no answers."""
    if not answered:
        raise FormatError(path, "holds no answers", accepted="a run with at least one query")


_REPLACED = "they are written with the scores n .. 1"


def in_order_of_scores(block: RunBlock, losses: Losses) -> RunBlock:
    """The rows with scores that reproduce their order when sorted by score, then moment.

    Queries whose scores contradict the order, or tie against the order of their moments, get the scores n ..
    1.
    """
    ranked = best_first(block)
    if ranked is block:
        return block
    moved = (ranked.video != block.video) | (ranked.score != block.score)
    for old, new in ((block.start, ranked.start), (block.end, ranked.end)):
        moved |= (old != new) & ~(np.isnan(old) & np.isnan(new))
    query = query_of_rows(block)
    queries = np.unique(query[moved])
    if not len(queries):
        return block
    against = count_rising(block)
    losses.count(f"queries had scores that contradict their order; {_REPLACED}", against)
    losses.count(f"queries had equal scores that leave their order open; {_REPLACED}", len(queries) - against)
    again = np.isin(query, queries)
    return replace(block, score=np.where(again, falling_scores(np.diff(block.offsets)), block.score))


def without_empty_spans(block: RunBlock, losses: Losses) -> RunBlock:
    """The block with the times of empty spans set to NaN; such rows keep their video and rank."""
    empty = block.start >= block.end
    count = int(empty.sum())
    if not count:
        return block
    losses.count("spans without length are written as videos without a moment: they keep their rank", count)
    return replace(block, start=np.where(empty, np.nan, block.start), end=np.where(empty, np.nan, block.end))


def list_to_write(
    source: RunSource,
    losses: Losses,
    preferred: tuple[Task, ...] = ("VCMR", "SVMR", "VR"),
    says: tuple[Task, ...] = get_args(Task),
) -> tuple[Task, Iterator[RunBlock]]:
    """The first list of `preferred` that the source holds, for formats with one list, and its blocks.

    `says` are the tasks that a file of the format names; another that the list answers is counted as lost.
    """
    task = next(task for task in preferred if task in source.tasks)
    for other in source.tasks:
        if other != task:
            losses.count(f"list left out: {other} (this format holds one list, and {task} is written)")
    for answers, held in (source.answered or {}).items():
        if held == task and answers not in says:
            losses.count(f"task left out: {answers} (this format does not say it, so readers infer it)")
    return task, source.blocks(task)
