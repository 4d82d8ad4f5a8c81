"""Pools: every span of every video of a query's pool scored, suppressed within each video, merged.

In MVMR a query is answered from a pool of videos. Moments of different videos are compared by their scores as
they are: nothing is normalised within a video. Suppression looks at all spans of a video, however many there
are, and all survivors of the pool are one list (paper 001, section 5; the released program does the same).

Shapes: Q queries, P places of the widest pool, C spans that a video may have, V videos of the corpus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts import proposals
from whenabouts.models.decoding import Decoding, clips_inside, seconds_of, span_mask
from whenabouts.models.protocol import QueryEncoding, SpanScores
from whenabouts.overlap import Over
from whenabouts.ranking.corpus import CorpusEncoding, evaluating
from whenabouts.ranking.localize import can_localize, scored_pairs
from whenabouts.ranking.retrieve import Candidates
from whenabouts.types import UsageError

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]

# Scores (float32) that are held at once: 64 MiB, and a few times that while they are put in order.
_NUMBERS = 1 << 24
# Spans whose overlap is the threshold on paper are not suppressed, whatever their decimals become.
_SLACK = 1e-9


@dataclass(frozen=True)
class Spans:
    """All spans that may be answered: `first`, `last` (C,) clips, inclusive, in that order."""

    first: Tensor
    last: Tensor

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def of(cls, clips: int, decoding: Decoding) -> Spans:
        """Those of a video of that many clips."""
        first, last = span_mask(clips, decoding).nonzero(as_tuple=True)
        return cls(first, last)

    def seconds(self, corpus: CorpusEncoding, rows: Indices, decoding: Decoding) -> tuple[Floats, Floats]:
        """(R, C) start and end of every span in some videos, cut off at the video's end."""
        first, last = (one.numpy() for one in (self.first, self.last))
        clip, duration = corpus.clip_seconds[rows][:, None], corpus.durations[rows][:, None]
        return seconds_of(first, last, clip, duration, decoding)


@dataclass(frozen=True, eq=False)
class PoolMoments:
    """Moments of Q queries, best first; (Q, limit). Behind a query's last one the score is minus infinity.

    `rows` are rows of the corpus; `start` and `end` seconds.
    """

    rows: Indices
    start: Floats
    end: Floats
    score: NDArray[np.float32]


class PoolScorer:
    """Scores all spans of candidate videos for queries, as much at a time as memory allows.

    `weight` is how often a video's score counts in that of its moments; None is the system's own. Raises
    UsageError for a system that finds no moments.
    """

    def __init__(
        self,
        model: Any,
        corpus: CorpusEncoding,
        decoding: Decoding,
        *,
        weight: float | None = None,
    ) -> None:
        if not can_localize(model):
            raise UsageError(
                "this system chooses videos and does not find moments in them; ask it for videos (VR)"
            )
        self.model, self.corpus, self.decoding = model, corpus, decoding
        self.weight = float(model.video_weight) if weight is None else weight
        inside = clips_inside(corpus.clip_seconds, corpus.durations, decoding)
        longest = max(int(encoding.mask.sum(1).max()) for _, encoding in corpus.each_block())
        self.spans = Spans.of(min(longest, int(inside.max())), decoding)
        self._inside = torch.from_numpy(inside)

    def together(self, places: int) -> int:
        """How many queries with so many places in their pools are scored at a time."""
        return max(1, _NUMBERS // max(1, places * len(self.spans)))

    def scores(self, queries: QueryEncoding, candidates: Candidates) -> Tensor:
        """(Q, P, C) what every span of every candidate scores; minus infinity where there is none."""
        missing = candidates.scores == -torch.inf
        rows = candidates.rows
        filled = rows.new_zeros((rows.numel(), len(self.spans)), dtype=torch.float32).fill_(-torch.inf)
        with evaluating(self.model):
            for scores, pairs in scored_pairs(self.model, queries, self.corpus, rows, ~missing):
                self._put(filled, scores, pairs, rows.flatten()[pairs])
        found = filled.view(*rows.shape, -1)
        if self.weight:
            found = found + self.weight * candidates.scores.masked_fill(missing, 0.0)[..., None]
        return found

    def _put(self, filled: Tensor, scores: SpanScores, pairs: Tensor, rows: Tensor) -> None:
        clips = scores.mask.shape[1]
        device = pairs.device
        inside = torch.arange(clips, device=device) < self._inside.to(device)[rows][:, None]
        mask = scores.mask & inside
        column = (self.spans.last < clips).nonzero()[:, 0].to(device)
        first, last = (one.to(device)[column] for one in (self.spans.first, self.spans.last))
        found = scores.start[:, first] + scores.end[:, last]
        if scores.spans is not None:
            found = found + scores.spans[:, first, last]
        found = found.masked_fill(~(mask[:, first] & mask[:, last]), -torch.inf)
        if len(column) == filled.shape[1]:
            filled[pairs] = found.float()
        else:
            filled[pairs[:, None], column] = found.float()


def pool_moments(
    scorer: PoolScorer,
    queries: QueryEncoding,
    candidates: Candidates,
    *,
    iou: float,
    limit: int,
    over: Over = "union",
) -> PoolMoments:
    """The `limit` best moments of each query's candidates that survive suppression at `iou` in their video.

    Equal scores go by row of the corpus, first and last clip. Exact: no span is left out of suppression.
    """
    sought = candidates.in_order()
    size = scorer.together(sought.rows.shape[1])
    parts = []
    for low in range(0, len(queries), size):
        some = torch.arange(low, min(low + size, len(queries)), device=sought.rows.device)
        part = Candidates(sought.rows[some], sought.scores[some])
        scores = scorer.scores(queries.take(some), part).cpu().numpy()
        parts.append(_merged(scorer, scores, part.rows.cpu().numpy(), iou, limit, over))
    return PoolMoments(
        *(np.concatenate([getattr(one, name) for one in parts]) for name in PoolMoments.__annotations__)
    )


def _merged(
    scorer: PoolScorer, scores: NDArray[np.float32], rows: Indices, iou: float, limit: int, over: Over
) -> PoolMoments:
    """The best of some queries: `scores` (Q, P, C) in videos `rows` (Q, P)."""
    videos, local = np.unique(rows, return_inverse=True)
    start, end = scorer.spans.seconds(scorer.corpus, videos, scorer.decoding)
    best = proposals.best_moments(
        scores, start, end, local.reshape(rows.shape), iou=min(1.0, iou + _SLACK), limit=limit, over=over
    )
    place = np.maximum(best.place, 0)
    return PoolMoments(np.take_along_axis(rows, place, 1), best.start, best.end, best.score)


@dataclass(frozen=True, eq=False)
class BestOfVideos:
    """The best moment of each query in each video of its pool; (Q, P). Empty places score minus infinity."""

    rows: Indices
    start: Floats
    end: Floats
    score: NDArray[np.float32]


def best_of_videos(scorer: PoolScorer, queries: QueryEncoding, candidates: Candidates) -> BestOfVideos:
    """What each candidate video has to offer by itself: its best moment; equal scores by first, last clip."""
    sought = candidates.in_order()
    places = sought.rows.shape[1]
    wide = max(1, min(places, _NUMBERS // len(scorer.spans)))
    size = scorer.together(wide)
    return _joined(
        [
            _joined(
                [
                    _best_of_block(scorer, queries, sought, slice(low, low + size), slice(left, left + wide))
                    for left in range(0, places, wide)
                ],
                axis=1,
            )
            for low in range(0, len(queries), size)
        ],
        axis=0,
    )


def _joined(parts: Sequence[BestOfVideos], axis: int) -> BestOfVideos:
    names = BestOfVideos.__annotations__
    return BestOfVideos(*(np.concatenate([getattr(one, name) for one in parts], axis) for name in names))


def _best_of_block(
    scorer: PoolScorer, queries: QueryEncoding, sought: Candidates, some: slice, places: slice
) -> BestOfVideos:
    """The best moments of some queries in some of their candidates."""
    part = Candidates(sought.rows[some, places], sought.scores[some, places])
    asked = torch.arange(len(queries), device=part.rows.device)[some]
    scores = scorer.scores(queries.take(asked), part).cpu().numpy()
    at = scores.argmax(2)
    best = np.take_along_axis(scores, at[..., None], 2)[..., 0]
    rows, corpus = part.rows.cpu().numpy(), scorer.corpus
    first, last = (one.numpy()[at] for one in (scorer.spans.first, scorer.spans.last))
    clips, ends = corpus.clip_seconds[rows], corpus.durations[rows]
    return BestOfVideos(rows, *seconds_of(first, last, clips, ends, scorer.decoding), best)


def pool_candidates(
    corpus: CorpusEncoding, pools: Sequence[Sequence[str]], scores: Tensor | None = None
) -> Candidates:
    """Every video of each pool that is not silent, by row; `scores` (Q, V) are what a retriever says of them
    (None: zeros).

    Raises UsageError for a pool without videos and for a video that is not in the corpus.
    """
    known = [np.unique(corpus.rows_of(pool)) for pool in pools]
    width = max((len(rows) for rows in known), default=0)
    empty = next((at for at, rows in enumerate(known) if not len(rows)), None)
    if empty is not None:
        raise UsageError(f"the pool of query number {empty} has no videos; each pool needs one or more")
    rows = np.zeros((len(known), width), np.int64)
    real = np.zeros((len(known), width), bool)
    for at, own in enumerate(known):
        rows[at, : len(own)], real[at, : len(own)] = own, corpus.audible[own]
    placed = torch.from_numpy(rows)
    said = torch.zeros(placed.shape) if scores is None else scores.gather(1, placed.to(scores.device))
    return Candidates(
        placed.to(said.device), said.masked_fill(~torch.from_numpy(real).to(said.device), -torch.inf)
    )


def widest(names: Sequence[str], pools: Mapping[str, Sequence[str]]) -> int | None:
    """How many videos the widest pool of some queries has; None where a query has no pool."""
    if any(name not in pools for name in names):
        return None
    return max((len(pools[name]) for name in names), default=0)
