"""Answers held against judgements: which row meets which judged moment, all queries of a block at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.evaluation.protocols import Protocol
from whenabouts.evaluation.truth import Truth
from whenabouts.formats.annotations import Floats, Indices
from whenabouts.formats.runs import RunBlock
from whenabouts.overlap import temporal_iou

NEVER = np.iinfo(np.int64).max
"""The rank of a hit that did not come."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """The rows of a block that answer queries that count.

    `queries` (B,) are the truth's numbers of the queries answered. The columns are (N,), sorted by query
    and rank: `query` indexes `queries`; `rank` is from 0; `video` is the truth's number of a video, or a
    number beyond those for a video that the truth does not name.
    """

    queries: Indices
    query: Indices
    rank: Indices
    video: Indices
    start: Floats
    end: Floats
    score: Floats

    def where(self, mask: Mask) -> Rows:
        """Some of the rows, ranked anew."""
        query = self.query[mask]
        return Rows(
            self.queries,
            query,
            _ranks(query),
            self.video[mask],
            self.start[mask],
            self.end[mask],
            self.score[mask],
        )

    def upto(self, depth: int | None) -> Rows:
        """The first rows of each query."""
        return self if depth is None else self.where(self.rank < depth)

    def by_score(self) -> Rows:
        """The rows of each query by score, descending; rows of equal score as they were."""
        order = np.lexsort((-self.score, self.query))
        return Rows(
            self.queries,
            self.query,
            self.rank,
            self.video[order],
            self.start[order],
            self.end[order],
            self.score[order],
        )


@dataclass(frozen=True)
class Pairs:
    """Rows and the judged moments of the same query and video, (P,), sorted by row, then by moment."""

    row: Indices
    moment: Indices
    iou: NDArray[Any]


def _ranks(query: Indices) -> Indices:
    """Position of each row within its query, from 0; rows of a query lie together."""
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    ranks: Indices = np.arange(len(query)) - np.repeat(starts, np.diff(starts, append=len(query)))
    return ranks


def rows_of(block: RunBlock, truth: Truth) -> Rows:
    """The rows of a block in the truth's terms; queries that do not count are set aside."""
    codes = np.array([truth.query_codes.get(query_id, -1) for query_id in block.query_ids], np.int64)
    wanted = codes >= 0
    wanted[wanted] = truth.counts[codes[wanted]]
    known = len(truth.video_codes)
    videos = np.array(
        [truth.video_codes.get(name, known + number) for number, name in enumerate(block.video_ids)], np.int64
    )
    sizes = np.diff(block.offsets)
    keep = slice(None) if wanted.all() else np.repeat(wanted, sizes)
    query = np.repeat(np.arange(np.count_nonzero(wanted)), sizes[wanted])
    return Rows(
        queries=codes[wanted],
        query=query,
        rank=_ranks(query),
        video=videos[block.video[keep]] if len(videos) else np.zeros(0, np.int64),
        start=block.start[keep],
        end=block.end[keep],
        score=block.score[keep],
    )


def inside_pools(rows: Rows, truth: Truth) -> Rows:
    """The rows whose video lies in the pool of their query; all of them where there are no pools."""
    if truth.pool_keys is None:
        return rows
    key = truth.key_of(rows.queries[rows.query], rows.video)
    known = rows.video < len(truth.video_codes)
    place = np.minimum(np.searchsorted(truth.pool_keys, key), max(len(truth.pool_keys) - 1, 0))
    return rows.where(known & (truth.pool_keys[place] == key))


def in_given_video(rows: Rows, truth: Truth) -> Rows:
    """The rows in the video that SVMR looks into."""
    return rows.where(rows.video == truth.given_video[rows.queries[rows.query]])


def first_of_each_video(rows: Rows) -> Rows:
    """The best row of every video of a query: a list of moments made a list of videos."""
    key = rows.query * (int(rows.video.max(initial=0)) + 1) + rows.video
    first = np.zeros(len(key), bool)
    first[np.unique(key, return_index=True)[1]] = True
    return rows.where(first)


def judged_moments(rows: Rows, truth: Truth) -> tuple[Indices, Indices]:
    """(N,) first and behind the last of the truth's moments of each row's query in its video."""
    known = rows.video < len(truth.video_codes)
    key = np.where(known, truth.key_of(rows.queries[rows.query], rows.video), -1)
    first = np.searchsorted(truth.key, key, "left")
    behind = first.copy()
    # Most rows lie in videos without a judged moment; only the others need the second search.
    met = (
        np.flatnonzero(truth.key[np.minimum(first, len(truth.key) - 1)] == key)
        if len(truth.key)
        else first[:0]
    )
    behind[met] = np.searchsorted(truth.key, key[met], "right")
    return first, behind


def pairs_of(rows: Rows, truth: Truth, protocol: Protocol) -> Pairs:
    """Each row with each judged moment of its query in its video, and their IoU as the protocol counts."""
    first, behind = judged_moments(rows, truth)
    counts = behind - first
    row = np.repeat(np.arange(len(counts)), counts)
    moment = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
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
    """Whether an IoU is enough, by the protocol's comparison.

    The threshold is taken in the type of the IoU: in float32 an IoU of 7/10 is enough for 0.7.
    """
    level = np.asarray(threshold, iou.dtype)
    with_slack = iou + np.asarray(protocol.slack, iou.dtype) if protocol.slack else iou
    enough: Mask = with_slack > level if protocol.strict else with_slack >= level
    return enough


def first_ranks(rows: Rows, hits: Mask) -> Indices:
    """(B,) rank of each query's first row that is a hit, NEVER where there is none. `hits` is (N,)."""
    found = np.flatnonzero(hits)
    query = rows.query[found]
    leads = np.diff(query, prepend=-1) != 0
    ranks = np.full(len(rows.queries), NEVER)
    ranks[query[leads]] = rows.rank[found[leads]]
    return ranks


def best_iou(rows: Rows, pairs: Pairs) -> NDArray[Any]:
    """(N,) the highest IoU of each row with a judged moment; 0 where its video has none."""
    best = np.zeros(len(rows.query), pairs.iou.dtype)
    if len(pairs.row):
        leads = np.flatnonzero(np.diff(pairs.row, prepend=-1))
        best[pairs.row[leads]] = np.maximum.reduceat(pairs.iou, leads)
    return best


def matched_one_to_one(rank: Indices, pairs: Pairs, enough: Mask) -> Indices:
    """(N,) the judged moment that each row takes, -1 for none. `rank` (N,) is the rows' place in their list.

    Rows are served in their order; each takes, of the moments it overlaps enough (`enough`, (P,)) and that
    are still there, the one with the highest IoU (of equal ones the first of the truth: the highest grade).
    All queries go side by side: the loop is over ranks.
    """
    usable = np.flatnonzero(enough)
    row, moment = pairs.row[usable], pairs.moment[usable]
    order = np.lexsort((moment, -pairs.iou[usable], row, rank[row]))
    row, moment = row[order], moment[order]
    bounds = np.flatnonzero(np.diff(rank[row], prepend=-1, append=NEVER))
    matched = np.full(len(rank), -1)
    taken = np.zeros(int(moment.max(initial=-1)) + 1, bool)
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        free = np.flatnonzero(~taken[moment[begin:end]]) + begin
        chosen = free[np.diff(row[free], prepend=-1) != 0]
        matched[row[chosen]] = moment[chosen]
        taken[moment[chosen]] = True
    return matched
