"""Judgements made ready for matching under a protocol: which queries count, and their moments by video."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whenabouts.evaluation.protocols import Protocol
from whenabouts.formats.annotations import Annotations, Floats, Indices
from whenabouts.types import UsageError

MOST_GRADE = 100
"""Beyond this a gain of 2^grade leaves no room in a float for the others."""


@dataclass(frozen=True)
class Truth:
    """The judged moments of the queries of some annotations, sorted by query, video and grade (best first).

    The columns are (N,); `query` and `video` index `query_ids` and `video_codes`. `key` is
    query * len(video_codes) + video, so that one binary search finds all moments of a query in a video.
    """

    query_ids: tuple[str, ...]
    query_codes: Mapping[str, int]
    video_codes: Mapping[str, int]
    query: Indices
    video: Indices
    start: Floats
    end: Floats
    relevance: Floats
    key: Indices
    counts: NDArray[np.bool_]
    """(Q,) whether a query counts under the protocol."""
    left_out: Mapping[str, int]
    given_video: Indices
    """(Q,) the video of the first judgement in the file: where SVMR looks. -1 where a query has none."""
    pool_keys: Indices | None
    """Sorted keys of the (query, video) pairs that lie in pools; None where the protocol knows no pools."""

    def key_of(self, query: Indices, video: Indices) -> Indices:
        """The keys of (query, video) pairs."""
        return query * len(self.video_codes) + video

    def where(self, mask: NDArray[np.bool_]) -> Truth:
        """The same queries, with some of the moments only."""
        return Truth(
            self.query_ids,
            self.query_codes,
            self.video_codes,
            self.query[mask],
            self.video[mask],
            self.start[mask],
            self.end[mask],
            self.relevance[mask],
            self.key[mask],
            self.counts,
            self.left_out,
            self.given_video,
            self.pool_keys,
        )

    def positives(self) -> Truth:
        """Those moments that answer their query: a grade above 0."""
        return self.where(self.relevance > 0)


def truth_of(annotations: Annotations, protocol: Protocol) -> Truth:
    """The judgements that count under a protocol.

    Raises UsageError for judgements that a protocol cannot work with: no pools, grades without bounds.
    """
    if protocol.full_pools and not annotations.pools:
        raise UsageError(
            f"{annotations.name}: {protocol.name} needs the pool of each query, and there is none; "
            "give an MVMR file, or pools.jsonl beside qrels.jsonl; vcmr searches everything"
        )
    if protocol.gain == "exponential" and annotations.relevance.max(initial=0) > MOST_GRADE:
        raise UsageError(
            f"{annotations.name}: grade {annotations.relevance.max():g}: the gain 2^grade - 1 takes grades "
            f"up to {MOST_GRADE}"
        )
    queries = len(annotations.queries)
    video_codes = {video.id: code for code, video in enumerate(annotations.videos)}
    given_video = np.full(queries, -1, np.int64)
    judged, first = np.unique(annotations.query, return_index=True)
    given_video[judged] = annotations.video[first]
    usable = np.ones(len(annotations.query), bool)
    if not protocol.zero_grades:
        usable = annotations.relevance > 0
    order = np.lexsort((-annotations.relevance, annotations.video, annotations.query))
    order = order[usable[order]]
    query, video = annotations.query[order], annotations.video[order]
    counts, left_out = _counting(annotations, protocol)
    return Truth(
        query_ids=tuple(query.id for query in annotations.queries),
        query_codes={query.id: code for code, query in enumerate(annotations.queries)},
        video_codes=video_codes,
        query=query,
        video=video,
        start=annotations.start[order],
        end=annotations.end[order],
        relevance=annotations.relevance[order],
        key=query * len(video_codes) + video,
        counts=counts,
        left_out=left_out,
        given_video=given_video,
        pool_keys=_pool_keys(annotations, video_codes) if protocol.full_pools else None,
    )


def _counting(annotations: Annotations, protocol: Protocol) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """(Q,) which queries count, and how many are left out for which reason."""
    queries = len(annotations.queries)

    def have(rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.bincount(annotations.query[rows], minlength=queries) > 0

    everything = np.ones(len(annotations.query), bool)
    demands = [("queries are not judged", have(everything))]
    if not protocol.zero_grades:
        demands.append(("queries have no relevant moment", have(annotations.relevance > 0)))
    if not protocol.spanless:
        demands.append(("queries have no moment with a length", have(annotations.end > annotations.start)))
    if protocol.full_pools:
        sizes = np.array([len(annotations.pools.get(query.id, ())) for query in annotations.queries])
        demands.append(("queries have no full pool", sizes == sizes.max()))
        demands.append(("queries have no positive in their pool", have(_in_own_pool(annotations))))
    counts = np.ones(queries, bool)
    left_out = {}
    for reason, satisfied in demands:
        lost = int(np.count_nonzero(counts & ~satisfied))
        if lost:
            left_out[reason] = lost
        counts &= satisfied
    return counts, left_out


def _in_own_pool(annotations: Annotations) -> NDArray[np.bool_]:
    """(N,) whether a judgement is a positive that lies in the pool of its query."""
    pools = [frozenset(annotations.pools.get(query.id, ())) for query in annotations.queries]
    rows = zip(annotations.query.tolist(), annotations.video.tolist(), strict=True)
    inside = [annotations.videos[video].id in pools[query] for query, video in rows]
    return np.array(inside, bool) & (annotations.relevance > 0)


def _pool_keys(annotations: Annotations, video_codes: Mapping[str, int]) -> Indices:
    numbers = {query.id: code for code, query in enumerate(annotations.queries)}
    keys = [
        numbers[query_id] * len(video_codes) + video_codes[video_id]
        for query_id, pool in annotations.pools.items()
        if query_id in numbers
        for video_id in pool
    ]
    return np.unique(np.array(keys, np.int64))
