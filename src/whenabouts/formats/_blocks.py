"""Blocks of a run: put together from rows, and made fit to be written."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from whenabouts.formats.columns import Floats, Indices, RunBlock, RunSource, Task, best_first
from whenabouts.formats.opened import FormatError

_log = logging.getLogger("whenabouts")

Row = tuple[str, float, float, float]
"""video id, start, end (NaN where there is no moment), score"""

BLOCK_ROWS = 250_000
"""Rows after which a block is handed over: some 30 MB while it is read."""

NO_TIMES = "videos without a moment are written with the times 0 and 0: they keep their rank"
"""What is told by formats in which a row must have times."""


class BlockBuilder:
    """Gathers rows in Python; for files that are small, and for what a faster reader refuses."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._offsets = [0]
        self._codes: dict[str, int] = {}
        self._video: list[int] = []
        self._numbers: list[tuple[float, float, float]] = []

    def __len__(self) -> int:
        return len(self._video)

    def add(self, query_id: str, rows: Iterable[Row]) -> None:
        """The answers to a query."""
        for video_id, start, end, score in rows:
            self._video.append(self._codes.setdefault(video_id, len(self._codes)))
            self._numbers.append((start, end, score))
        self._ids.append(query_id)
        self._offsets.append(len(self._video))

    def block(self) -> RunBlock:
        """All rows that were added since the last time; starts afresh."""
        numbers = np.array(self._numbers, np.float64).reshape(-1, 3)
        start, end, score = (np.ascontiguousarray(numbers[:, column]) for column in range(3))
        block = RunBlock(
            query_ids=tuple(self._ids),
            offsets=np.array(self._offsets, np.int64),
            video_ids=tuple(self._codes),
            video=np.array(self._video, np.int32),
            start=start,
            end=end,
            score=score,
        )
        self.__init__()  # type: ignore[misc]
        return block


def query_of_rows(block: RunBlock) -> Indices:
    """(N,) number of the query of each row."""
    return np.repeat(np.arange(len(block)), np.diff(block.offsets))


def rows_of(block: RunBlock, no_time: float = np.nan) -> Iterator[tuple[str, list[Row]]]:
    """(query id, rows) of each query; `no_time` stands for the times of a video without moment."""
    times = (np.nan_to_num(column, nan=no_time) for column in (block.start, block.end))
    start, end, score = (column.tolist() for column in (*times, block.score))
    rows = list(zip((block.video_ids[code] for code in block.video.tolist()), start, end, score, strict=True))
    offsets = block.offsets.tolist()
    for number, query_id in enumerate(block.query_ids):
        yield query_id, rows[offsets[number] : offsets[number + 1]]


def rises(block: RunBlock) -> int:
    """Of how many queries the scores contradict the order of the rows."""
    query = query_of_rows(block)
    rising = (block.score[1:] > block.score[:-1]) & (query[1:] == query[:-1])
    return len(np.unique(query[1:][rising]))


def falling(counts: Indices) -> Floats:
    """Scores n, n-1, .. 1 for lists of the given lengths: for formats in which the order alone counts."""
    ends = np.cumsum(counts)
    return np.asarray(np.repeat(ends, counts) - np.arange(int(counts.sum())), np.float64)


@dataclass
class Losses:
    """What a format cannot say of a run or of judgements; told in the log once a file is written."""

    path: Path
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, times: int = 1) -> None:
        """Note that something was lost `times` times."""
        if times:
            self.counts[what] = self.counts.get(what, 0) + times

    def tell(self) -> None:
        """Say it in the log."""
        for what, times in self.counts.items():
            _log.warning("%s: %d %s", self.path, times, what)


def in_order_of_scores(block: RunBlock, losses: Losses) -> RunBlock:
    """The same rows, with scores that give their order back when they are sorted by score, then moment.

    Queries whose scores contradict the order (or tie against it) get the scores n .. 1.
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
    what = "queries had scores that contradict their order; they are written with the scores n .. 1"
    losses.count(what, len(queries))
    again = np.isin(query, queries)
    return replace(block, score=np.where(again, falling(np.diff(block.offsets)), block.score))


def without_empty_spans(block: RunBlock, losses: Losses) -> RunBlock:
    """The same rows; a span without length is none, and its row keeps video and rank."""
    empty = block.start >= block.end
    count = int(empty.sum())
    if not count:
        return block
    losses.count("spans without length are written as videos without a moment: they keep their rank", count)
    return replace(block, start=np.where(empty, np.nan, block.start), end=np.where(empty, np.nan, block.end))


def listed(
    source: RunSource, losses: Losses, wanted: tuple[Task, ...] = ("VCMR", "SVMR", "VR")
) -> tuple[Task, Iterator[RunBlock]]:
    """The one list that is written where a format holds one (the first of `wanted`), and its blocks."""
    task = next(task for task in wanted if task in source.tasks)
    for other in source.tasks:
        if other != task:
            losses.count(f"list left out: {other} (this format holds one list, and {task} is written)")
    return task, source.blocks(task)


def refuse_empty(path: Path, answered: bool) -> None:
    """Raise FormatError for a run that holds no answers."""
    if not answered:
        raise FormatError(path, "holds no answers", accepted="a run with at least one query")
