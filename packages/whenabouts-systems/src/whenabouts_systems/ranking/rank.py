"""Rank: encoded queries and their candidates -> moments, suppressed and in order.

The one way to moments by a trained system: `run`, validation, a search of one's own corpus and the
calibration all come through `rank` (whole videos) or `rank_proposals` (windows of long ones).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from whenabouts.overlap import place_in_group, suppress
from whenabouts_systems.models.decoding import BestSpans, Decoding
from whenabouts_systems.models.protocol import QueryEncoding
from whenabouts_systems.ranking.candidates import Candidates, can_retrieve, query_blocks
from whenabouts_systems.ranking.encoded_corpus import (
    Floats,
    Indices,
    MemoryCorpus,
    System,
    device_of,
    evaluating,
)
from whenabouts_systems.ranking.localize import best_moments, best_of_each, check_localizes
from whenabouts_systems.ranking.proposals import Proposals
from whenabouts_systems.ranking.units import Footage, Units

NMS = 0.5
"""Moments of one video that share more than this (IoU) are one answer, where nobody says otherwise."""

# Moments that share more than this are one and the same, also where nothing else is suppressed.
_THE_SAME = 1 - 1e-9
# Where suppression looks at all spans: so many at first, and then so many times more until enough survive.
_SPANS_A_MOMENT, _LEAST_SPANS, _MORE = 4, 256, 4
# Spans that are held at once where suppression looks at all of them.
_SPANS_HELD = 1 << 21
# Queries whose proposals are read and encoded together.
_READ = 32


@dataclass(frozen=True, eq=False)
class Moments:
    """M moments of some queries, each query's best first; all (M,).

    `query` numbers the query and `video` the video, `start` and `end` are seconds. `first` and `last` are
    clips (inclusive) on the grid of what was scored: a whole video, or a window of it.
    """

    query: Indices
    video: Indices
    start: Floats
    end: Floats
    score: Floats
    first: Indices
    last: Indices

    def __len__(self) -> int:
        return len(self.query)

    def take(self, rows: NDArray[Any]) -> Moments:
        """Some of them."""
        return Moments(*(getattr(self, column.name)[rows] for column in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Moments]) -> Moments:
        """All moments of some lists (at least one list), one after the other."""
        return cls(
            *(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(cls))
        )

    @classmethod
    def whole(cls, query: Indices, video: Indices, score: Floats, end: Floats | float = np.nan) -> Moments:
        """Whole videos: from the beginning to `end`, or without times (NaN)."""
        start = np.where(np.isnan(end), np.nan, 0.0) + np.zeros(len(query))
        clips = np.zeros(len(query), np.int64)
        return cls(query, video, start, end + np.zeros(len(query)), score, clips, clips)

    @classmethod
    def none(cls) -> Moments:
        """No moments."""
        none = np.zeros(0, np.int64)
        return cls.whole(none, none, np.zeros(0))


def rank(
    trained: System,
    corpus: MemoryCorpus,
    queries: QueryEncoding,
    candidates: Candidates,
    decoding: Decoding,
    *,
    limit: int | None = None,
    weight: float | None = None,
    exact: bool = False,
    cut: bool = False,
) -> Moments:
    """The best `limit` (None: `decoding.spans_per_query`) moments of each query in its candidate videos.

    A moment scores `span + weight * video`, a logarithm; `weight` None is the system's own `video_weight`.
    Order is total: score, then row of the corpus, start, end. A moment goes that shares more than
    `decoding.nms` with a better one of its video: of the `spans_before_nms` best, or, where it is `exact`, of
    all spans, so that as many survive as are asked for. `cut`: "as-released" moments end with their video.
    """
    limit = decoding.spans_per_query if limit is None else limit
    looked_at = decoding.spans_before_nms
    if exact:
        looked_at = max(_LEAST_SPANS, _SPANS_A_MOMENT * limit)
    if decoding.nms is None:
        looked_at, exact = limit, False
    parts, left = [Moments.none()], np.arange(len(candidates))
    while len(left):
        size = max(1, _SPANS_HELD // max(looked_at, candidates.rows.shape[1])) if exact else len(left)
        cut_off: list[Indices] = []
        for some in np.split(left, range(size, len(left), size)):
            rows = torch.from_numpy(some).to(candidates.rows.device)
            best, videos = best_moments(
                trained.model,
                queries.take(rows),
                corpus,
                candidates.take(rows),
                decoding,
                looked_at,
                weight=weight,
            )
            kept = _in_seconds(best, videos.cpu().numpy(), corpus, decoding, cut=cut)
            if decoding.nms is not None:
                kept = suppressed(kept, len(corpus), decoding.nms, limit)
            if exact:  # a list that ended before enough survived is made again, longer
                ended = (best.score > -torch.inf).sum(1).cpu().numpy() == looked_at
                again = ended & (np.bincount(kept.query, minlength=len(some)) < limit)
                kept = kept.take(~again[kept.query])
                cut_off.append(some[again])
            parts.append(replace(kept, query=some[kept.query]))
        left = np.concatenate(cut_off) if cut_off else np.zeros(0, np.int64)
        looked_at *= _MORE
    moments = Moments.joined(parts)
    return moments.take(np.argsort(moments.query, kind="stable"))


def _in_seconds(
    best: BestSpans, rows: Indices, corpus: MemoryCorpus, decoding: Decoding, *, cut: bool
) -> Moments:
    """Spans (Q, k) of rows (Q, k) as moments; those that do not exist, or that a cut leaves empty, go."""
    exist = best.score > -torch.inf
    there = exist.cpu().numpy()
    query, video, spans = there.nonzero()[0], rows[there], best.where(exist)
    first, last = spans.first.cpu().numpy(), spans.last.cpu().numpy()
    score, ends = spans.score.double().cpu().numpy(), corpus.durations[video]
    start, end = spans.seconds(corpus.clip_seconds[video], ends, decoding)
    moments = Moments(query, video, start, np.minimum(end, ends) if cut else end, score, first, last)
    return moments.take(moments.start < moments.end) if cut else moments


def suppressed(moments: Moments, videos: int, nms: float, limit: int) -> Moments:
    """The first `limit` moments of each query that share no more than `nms` with a better one of their video.

    Each query's moments come best first and stay so; `videos` is how many videos there are.
    """
    group = moments.query * videos + moments.video
    order = -np.arange(len(group), dtype=np.float64)
    kept = moments.take(np.sort(suppress(group, moments.start, moments.end, order, nms)))
    return kept.take(place_in_group(kept.query) < limit)


def rank_proposals(
    trained: System,
    footage: Footage,
    queries: QueryEncoding,
    proposals: Proposals,
    decoding: Decoding,
    padding_seconds: float,
    *,
    nms: float | None,
    limit: int | None = None,
    weight: float | None = None,
) -> Moments:
    """The best moments in proposals: SPR's third stage, by any localizer, each read as if it were a video.

    A proposal is padded on both sides (8 seconds), rounded outward to the clips of the localizer's features,
    encoded by itself and searched for its best moment, whose seconds are then those of the whole video. A
    moment scores span + `weight` * video (SPR's exp(30 q) * P(start) * P(end), as a logarithm). What stands
    for the video is the window: what the localizer itself gives it, as in SPR, or, where it chooses no
    videos, what the retriever gives the proposal's best segment.

    SPR answers with one moment a proposal, without suppression; padded proposals of a video may overlap, and
    `nms` drops what comes twice (None: what is the same). A query has at most `limit` (None:
    `decoding.spans_per_query`). `proposals` name videos of `footage`, and so do the moments. Raises
    UsageError for a system that finds no moments.
    """
    check_localizes(trained.model)
    parts = [Moments.none()]
    for some in query_blocks(len(proposals.offsets) - 1, _READ):
        rows = torch.arange(some.start, some.stop, device=device_of(trained.model))
        part = proposals.part(some.start, some.stop)
        if len(part):
            moments = _best_of_proposals(
                trained.model, footage, queries.take(rows), part, decoding, padding_seconds, weight
            )
            parts.append(replace(moments, query=moments.query + some.start))
    names = [video.id for video in footage.videos]
    return best_first(Moments.joined(parts), names, nms, limit or decoding.spans_per_query)


def best_first(moments: Moments, names: Sequence[str], nms: float | None, limit: int) -> Moments:
    """The best `limit` of each query, by score, name of the video, start and end.

    A moment goes that shares more than `nms` (IoU) with a better one of its video; None: only what is
    answered already, as padded proposals that overlap may answer the same moment.
    """
    places = np.argsort(np.argsort(np.array(names)))[moments.video]
    order = np.lexsort((moments.end, moments.start, places, -moments.score, moments.query))
    shared = _THE_SAME if nms is None else min(nms, _THE_SAME)
    return suppressed(moments.take(order), len(names), shared, limit)


def _best_of_proposals(
    model: Any,
    footage: Footage,
    queries: QueryEncoding,
    proposals: Proposals,
    decoding: Decoding,
    padding: float,
    weight: float | None,
) -> Moments:
    """The best moment of each proposal of a few queries (none where no span is allowed), in their order."""
    units, row = Units.around(
        footage, proposals.video, proposals.start - padding, proposals.end + padding
    ).distinct()
    corpus = units.encoded(model)
    candidates = Candidates.ragged(np.split(row, proposals.offsets[1:-1]), device_of(model))
    best = best_of_each(model, queries, corpus, candidates, decoding)
    best = best.where(candidates.exist)
    first, last = best.first.cpu().numpy(), best.last.cpu().numpy()
    score = best.score.double().cpu().numpy()
    if factor := float(model.video_weight) if weight is None else weight:
        score = score + factor * _scores_of_windows(model, queries, corpus, proposals, row)
    start, end = best.seconds(corpus.clip_seconds[row], corpus.durations[row], decoding)
    begins = units.start[row]
    end = np.minimum(begins + end, footage.durations[proposals.video])
    moments = Moments(proposals.query, proposals.video, begins + start, end, score, first, last)
    return moments.take(score > -np.inf)


def _scores_of_windows(
    model: Any, queries: QueryEncoding, corpus: MemoryCorpus, proposals: Proposals, row: Indices
) -> Floats:
    """(P,): what stands for the video's score; see `rank_proposals`."""
    if not can_retrieve(model):
        return proposals.score.astype(np.float64)
    scores = np.zeros(len(row))
    with evaluating(model):
        for number, (low, high) in enumerate(zip(proposals.offsets, proposals.offsets[1:], strict=False)):
            if low < high:
                query = queries.take(torch.tensor([number], device=device_of(model)))
                of_query = model.score_videos(query, corpus.take(row[low:high]))
                scores[low:high] = of_query[0].double().cpu().numpy()
    return scores
