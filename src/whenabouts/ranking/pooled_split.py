"""A split whose queries are answered from the pools of another file: MVMR on features that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from whenabouts.formats.annotations import Annotations
from whenabouts.models.protocol import ClipBatch, QueryBatch
from whenabouts.ranking.split import Split, given_videos
from whenabouts.types import Query, UsageError, Video

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class PooledSplit:
    """The queries of a split that have a pool, under that file's ids; videos and features are the split's.

    `rows` (Q,) are the split's numbers of `queries`. `without_pool` counts queries of the file that have
    none: they are not answered, and an evaluation leaves them out.
    """

    split: Split
    annotations: Annotations
    queries: tuple[Query, ...]
    rows: Indices
    without_pool: int = 0
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.split.name)

    @property
    def videos(self) -> Sequence[Video]:
        """The corpus."""
        return self.split.videos

    @property
    def clips(self) -> Indices:
        """(V,) clips of each video for the model."""
        return self.split.clips

    @property
    def clip_seconds(self) -> NDArray[np.float64]:
        """(V,) how long they are."""
        return self.split.clip_seconds

    @property
    def durations(self) -> NDArray[np.float64]:
        """(V,) seconds."""
        return self.split.durations

    def query_batch(self, rows: Indices) -> QueryBatch:
        """Some of the queries."""
        return self.split.query_batch(self.rows[np.asarray(rows, np.int64)])

    def video_batch(self, rows: Indices) -> ClipBatch:
        """Some of the videos."""
        return self.split.video_batch(rows)

    def beside(self, split: Split) -> PooledSplit:
        """The same queries as another system reads them; its split has them in the same order."""
        return replace(self, split=split)


def pooled_split(split: Split, pools: Annotations) -> PooledSplit:
    """The split, its queries answered from the pools of `pools`.

    Queries are matched by their ids, or, where a file counts them its own way, by the video of their first
    judgement and their words (capitals, blanks and a last full stop do not matter); queries alike in both
    are matched in their order.

    Raises UsageError for a file without pools, for a pool that names a video which the split does not have,
    for a query with a pool and without a positive, and for one that is not among the split's.
    """
    if not pools.pools:
        raise UsageError(
            f"{pools.name}: has no pools; expected an MVMR file, or a folder with qrels.jsonl and pools.jsonl"
        )
    queries = tuple(query for query in pools.queries if query.id in pools.pools)
    _refuse_unknown_videos(split, pools)
    positives = given_videos(pools)
    lacking = next((query.id for query in queries if query.id not in positives), None)
    if lacking is not None:
        raise UsageError(
            f"{pools.name}: query {lacking!r} has a pool and no positive; each query with a pool needs a "
            "judgement with a relevance above 0"
        )
    rows = _matched(split, pools, queries)
    return PooledSplit(split, pools, queries, rows, len(pools.queries) - len(queries))


def _refuse_unknown_videos(split: Split, pools: Annotations) -> None:
    known = {video.id for video in split.videos}
    for query_id, pool in pools.pools.items():
        strange = next((video for video in pool if video not in known), None)
        if strange is not None:
            raise UsageError(
                f"{pools.name}: the pool of query {query_id!r} names video {strange!r}, which is not among "
                f"the {len(known)} videos of the {split.name} split; make pools of that split"
            )


def _matched(split: Split, pools: Annotations, queries: Sequence[Query]) -> Indices:
    """(Q,) the split's number of each query."""
    by_id = {query.id: number for number, query in enumerate(split.queries)}
    if all(query.id in by_id for query in queries):
        rows = [by_id[query.id] for query in queries]
        _refuse_other_words(split, pools, queries, rows)
        return np.array(rows, np.int64)
    own, theirs = _keys(split.annotations), _keys(pools)
    numbers: dict[tuple[str, str], list[int]] = {}
    for number, query in enumerate(split.queries):
        numbers.setdefault(own[query.id], []).append(number)
    rows, taken = [], dict.fromkeys(numbers, 0)
    for query in pools.queries:
        key = theirs[query.id]
        place = taken.get(key, 0)
        taken[key] = place + 1
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
    """Files that both count from 0 are not therefore about the same queries."""
    for query, row in zip(queries, rows, strict=True):
        other = split.queries[row].text
        if query.text and other and _plain(query.text) != _plain(other):
            raise UsageError(
                f"{pools.name}: query {query.id!r} is {query.text!r} there and {other!r} in the {split.name} "
                "split; make pools of the same split"
            )


def _keys(annotations: Annotations) -> Mapping[str, tuple[str, str]]:
    """Query id -> the video of its first judgement, and its words."""
    first = given_videos(annotations)
    return {query.id: (first.get(query.id, ""), _plain(query.text)) for query in annotations.queries}


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).rstrip(" .")
