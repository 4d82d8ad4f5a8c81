"""A split of a data set, encoded and ranked in one call: what validation and `whenabouts run` do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from whenabouts.formats.annotations import Annotations
from whenabouts.formats.runs import MemoryRun, RunBlock, Task
from whenabouts.models.decoding import Decoding
from whenabouts.models.protocol import ClipBatch, QueryBatch
from whenabouts.ranking.corpus import CorpusEncoding, Progress, encode_corpus
from whenabouts.ranking.rank import Queries, Ranker, System
from whenabouts.types import Query, Video

Indices = NDArray[np.int64]


class Split(Protocol):
    """Queries and videos as a model reads them: `training.data.Examples` is one."""

    @property
    def name(self) -> str:
        """What to call it."""

    @property
    def annotations(self) -> Annotations:
        """What is known of it: the given video of each query, and pools."""

    @property
    def queries(self) -> Sequence[Query]:
        """The queries, in their order."""

    @property
    def videos(self) -> Sequence[Video]:
        """The corpus."""

    @property
    def clips(self) -> Indices:
        """(V,) clips of each video for the model."""

    @property
    def clip_seconds(self) -> NDArray[np.float64]:
        """(V,) how long they are."""

    @property
    def durations(self) -> NDArray[np.float64]:
        """(V,) seconds."""

    def query_batch(self, rows: Indices) -> QueryBatch:
        """Some of the queries."""

    def video_batch(self, rows: Indices) -> ClipBatch:
        """Some of the videos."""


class Answering(Protocol):
    """What answers queries: a `Ranker`, or a `refining.SegmentRanker`."""

    def answers(
        self,
        query_ids: Sequence[str],
        queries: Queries,
        tasks: Collection[Task],
        *,
        given: Mapping[str, str] | None = None,
        pools: Mapping[str, Sequence[str]] | None = None,
        retrieval_queries: Queries | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Mapping[Task, RunBlock]]:
        """The lists of some tasks, for some queries at a time."""


AnyRanker = TypeVar("AnyRanker", bound=Answering, covariant=True)


@dataclass(frozen=True)
class SplitRun(Generic[AnyRanker]):
    """The answers of a ranker to a split, made as they are read: a run of any size.

    `retrieval_split` has the queries as the retriever reads them, where there is one.
    """

    ranker: AnyRanker
    split: Split
    tasks: tuple[Task, ...]
    retrieval_split: Split | None = None
    progress: Progress | None = None

    @property
    def name(self) -> str:
        """What to call it."""
        return self.split.name

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The answers of one list."""
        for lists in self.answers((task,)):
            yield lists[task]

    def answers(self, tasks: Collection[Task]) -> Iterator[Mapping[Task, RunBlock]]:
        """The answers of several lists, for some queries at a time."""
        split = self.split
        return self.ranker.answers(
            [query.id for query in split.queries],
            split.query_batch,
            tasks,
            given=given_videos(split.annotations),
            pools=split.annotations.pools or None,
            retrieval_queries=None if self.retrieval_split is None else self.retrieval_split.query_batch,
            progress=self.progress,
        )

    def in_memory(self) -> MemoryRun:
        """All lists, the corpus gone through once."""
        lists: dict[Task, list[RunBlock]] = {task: [] for task in self.tasks}
        for answers in self.answers(self.tasks):
            for task, block in answers.items():
                lists[task].append(block)
        return MemoryRun(self.name, {task: tuple(blocks) for task, blocks in lists.items()})


def encode_split(
    trained: System,
    split: Split,
    *,
    folder: str | Path | None = None,
    batch_videos: int | None = None,
    progress: Progress | None = None,
) -> CorpusEncoding:
    """The videos of a split, encoded; in a `folder` where they are too many for memory."""
    return encode_corpus(
        trained.model,
        split.video_batch,
        [video.id for video in split.videos],
        clips=split.clips,
        clip_seconds=split.clip_seconds,
        durations=split.durations,
        folder=folder,
        batch_videos=batch_videos,
        progress=progress,
    )


def rank_split(
    trained: System,
    split: Split,
    tasks: Collection[Task] | None = None,
    *,
    decoding: Decoding | None = None,
    corpus: CorpusEncoding | None = None,
    progress: Progress | None = None,
) -> MemoryRun:
    """The answers to all queries of a split, in memory; `tasks` None is all that the system can do.

    `decoding` is used in place of the system's own, `corpus` in place of encoding the videos again.
    """
    encoded = corpus if corpus is not None else encode_split(trained, split)
    ranker = Ranker(trained, encoded, decoding=decoding)
    wanted = ranker.tasks if tasks is None else tuple(tasks)
    return SplitRun(ranker, split, wanted, progress=progress).in_memory()


def given_videos(annotations: Annotations) -> Mapping[str, str]:
    """Query id -> the video of its first judgement with a grade above 0: the one given in SVMR."""
    good = annotations.relevance > 0
    first: dict[str, str] = {}
    for query, video in zip(annotations.query[good].tolist(), annotations.video[good].tolist(), strict=True):
        first.setdefault(annotations.queries[query].id, annotations.videos[video].id)
    return first
