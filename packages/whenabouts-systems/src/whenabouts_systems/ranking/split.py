"""Encode and rank a split of a data set, also in pools (MVMR), for validations and `whenabouts run`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import Query, UsageError, Video
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.runs import MemoryRun, RunBlock, Task, own_lists
from whenabouts_bench.relevance.units import comparable
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch
from whenabouts_systems.ranking.candidates import RankedVideos
from whenabouts_systems.ranking.encoded_corpus import (
    Indices,
    MemoryCorpus,
    Progress,
    Queries,
    System,
    encode_corpus,
)
from whenabouts_systems.ranking.ranker import Ranker


class Split(Protocol):
    """Queries and videos with a model's batches of them, such as `training.data.Examples`."""

    @property
    def name(self) -> str:
        """The name of the split."""

    @property
    def annotations(self) -> Annotations:
        """The judgements, which give each query's video, and pools."""

    @property
    def queries(self) -> Sequence[Query]:
        """The queries, in order."""

    @property
    def videos(self) -> Sequence[Video]:
        """The videos of the corpus."""

    @property
    def clips(self) -> Indices:
        """(V,) the model's number of clips of each video."""

    @property
    def clip_seconds(self) -> NDArray[np.float64]:
        """(V,) the seconds of these clips."""

    @property
    def durations(self) -> NDArray[np.float64]:
        """(V,) the length of each video in seconds."""

    def query_batch(self, rows: Indices) -> QueryBatch:
        """The given rows of `queries` as a batch."""

    def video_batch(self, rows: Indices) -> ClipBatch:
        """The given rows of `videos` as a batch."""


@dataclass(frozen=True)
class SplitRun:
    """A ranker's answers to a split, computed while they are read, so a run may be larger than memory.

    `retrieval_split` gives the retriever's batches of the queries, if there is a retriever. `queries` are the
    numbers of the queries to answer (None: all).
    """

    ranker: Ranker
    split: Split
    tasks: tuple[Task, ...]
    retrieval_split: Split | None = None
    progress: Progress | None = None
    queries: range | None = None

    @property
    def name(self) -> str:
        """The name of the split."""
        return self.split.name

    @property
    def answered(self) -> Mapping[Task, Task]:
        """Task -> the task whose list answers it: each its own."""
        return own_lists(self.tasks)

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The list of one task, block by block."""
        for lists in self.answers((task,)):
            yield lists[task]

    def answers(self, tasks: Collection[Task]) -> Iterator[Mapping[Task, RunBlock]]:
        """The lists of several tasks, block by block."""
        split, retrieval = self.split, self.retrieval_split
        numbers = range(len(split.queries)) if self.queries is None else self.queries
        return self.ranker.answers(
            [split.queries[number].id for number in numbers],
            _from(split, numbers.start),
            tasks,
            given=split.annotations.given_videos,
            pools=split.annotations.search_pools or None,
            retrieval_queries=None if retrieval is None else _from(retrieval, numbers.start),
            progress=self.progress,
        )

    def in_memory(self) -> MemoryRun:
        """All lists, computed in one pass over the corpus."""
        lists: dict[Task, list[RunBlock]] = {task: [] for task in self.tasks}
        for answers in self.answers(self.tasks):
            for task, block in answers.items():
                lists[task].append(block)
        return MemoryRun(self.name, {task: tuple(blocks) for task, blocks in lists.items()})


def _from(split: Split, first: int) -> Queries:
    """The batches of a split's queries, numbered from query `first` on."""
    return lambda rows: split.query_batch(rows + first)


def encode_split(
    trained: System,
    split: Split,
    *,
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> MemoryCorpus:
    """The encoded videos of a split, in memory or in a `folder`."""
    return encode_corpus(
        trained.model,
        split.video_batch,
        [video.id for video in split.videos],
        clips=split.clips,
        clip_seconds=split.clip_seconds,
        durations=split.durations,
        folder=folder,
        progress=progress,
    )


def rank_split(
    trained: System,
    split: Split,
    tasks: Collection[Task] | None = None,
    *,
    decoding: Decoding | None = None,
    corpus: MemoryCorpus | None = None,
    queries: range | None = None,
    retriever: RankedVideos | None = None,
) -> MemoryRun:
    """The answers to the queries of a split, in memory; `tasks` None means all that the system can do.

    `decoding` replaces the system's own, `corpus` are the videos if already encoded, and `retriever` chooses
    the videos. `queries` are the numbers of the queries to answer (None: all).
    """
    encoded = corpus if corpus is not None else encode_split(trained, split)
    ranker = Ranker(trained, encoded, decoding=decoding, retriever=retriever)
    lists = ranker.tasks if tasks is None else tuple(tasks)
    return SplitRun(ranker, split, lists, queries=queries).in_memory()


def joined_runs(parts: Sequence[MemoryRun]) -> MemoryRun:
    """One run of several over parts of a split's queries, in order."""
    first = parts[0]
    tasks = {task: tuple(block for part in parts for block in part.lists[task]) for task in first.lists}
    return MemoryRun(first.name, tasks)


def given_videos(annotations: Annotations) -> Mapping[str, str]:
    """Query id -> its given video in SVMR: that of its first judgement with a relevance above 0."""
    return annotations.where(annotations.relevance > 0).first_videos


@dataclass(frozen=True)
class PooledSplit:
    """The queries of a split that have a pool in a file, under the file's ids; the rest is the split's.

    `rows` (Q,) are the split's numbers of `queries`. Queries of the file without a pool are neither answered
    nor evaluated.
    """

    split: Split
    annotations: Annotations
    queries: tuple[Query, ...]
    rows: Indices

    @property
    def name(self) -> str:
        """The name of the split."""
        return self.split.name

    @property
    def videos(self) -> Sequence[Video]:
        """The videos of the corpus."""
        return self.split.videos

    @property
    def clips(self) -> Indices:
        """(V,) the model's number of clips of each video."""
        return self.split.clips

    @property
    def clip_seconds(self) -> NDArray[np.float64]:
        """(V,) the seconds of these clips."""
        return self.split.clip_seconds

    @property
    def durations(self) -> NDArray[np.float64]:
        """(V,) the length of each video in seconds."""
        return self.split.durations

    def query_batch(self, rows: Indices) -> QueryBatch:
        """The given rows of `queries` as a batch."""
        return self.split.query_batch(self.rows[np.asarray(rows, np.int64)])

    def video_batch(self, rows: Indices) -> ClipBatch:
        """The given rows of `videos` as a batch."""
        return self.split.video_batch(rows)

    def beside(self, split: Split) -> PooledSplit:
        """This record with the inputs of another system, from its `split` of the same queries in order."""
        return replace(self, split=split)


def pooled_split(split: Split, pools: Annotations) -> PooledSplit:
    """The queries of a split that have pools in `pools`.

    Queries are matched by id. If a file has other ids, they are matched by the video of their first positive
    judgement and their words, without regard to capitals, blanks and a last full stop; equal ones in order.

    Raises UsageError for a file without pools, a pool with a video outside the split, a query with a pool but
    without a positive, a query that is not in the split, or equal ids with different words.
    """
    if not pools.pools:
        raise UsageError(
            f"{pools.name}: has no pools; give an MVMR file, or a folder with qrels.jsonl and pools.jsonl"
        )
    queries = tuple(query for query in pools.queries if query.id in pools.pools)
    _refuse_unknown_videos(split, pools)
    positives = given_videos(pools)
    lacking = next((query.id for query in queries if query.id not in positives), None)
    if lacking is not None:
        raise UsageError(
            f"{pools.name}: query {lacking!r} has a pool but no positive; each query with a pool needs a "
            "judgement with a relevance above 0"
        )
    return PooledSplit(split, pools, queries, _matched(split, pools, queries))


def _refuse_unknown_videos(split: Split, pools: Annotations) -> None:
    names = {video.id for video in split.videos}
    for query_id, pool in pools.pools.items():
        strange = next((video for video in pool if video not in names), None)
        if strange is not None:
            raise UsageError(
                f"{pools.name}: the pool of query {query_id!r} names video {strange!r}, which is not among "
                f"the {len(names)} videos of the {split.name} split; make pools of that split"
            )


def _matched(split: Split, pools: Annotations, queries: Sequence[Query]) -> Indices:
    """(Q,) the split's number of each query."""
    by_id = {query.id: number for number, query in enumerate(split.queries)}
    if all(query.id in by_id for query in queries):
        rows = [by_id[query.id] for query in queries]
        _refuse_other_words(split, pools, queries, rows)
        return np.array(rows, np.int64)
    split_keys, pool_keys = _keys(split.annotations), _keys(pools)
    numbers: dict[tuple[str, str], list[int]] = {}
    for number, query in enumerate(split.queries):
        numbers.setdefault(split_keys[query.id], []).append(number)
    rows, used = [], dict.fromkeys(numbers, 0)
    for query in pools.queries:
        key = pool_keys[query.id]
        place = used.get(key, 0)
        used[key] = place + 1
        if query.id not in pools.pools:
            continue
        if place >= len(numbers.get(key, ())):
            raise UsageError(
                f"{pools.name}: query {query.id!r} ({query.text!r} in video {key[0]!r}) is not among the "
                f"{len(split.queries)} queries of the {split.name} split; make pools of the same split"
            )
        rows.append(numbers[key][place])
    return np.array(rows, np.int64)


def _refuse_other_words(
    split: Split, pools: Annotations, queries: Sequence[Query], rows: Sequence[int]
) -> None:
    """Raise UsageError if queries with equal ids differ in words: both files may just count from 0."""
    for query, row in zip(queries, rows, strict=True):
        other = split.queries[row].text
        if query.text and other and comparable(query.text) != comparable(other):
            raise UsageError(
                f"{pools.name}: query {query.id!r} is {query.text!r} there and {other!r} in the {split.name} "
                "split; make pools of the same split"
            )


def _keys(annotations: Annotations) -> Mapping[str, tuple[str, str]]:
    """Query id -> the video of its first positive judgement, and its words."""
    first = given_videos(annotations)
    return {query.id: (first.get(query.id, ""), comparable(query.text)) for query in annotations.queries}
