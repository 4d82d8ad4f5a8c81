"""Matches a run's rows with judged moments, vectorised over the queries of a block.

Every published number depends on this: a change of any outcome needs a new `Protocol.version`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.overlap import place_in_group, temporal_iou
from whenabouts.types import UsageError
from whenabouts_bench.evaluation.protocols import Protocol
from whenabouts_bench.formats.annotations import Annotations, Floats, Indices
from whenabouts_bench.formats.runs import RunBlock

MOST_GRADE = 100
"""The highest grade for a gain of 2^grade - 1: far above any scale, and sums of gains stay finite."""
NEVER = np.iinfo(np.int64).max
"""The rank of a missing hit."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Truth:
    """The judged moments of queries, sorted by query, video and descending grade.

    The columns are (N,); `query` has indices of `query_ids`, `video` values of `video_codes`. `key` is query
    * len(video_codes) + video, so that a binary search finds all moments of a query in a video. `left_out`
    maps each reason to the number of queries that do not count for it.
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
    counts: Mask
    """(Q,) whether a query counts under the protocol."""
    left_out: Mapping[str, int]
    given_video: Indices
    """(Q,) the video of a query's first judgement, the only one that SVMR searches; -1 without one."""
    pool_keys: Indices | None
    """Sorted keys of the (query, video) pairs in pools; None if the protocol has no pools."""
    relevant_from: float | None = None
    """The lowest grade of a right moment; None: any above 0."""

    def key_of(self, query: Indices, video: Indices) -> Indices:
        """The keys of (query, video) pairs."""
        return query * len(self.video_codes) + video

    def where(self, mask: Mask) -> Truth:
        """The same queries with some of the moments."""
        columns = ("query", "video", "start", "end", "relevance", "key")
        return replace(self, **{name: getattr(self, name)[mask] for name in columns})

    def codes_of(self, query_ids: Sequence[str]) -> Indices:
        """The indices of queries, -1 if not judged."""
        return np.array([self.query_codes.get(query_id, -1) for query_id in query_ids], np.int64)

    def positives(self, least: float | None = None) -> Truth:
        """The right moments: those of at least the grade `least`, by default the protocol's."""
        least = self.relevant_from if least is None else least
        return self.where(self.relevance > 0 if least is None else self.relevance >= least)


def truth_of(annotations: Annotations, protocol: Protocol) -> Truth:
    """The judgements as a protocol reads them, and which queries count.

    Raises UsageError if the protocol needs pools or several annotators that are lacking, or for a grade that
    is too high for its gain.
    """
    if protocol.annotators > 1:
        annotations = _of_annotators(annotations, protocol)
    if protocol.full_pools and not annotations.pools:
        raise UsageError(
            f"{annotations.name}: {protocol.name} needs the pool of each query, and there is none; "
            "give an MVMR file, or pools.jsonl beside qrels.jsonl; protocol vcmr needs none"
        )
    if protocol.gain == "exponential" and annotations.relevance.max(initial=0) > MOST_GRADE:
        raise UsageError(
            f"{annotations.name}: grade {annotations.relevance.max():g}: the gain 2^grade - 1 takes grades "
            f"up to {MOST_GRADE}"
        )
    queries = len(annotations.queries)
    video_codes = {video.id: code for code, video in enumerate(annotations.videos)}
    given_video = np.full(queries, -1, np.int64)
    first = annotations.first_judgements
    given_video[annotations.query[first]] = annotations.video[first]
    order = np.lexsort((-annotations.relevance, annotations.video, annotations.query))
    if not protocol.zero_grades:
        order = order[annotations.relevance[order] > 0]
    query, video = annotations.query[order], annotations.video[order]
    counts, left_out = _queries_that_count(annotations, protocol)
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
        relevant_from=protocol.relevant_from,
    )


def _of_annotators(annotations: Annotations, protocol: Protocol) -> Annotations:
    """The judged queries with each annotator's spans, in the video of their first judgement."""
    first = annotations.first_judgements
    judged = annotations.query[first]
    marks = [annotations.queries[number].metadata.get("annotated", ()) for number in judged.tolist()]
    sizes = [len(spans) for spans in marks]
    if min(sizes, default=protocol.annotators) < protocol.annotators:
        lacking = annotations.queries[int(judged[int(np.argmin(sizes))])].id
        raise UsageError(
            f"{annotations.name}: {protocol.name} needs what each annotator marked, and query {lacking!r} "
            f"has {min(sizes)} spans of annotators; give DiDeMo's own JSON or HERO's query_data.jsonl; "
            "protocol vcmr takes judgements as they are"
        )
    spans = np.array([span for of_query in marks for span in of_query], np.float64).reshape(-1, 2)
    return replace(
        annotations,
        query=np.repeat(judged, sizes),
        video=np.repeat(annotations.video[first], sizes),
        start=spans[:, 0],
        end=spans[:, 1],
        relevance=np.ones(len(spans)),
        similarity=None,
        captions=None,
    )


def _queries_that_count(annotations: Annotations, protocol: Protocol) -> tuple[Mask, dict[str, int]]:
    """(Q,) whether a query counts, and the number of queries left out by reason."""
    queries = len(annotations.queries)

    def have(rows: Mask) -> Mask:
        return np.bincount(annotations.query[rows], minlength=queries) > 0

    demands = [("queries are not judged", have(annotations.query >= 0))]
    if not protocol.zero_grades:
        demands.append(("queries have no relevant moment", have(annotations.relevance > 0)))
    if not protocol.spanless and (with_length := have(annotations.end > annotations.start)).any():
        demands.append(("queries have no moment with a length", with_length))
    if protocol.full_pools:
        sizes = np.array([len(annotations.pools.get(query.id, ())) for query in annotations.queries])
        demands.append(("queries have no full pool", sizes == sizes.max()))
        demands.append(("queries have no positive in their pool", have(_in_own_pool(annotations))))
    counts = np.ones(queries, bool)
    left_out = {}
    for reason, satisfied in demands:
        if lost := int(np.count_nonzero(counts & ~satisfied)):
            left_out[reason] = lost
        counts &= satisfied
    return counts, left_out


def _in_own_pool(annotations: Annotations) -> Mask:
    """(N,) whether a judgement is a positive in its query's pool."""
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


@dataclass(frozen=True)
class Rows:
    """The rows of a block for queries that count.

    `queries` (B,) are the truth's indices of the queries answered. The columns are (N,), sorted by query and
    rank: `query` indexes `queries`; `rank` is 0-based; `video` is the truth's index of a video, or beyond
    those for unknown videos.
    """

    queries: Indices
    query: Indices
    rank: Indices
    video: Indices
    start: Floats
    end: Floats
    score: Floats

    @property
    def is_first_of_video(self) -> Mask:
        """(N,) whether a row is the first one of its query in its video."""
        key = self.query * (int(self.video.max(initial=0)) + 1) + self.video
        first = np.zeros(len(key), bool)
        first[np.unique(key, return_index=True)[1]] = True
        return first

    def where(self, chosen: Mask | Indices) -> Rows:
        """Some or all rows with new ranks, perhaps reordered, but still sorted by query."""
        query = self.query[chosen]
        columns = {name: getattr(self, name)[chosen] for name in ("video", "start", "end", "score")}
        return Rows(self.queries, query, place_in_group(query), **columns)

    def upto(self, depth: int | None) -> Rows:
        """The first `depth` rows of each query, all for None."""
        return self if depth is None else self.where(self.rank < depth)

    def by_score(self) -> Rows:
        """The rows of each query by descending score; ties keep their order."""
        return self.where(np.lexsort((-self.score, self.query)))


@dataclass(frozen=True)
class Pairs:
    """Rows paired with judged moments of the same query and video, (P,), sorted by row, then by moment."""

    row: Indices
    moment: Indices
    iou: NDArray[Any]


def rows_of(block: RunBlock, truth: Truth) -> Rows:
    """The rows of a block with the truth's indices, without queries that do not count."""
    codes = truth.codes_of(block.query_ids)
    counted = codes >= 0
    counted[counted] = truth.counts[codes[counted]]
    unnamed = len(truth.video_codes)
    videos = np.array(
        [truth.video_codes.get(name, unnamed + number) for number, name in enumerate(block.video_ids)],
        np.int64,
    )
    sizes = np.diff(block.offsets)
    keep = slice(None) if counted.all() else np.repeat(counted, sizes)
    query = np.repeat(np.arange(np.count_nonzero(counted)), sizes[counted])
    return Rows(
        queries=codes[counted],
        query=query,
        rank=place_in_group(query),
        video=videos[block.video[keep]] if len(videos) else np.zeros(0, np.int64),
        start=block.start[keep],
        end=block.end[keep],
        score=block.score[keep],
    )


def inside_pools(rows: Rows, truth: Truth) -> Rows:
    """The rows whose video is in their query's pool; all rows if there are no pools."""
    if truth.pool_keys is None:
        return rows
    key = truth.key_of(rows.queries[rows.query], rows.video)
    place = np.minimum(np.searchsorted(truth.pool_keys, key), max(len(truth.pool_keys) - 1, 0))
    # The key of an unknown video would be that of another query's video.
    return rows.where((rows.video < len(truth.video_codes)) & (truth.pool_keys[place] == key))


def judged_moments(rows: Rows, truth: Truth) -> tuple[Indices, Indices]:
    """(N,) the range of indices in the truth, for each row, of its query's moments in its video."""
    named = rows.video < len(truth.video_codes)
    key = np.where(named, truth.key_of(rows.queries[rows.query], rows.video), -1)
    first = np.searchsorted(truth.key, key, "left")
    behind = first.copy()
    # Most rows have no judged moment; only the others need the second search.
    met = np.flatnonzero(np.append(truth.key, -2)[first] == key)  # -2 equals no key
    behind[met] = np.searchsorted(truth.key, key[met], "right")
    return first, behind


def pairs_of(rows: Rows, truth: Truth, protocol: Protocol) -> Pairs:
    """Each row with each judged moment of its query in its video, with the protocol's IoU."""
    first, behind = judged_moments(rows, truth)
    sizes = behind - first
    row = np.repeat(np.arange(len(sizes)), sizes)
    moment = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(first, sizes)
    kind = np.float32 if protocol.single else np.float64
    iou = temporal_iou(
        rows.start[row].astype(kind),
        rows.end[row].astype(kind),
        truth.start[moment].astype(kind),
        truth.end[moment].astype(kind),
        protocol.over,
    )
    return Pairs(row, moment, iou)


def passes(iou: NDArray[Any], threshold: float, protocol: Protocol) -> Mask:
    """Whether an IoU reaches a threshold, both in the IoU's type: in float32 an IoU of 7/10 reaches 0.7."""
    level = np.asarray(threshold, iou.dtype)
    with_slack = iou + np.asarray(protocol.slack, iou.dtype) if protocol.slack else iou
    enough: Mask = with_slack > level if protocol.strict else with_slack >= level
    return enough


def first_ranks(rows: Rows, hits: Mask) -> Indices:
    """(B,) rank of each query's first hit, or NEVER. `hits` is (N,)."""
    hit = np.flatnonzero(hits)
    query = rows.query[hit]
    leads = np.diff(query, prepend=-1) != 0
    ranks = np.full(len(rows.queries), NEVER)
    ranks[query[leads]] = rows.rank[hit[leads]]
    return ranks


def best_iou(rows: Rows, pairs: Pairs, nth: int = 1) -> NDArray[Any]:
    """(N,) each row's nth highest IoU with a judged moment; 0 if it is paired with fewer than `nth`."""
    if nth > 1:
        order = np.lexsort((-pairs.iou, pairs.row))
        lower = order[place_in_group(pairs.row[order]) >= nth - 1]
        pairs = Pairs(pairs.row[lower], pairs.moment[lower], pairs.iou[lower])
    best = np.zeros(len(rows.query), pairs.iou.dtype)
    if len(pairs.row):
        leads = np.flatnonzero(np.diff(pairs.row, prepend=-1))
        best[pairs.row[leads]] = np.maximum.reduceat(pairs.iou, leads)
    return best


def matched_one_to_one(rank: Indices, pairs: Pairs, enough: Mask) -> Indices:
    """(N,) the judged moment that each row takes, or -1. `rank` (N,) is each row's rank in its query.

    In order of rank, each row takes, among the free moments that it overlaps enough (`enough`, (P,)), the one
    with the highest IoU; of ties, the one with the highest grade. Each step is one rank, of all queries.
    """
    usable = np.flatnonzero(enough)
    row, moment = pairs.row[usable], pairs.moment[usable]
    # By rank, so that each step has one row per query; then by descending overlap.
    order = np.lexsort((moment, -pairs.iou[usable], row, rank[row]))
    row, moment = row[order], moment[order]
    bounds = np.flatnonzero(np.diff(rank[row], prepend=-1, append=NEVER))
    matched = np.full(len(rank), -1)
    is_matched = np.zeros(int(moment.max(initial=-1)) + 1, bool)
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        free = np.flatnonzero(~is_matched[moment[begin:end]]) + begin
        # The first free pair of each row. Rows of one rank have different queries, so they cannot compete.
        chosen = free[np.diff(row[free], prepend=-1) != 0]
        matched[row[chosen]] = moment[chosen]
        is_matched[moment[chosen]] = True
    return matched
