"""Turns a corpus's answers to many queries into a run, which can be evaluated or choose videos for a system.

`whenabouts search --queries` loads this module through the entry point `runs` of `whenabouts.query_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from whenabouts.index.records import VideoNames, VideoRecord
from whenabouts.search.search_result import SearchResult
from whenabouts.types import Query, UsageError, Video
from whenabouts_bench import formats
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.jsonl import files_of
from whenabouts_bench.formats.queries import read_queries
from whenabouts_bench.formats.runs import RANKED_CORPUS, RunBlock, Task

__all__ = ["CorpusRun", "files_of", "names_of", "read_queries", "run_of", "write_run"]

QUERIES_AT_ONCE = 64
"""Queries whose answers are held in memory at a time."""


@dataclass(frozen=True, eq=False)
class CorpusRun:
    """The answers to `queries`, computed while they are read; a `formats.runs.RunSource`.

    `ask` answers one sentence. `called` maps ids of the corpus's videos to their ids in the judgements; other
    videos keep their ids. A query's `confidence` is that of its first moment; NaN if it has no moment or the
    moment has no confidence.
    """

    name: str
    queries: Sequence[Query]
    ask: Callable[[str], SearchResult]
    called: Mapping[str, str] = field(default_factory=dict)
    tasks: tuple[Task, ...] = ("VCMR",)
    answered: Mapping[Task, Task] = field(default_factory=lambda: RANKED_CORPUS)

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        for first in range(0, len(self.queries), QUERIES_AT_ONCE):
            yield self._block(self.queries[first : first + QUERIES_AT_ONCE])

    def _block(self, queries: Sequence[Query]) -> RunBlock:
        answers = [self.ask(query.text).moments for query in queries]
        scored = [moment for moments in answers for moment in moments]
        ids = [self.called.get(row.moment.video_id, row.moment.video_id) for row in scored]
        names = tuple(dict.fromkeys(ids))
        code = {name: number for number, name in enumerate(names)}
        confidence = [moments[0].confidence if moments else None for moments in answers]
        return RunBlock(
            query_ids=tuple(query.id for query in queries),
            offsets=np.cumsum([0, *map(len, answers)], dtype=np.int64),
            video_ids=names,
            video=np.array([code[name] for name in ids], np.int32),
            start=np.array([row.moment.start for row in scored], np.float64),
            end=np.array([row.moment.end for row in scored], np.float64),
            score=np.array([row.score for row in scored], np.float64),
            confidence=np.array(confidence, np.float64),
        )


def run_of(
    queries: Annotations, ask: Callable[[str], SearchResult], records: Sequence[VideoRecord], place: str
) -> CorpusRun:
    """The run of `queries` on a corpus at `place` with the videos `records`; raises as `names_of`."""
    return CorpusRun(queries.name, queries.queries, ask, names_of(records, queries.videos, place))


def write_run(run: CorpusRun, path: str | Path, queries: Annotations) -> None:
    """Write a run as JSON lines, with the texts of `queries`."""
    formats.write_run(run, path, "jsonl", queries)


def names_of(records: Iterable[VideoRecord], videos: Sequence[Video], place: str) -> dict[str, str]:
    """Id in a corpus -> id in judgements, for the videos that both have.

    Videos are matched by name (`VideoNames`). Raises UsageError if a video of the judgements fits several of
    the corpus, and if two fit the same one.
    """
    names = VideoNames((record.video_id, record.path) for record in records)
    called: dict[str, str] = {}
    for video in videos:
        fitting = names.fitting(video.id)
        if len(fitting) > 1:
            several = ", ".join(fitting[:5])
            raise UsageError(f"{video.id!r} fits {len(fitting)} videos of {place}: {several}; use their ids")
        for name in fitting:
            if name in called:
                raise UsageError(f"{called[name]!r} and {video.id!r} are both {name!r} in {place}; keep one")
            called[name] = video.id
    return called
