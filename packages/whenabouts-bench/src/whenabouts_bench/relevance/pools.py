"""Build MVMR pools: for each query some videos, a few of which answer it (paper 001 and 002, section 4).

Two checks decide whether a video is a positive or a negative of a query:

- The query check uses s_te, the query's similarity with the nearest sentence of the video (`similarity.py`).
  A positive needs t+ = 0.9 or more, a negative t- = 0.5 or less; a video in between is in no pool.
- The visual check uses s_tv, the full EMScore F (`emscore.py`). A positive reaches at least the mean over all
  queries and their own videos, a negative at most the mean over queries and up to 16 far videos each.

At most k = 5 moments answer a query: its own, then near moments of its own video, then moments of other
videos, drawn at random. Negatives, drawn likewise, fill the pool of n = 50 videos. Queries whose pool cannot
be filled are left out and counted, as are moments of own videos beyond k, which then count as wrong answers.
The own video counts in k: the paper's Table 1 has 5 positives and 49 "newly added videos". A span of the own
video with an IoU of at least 0.5 with an own moment is that moment as another annotator marked it (TACoS): it
answers the query, too, and does not count towards k.

A video without a sentence is in no pool, because nothing is known of it. A moment without length cannot be
found, so its query is left out. A video whose only near sentence has such a moment is not in the pool.

The released program departs from the paper in nine ways (`released/mvmr_pools.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from whenabouts.overlap import temporal_iou
from whenabouts.types import UsageError, Video
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.relevance.emscore import Frames, Scores
from whenabouts_bench.relevance.similarity import (
    Described,
    QueryDistance,
    SentenceSimilarity,
    Thresholds,
    most_similar_per_video,
    query_distance,
)

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
Progress = Callable[[str, float], None]

NO_MOMENT = "queries have no positive moment"
NOT_FULL = "queries have a pool that cannot be filled"
_SHORT = f"{NOT_FULL}: they are in the file, and the evaluation leaves them out"

_POSITIVES, _NEGATIVES, _SAMPLE = 1, 2, 3
"""Random streams per decision, so that they are independent."""
_DRAWN = 16
"""Sampled negatives per query: with 3,720 queries the mean's standard error is below 0.0005."""
_SAME = 0.5
"""The least IoU of two annotators' spans of one moment."""
_QUERIES_AT_ONCE = 2048
_LATE = 0.1


@dataclass(frozen=True)
class PoolSettings:
    """The settings of pools: `size` is n, `most_positives` k with the own video, thresholds are cosines."""

    size: int = 50
    most_positives: int = 5
    positive: float = 0.9
    negative: float = 0.5
    seed: int = 0

    released: ClassVar[bool] = False
    """Whether pools are made as the released program makes them."""
    frames: ClassVar[type[Frames]] = Frames

    def __post_init__(self) -> None:
        if self.size < 2:
            raise UsageError(f"pool size {self.size}: a pool needs at least 2 videos")
        if not 1 <= self.most_positives <= self.size:
            raise UsageError(
                f"{self.most_positives} positives in pools of {self.size}: give 1 (the own video) to "
                f"{self.size}"
            )
        if self.seed < 0:
            raise UsageError(f"seed {self.seed}: give 0 or more")
        _ = self.thresholds

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(self.positive, self.negative)

    @property
    def construction(self) -> type[Construction]:
        """The steps by which pools are made."""
        return Construction

    def rate_of(self, video: Video) -> float | None:
        """Frames per second if a file has the video's times in frames; None for seconds."""
        return None


class PairScorer(Protocol):
    """Scores queries on videos: `emscore.EMScore`."""

    def score(self, queries: Indices, videos: Indices, *, idf: bool = True) -> Scores:
        """Scores of pairs of indices."""


@dataclass(frozen=True)
class VisualCheck:
    """The visual check, with the scores behind its two means.

    `own` are s_tv of queries and their source videos, `drawn` of queries and videos that pass the query check
    as negatives.
    """

    scorer: PairScorer
    own: Floats
    drawn: Floats

    @cached_property
    def least_positive(self) -> float:
        """The minimal s_tv of a positive."""
        return float(self.own.mean(dtype=np.float64))

    @cached_property
    def most_negative(self) -> float:
        """The maximal s_tv of a negative."""
        return float(self.drawn.mean(dtype=np.float64))

    def positive(self, queries: Indices, videos: Indices) -> NDArray[np.bool_]:
        """Whether each pair passes as a positive."""
        return self.scorer.score(queries, videos).full_f >= self.least_positive

    def negative(self, queries: Indices, videos: Indices) -> NDArray[np.bool_]:
        """Whether each pair passes as a negative."""
        return self.scorer.score(queries, videos).full_f <= self.most_negative


@dataclass(frozen=True)
class Pool:
    """The pool of one query; queries, videos and judgements are indices into the annotations.

    `videos` are the source video or videos, positives, negatives. `rows` are the judgements of the moments
    that answer the query, its own first, with the `similarity` of their sentences. `no_room` counts moments
    of the source video beyond the limit of positives.
    """

    query: int
    videos: tuple[int, ...]
    rows: tuple[int, ...]
    similarity: tuple[float, ...]
    no_room: int = 0


@dataclass(frozen=True)
class Pools:
    """Pools of a data set's queries, in its order.

    `left_out` says why queries have none; `encoder` is the sentence encoder's fingerprint, `visual` the
    visual check, if any, and `frames` the fingerprint of its vectors.
    """

    source: Annotations
    settings: PoolSettings
    pools: tuple[Pool, ...]
    left_out: Mapping[int, str]
    distance: QueryDistance
    described: Described
    encoder: str
    visual: VisualCheck | None = None
    frames: str = ""

    @property
    def dropped(self) -> dict[str, int]:
        """Reason -> number of queries left out."""
        return dict(Counter(self.left_out.values()))

    @property
    def full(self) -> tuple[Pool, ...]:
        """The pools of full size; the released program keeps smaller ones, too."""
        return tuple(pool for pool in self.pools if len(pool.videos) == self.settings.size)

    @cached_property
    def annotations(self) -> Annotations:
        """Queries with a pool, their judgements and pools, and all videos of the data set."""
        source = self.source
        counts = [len(pool.rows) for pool in self.pools]
        rows = np.array([row for pool in self.pools for row in pool.rows], np.int64)
        names = [video.id for video in source.videos]
        queries = tuple(source.queries[pool.query] for pool in self.pools)
        return Annotations(
            name=f"{source.name} pools",
            videos=source.videos,
            queries=queries,
            query=np.repeat(np.arange(len(self.pools)), counts),
            video=source.video[rows],
            start=source.start[rows],
            end=source.end[rows],
            relevance=np.ones(len(rows)),
            pools={
                query.id: tuple(names[video] for video in pool.videos)
                for query, pool in zip(queries, self.pools, strict=True)
            },
        )

    def about(self) -> dict[str, Any]:
        """A JSON object that says how the pools were made, to be written into their file."""
        settings, short = self.settings, len(self.pools) - len(self.full)
        visual: Any = "none: the query check alone"
        if self.visual is not None:
            visual = {
                "least of a positive": round(self.visual.least_positive, 6),
                "most of a negative": round(self.visual.most_negative, 6),
                "frames": self.frames or "unknown",
            }
        return {
            "from": self.source.name,
            "pool size": settings.size,
            "most positives": settings.most_positives,
            "query check": {
                "positive from": settings.positive,
                "negative up to": settings.negative,
                "encoder": self.encoder,
            },
            "visual check": visual,
            "seed": settings.seed,
            "as released": settings.released,
            "queries": len(self.full),
            "left out": {**self.dropped, **({_SHORT: short} if short else {})},
            "own moments beyond the most positives": sum(pool.no_room for pool in self.full),
            **({"odd judgements": dict(self.source.counts)} if self.source.counts else {}),
        }


def described_by(annotations: Annotations) -> Described:
    """The sentences of each video: queries of all judgements above relevance 0, in the order of the file.

    Raises UsageError if times look like frame numbers: more than a tenth of the moments start after their
    video's end.
    """
    _refuse_frame_numbers(annotations)
    rows = np.flatnonzero(annotations.relevance > 0)
    rows = rows[np.argsort(annotations.video[rows], kind="stable")]
    usable = annotations.start[rows] < annotations.end[rows]
    return Described(annotations.query[rows], annotations.video[rows], rows, usable, len(annotations.videos))


def _refuse_frame_numbers(annotations: Annotations) -> None:
    durations = np.array([np.inf if v.duration is None else v.duration for v in annotations.videos])
    late = np.flatnonzero(annotations.start >= durations[annotations.video])
    if len(late) <= _LATE * len(annotations.start):
        return
    row = int(late[0])
    query = annotations.queries[int(annotations.query[row])]
    video = annotations.videos[int(annotations.video[row])]
    raise UsageError(
        f"{annotations.name}: {len(late)} of {len(annotations.start)} moments start after the end of their "
        f"video (query {query.id!r}: {annotations.start[row]:g} s in "
        f"{video.id!r} of {video.duration:g} s): are these frame numbers? Give a file with fps and "
        "num_frames, from which they become seconds, or seconds"
    )


def build_pools(
    annotations: Annotations,
    similarity: SentenceSimilarity,
    settings: PoolSettings | None = None,
    scorer: PairScorer | None = None,
    *,
    frames: str = "",
    progress: Progress = lambda step, share: None,
) -> Pools:
    """Pools of all queries of a data set (see the module); deterministic given the seed.

    Without `scorer` only the query check is made; `frames` is the fingerprint of the scorer's vectors. Raises
    UsageError if there are fewer videos than a pool holds, or no pool can be filled.
    """
    settings = settings or PoolSettings()
    if settings.size > len(annotations.videos):
        raise UsageError(
            f"{annotations.name}: has {len(annotations.videos)} videos, too few for a pool of "
            f"{settings.size}; give a --pool-size of {len(annotations.videos)} or less (the paper takes 5 "
            "for TACoS, whose test split has 25 videos)"
        )
    described = described_by(annotations)
    distance = query_distance(
        similarity,
        described,
        len(annotations.queries),
        settings.thresholds,
        progress=lambda share: progress("query check", share),
    )
    work = settings.construction(annotations, described, distance, settings)
    visual = None if scorer is None or not work.own else work.visual_check(scorer)
    pools, left_out = work.pools(visual, lambda share: progress("pools", share))
    made = Pools(
        annotations, settings, pools, left_out, distance, described, similarity.made_by, visual, frames
    )
    if not made.full:
        reasons = "; ".join(f"{count} {why}" for why, count in made.dropped.items())
        unjudged = made.dropped.get(NO_MOMENT) == len(annotations.queries)
        remedy = "judged moments" if unjudged else "a smaller --pool-size or a higher --negative"
        raise UsageError(
            f"{annotations.name}: no query has a pool of {settings.size} videos ({reasons}); give {remedy}"
        )
    return made


@dataclass(frozen=True)
class Construction:
    """The steps of `build_pools`; the released program's differ."""

    drawn: ClassVar[int] = _DRAWN
    """Sampled negatives per query for the visual check's mean."""
    check: ClassVar[type[VisualCheck]] = VisualCheck

    annotations: Annotations
    described: Described
    distance: QueryDistance
    settings: PoolSettings

    @cached_property
    def own(self) -> dict[int, list[int]]:
        """Query -> its judgements of non-empty moments above relevance 0."""
        all_ = self.annotations
        rows = np.flatnonzero((all_.relevance > 0) & (all_.start < all_.end))
        rows_of: dict[int, list[int]] = {}
        for row, query in zip(rows.tolist(), all_.query[rows].tolist(), strict=True):
            rows_of.setdefault(query, []).append(row)
        return rows_of

    def own_videos(self, query: int) -> list[int]:
        """The source videos of a query; most data sets have one."""
        return list(dict.fromkeys(self.annotations.video[self.own[query]].tolist()))

    def candidates(self, query: int) -> tuple[Indices, Floats]:
        """(places, similarities) of one near sentence per video, source videos included."""
        return most_similar_per_video(*self.distance.near(query), self.described)

    def shuffled_candidates(self, query: int) -> Indices:
        """Videos of the candidates, in random order."""
        chance = np.random.default_rng([self.settings.seed, _POSITIVES, query])
        return chance.permutation(self.described.video[self.candidates(query)[0]])

    def drawn_positives(self, query: int) -> Indices:
        """Candidate positives in random order, without source videos."""
        order = self.shuffled_candidates(query)
        return order[~np.isin(order, self.own_videos(query))]

    def drawn_negatives(self, query: int, decision: int = _NEGATIVES) -> Indices:
        """Candidate negatives in random order."""
        chance = np.random.default_rng([self.settings.seed, decision, query])
        videos = self.distance.negatives(query, len(self.annotations.videos))
        return chance.permutation(videos[~np.isin(videos, self.own_videos(query))])

    def visual_check(self, scorer: PairScorer) -> VisualCheck:
        """The visual check with its two means: over source pairs, and over far pairs (`drawn`)."""
        queries = np.array(sorted(self.own), np.int64)
        pairs = [(q, video) for q in queries.tolist() for video in self.own_videos(q)]
        own = scorer.score(*np.array(pairs, np.int64).reshape(-1, 2).T).full_f
        drawn = [self.drawn_negatives(q, _SAMPLE)[: self.drawn] for q in queries.tolist()]
        counts = [len(videos) for videos in drawn]
        if not sum(counts):
            raise UsageError(
                f"{self.annotations.name}: no video is far enough from any query to be a negative; give a "
                f"higher --negative than {self.settings.negative:g}"
            )
        far = scorer.score(np.repeat(queries, counts), np.concatenate(drawn)).full_f
        return self.check(scorer, own, far)

    def pools(
        self, visual: VisualCheck | None, progress: Callable[[float], None]
    ) -> tuple[tuple[Pool, ...], dict[int, str]]:
        """(pools, why other queries are left out)."""
        made: list[Pool] = []
        count = len(self.annotations.queries)
        left_out = {query: NO_MOMENT for query in range(count) if query not in self.own}
        queries = np.array(sorted(self.own), np.int64)
        for begin in range(0, len(queries), _QUERIES_AT_ONCE):
            block = queries[begin : begin + _QUERIES_AT_ONCE]
            for pool in self._pools_of(block.tolist(), visual):
                if self.keeps(pool):
                    made.append(pool)
                else:
                    left_out[pool.query] = NOT_FULL
            progress((begin + len(block)) / len(queries))
        return tuple(made), left_out

    def _pools_of(self, queries: list[int], visual: VisualCheck | None) -> Iterator[Pool]:
        settings = self.settings
        sources = [self.own_videos(query) for query in queries]
        beside = [self.beside(query) for query in queries]
        counts = map(self.count_own, queries, beside)
        room = np.array([max(0, settings.most_positives - count) for count in counts])
        positives = first_passing(
            queries, [self.drawn_positives(q) for q in queries], room, visual.positive if visual else None
        )
        room = np.array(
            [max(0, settings.size - len(a) - len(b)) for a, b in zip(sources, positives, strict=True)]
        )
        negatives = first_passing(
            queries, [self.drawn_negatives(q) for q in queries], room, visual.negative if visual else None
        )
        for query, first, others, near, far in zip(
            queries, sources, beside, positives, negatives, strict=True
        ):
            yield self._pool(query, others, near, (*first, *near, *far))

    def count_own(self, query: int, beside: Sequence[tuple[int, float]]) -> int:
        """How many of the k positives lie in source videos: all moments there that answer the query."""
        return self._own_moments(query) + sum(not self._repeats_own(query, row) for row, _ in beside)

    def _own_moments(self, query: int) -> int:
        """The number of moments of a query, each counted once however many annotators marked it."""
        own = self.own[query]
        return sum(not any(self._is_same(row, other) for other in own[:n]) for n, row in enumerate(own))

    def _repeats_own(self, query: int, row: int) -> bool:
        """Whether a judgement is an own moment of the query as another annotator marked it."""
        return any(self._is_same(row, own) for own in self.own[query])

    def _is_same(self, row: int, other: int) -> bool:
        all_ = self.annotations
        spans = (all_.start[row], all_.end[row], all_.start[other], all_.end[other])
        return bool(all_.video[row] == all_.video[other] and temporal_iou(*spans) >= _SAME)

    def keeps(self, pool: Pool) -> bool:
        """Whether a pool is kept: if it is full."""
        return len(pool.videos) == self.settings.size

    def _pool(
        self,
        query: int,
        beside: Sequence[tuple[int, float]],
        positives: Sequence[int],
        videos: tuple[int, ...],
    ) -> Pool:
        """A pool with its judgements: the query's, further moments of the source video, positives."""
        own = self.own[query]
        places, similarity = self.candidates(query)
        at = {int(self.described.video[place]): n for n, place in enumerate(places.tolist())}
        chosen = [at[video] for video in positives]
        room = max(0, self.settings.most_positives - self._own_moments(query))
        others = {row for row, _ in beside if not self._repeats_own(query, row)}
        full = {row for row, _ in [pair for pair in beside if pair[0] in others][room:]}
        kept = [pair for pair in beside if pair[0] not in full]
        rows = (*own, *(row for row, _ in kept), *self.described.row[places[chosen]].tolist())
        values = (*(1.0 for _ in own), *(value for _, value in kept), *similarity[chosen].tolist())
        return Pool(query, videos, rows, values, len(beside) - len(kept))

    def beside(self, query: int) -> list[tuple[int, float]]:
        """(judgement, similarity) of near moments beside the own ones in the own videos, nearest first."""
        return sorted(self._near_in_own(query), key=lambda pair: -pair[1])

    def _near_in_own(self, query: int) -> Iterator[tuple[int, float]]:
        all_, own = self.annotations, self.own[query]
        seen = {(int(all_.video[row]), float(all_.start[row]), float(all_.end[row])) for row in own}
        column, similarity = self.distance.near(query)
        inside = np.isin(self.described.video[column], self.own_videos(query))
        for place, value in zip(column[inside].tolist(), similarity[inside].tolist(), strict=True):
            row = int(self.described.row[place])
            span = (int(all_.video[row]), float(all_.start[row]), float(all_.end[row]))
            if span not in seen:
                seen.add(span)
                yield row, value


def first_passing(
    queries: Sequence[int],
    orders: Sequence[Indices],
    limits: Indices,
    passes: Callable[[Indices, Indices], NDArray[np.bool_]] | None,
) -> list[list[int]]:
    """For each query the first videos of its order that pass, at most `limits` (n,).

    The first of a random order that pass are a random sample of all that pass, so only as many as needed are
    scored. Queries are checked together, round by round.
    """
    if passes is None:
        return [order[:count].tolist() for order, count in zip(orders, limits.tolist(), strict=True)]
    passing: list[list[int]] = [[] for _ in queries]
    looked_at = [0] * len(queries)
    while True:
        rows, videos = [], []
        for row, order in enumerate(orders):
            missing = int(limits[row]) - len(passing[row])
            if missing > 0 and looked_at[row] < len(order):
                part = order[looked_at[row] : looked_at[row] + 2 * missing + 4]
                looked_at[row] += len(part)
                rows.append(np.full(len(part), row))
                videos.append(part)
        if not rows:
            return passing
        row_of, video_of = np.concatenate(rows), np.concatenate(videos)
        good = passes(np.asarray(queries, np.int64)[row_of], video_of)
        for row, video in zip(row_of[good].tolist(), video_of[good].tolist(), strict=True):
            if len(passing[row]) < limits[row]:
                passing[row].append(video)
