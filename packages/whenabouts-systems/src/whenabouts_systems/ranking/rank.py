"""Rank moments: from encoded queries and their candidates to moments in order, after suppression.

All callers of trained systems (`run`, validation, search of a corpus, calibration) use `rank` for whole
videos or `rank_proposals` for windows of long videos.
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
"""The default IoU above which a better moment of the same video suppresses a moment."""

# Moments with a larger IoU count as equal: only one is kept, even without suppression.
_EQUAL = 1 - 1e-9
# Exact suppression: spans per moment and least spans of the first attempt, and the factor of each later one.
_SPANS_PER_MOMENT, _MIN_SPANS, _MORE = 4, 256, 4
# Exact suppression: the most spans in memory at a time.
_SPANS_HELD = 1 << 21
# Queries whose proposals are read and encoded together.
_QUERIES_TOGETHER = 32


@dataclass(frozen=True, eq=False)
class Moments:
    """M moments of several queries, each query's best first; every array is (M,).

    `query` and `video` are numbers, `start` and `end` seconds. `first` and `last` are clips (inclusive) on
    the grid of the scored unit, a whole video or a window of it.
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
        """The moments of the given rows."""
        return Moments(*(getattr(self, column.name)[rows] for column in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Moments]) -> Moments:
        """The moments of one or more lists, one list after the other."""
        return cls(
            *(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(cls))
        )

    @classmethod
    def whole(cls, query: Indices, video: Indices, score: Floats, end: Floats | float = np.nan) -> Moments:
        """Whole videos, from 0 to `end`, or without times (NaN)."""
        start = np.where(np.isnan(end), np.nan, 0.0) + np.zeros(len(query))
        clips = np.zeros(len(query), np.int64)
        return cls(query, video, start, end + np.zeros(len(query)), score, clips, clips)

    @classmethod
    def none(cls) -> Moments:
        """No moments."""
        empty = np.zeros(0, np.int64)
        return cls.whole(empty, empty, np.zeros(0))


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

    A moment scores `span + weight * video`, a logarithm; `weight` None uses the system's `video_weight`. The
    order is total: by score, corpus row, start, end. A moment is suppressed if its IoU with a better moment
    of its video is above `decoding.nms`. Suppression sees the `spans_before_nms` best spans or, if `exact`,
    all spans, so that `limit` moments survive if there are as many. `cut` ends moments of an "as-released"
    decoding with their video at the latest.
    """
    limit = decoding.spans_per_query if limit is None else limit
    depth = decoding.spans_before_nms
    if exact:
        depth = max(_MIN_SPANS, _SPANS_PER_MOMENT * limit)
    if decoding.nms is None:
        depth, exact = limit, False
    parts, left = [Moments.none()], np.arange(len(candidates))
    while len(left):
        size = max(1, _SPANS_HELD // max(depth, candidates.rows.shape[1])) if exact else len(left)
        incomplete: list[Indices] = []
        for numbers in np.split(left, range(size, len(left), size)):
            rows = torch.from_numpy(numbers).to(candidates.rows.device)
            best, videos = best_moments(
                trained.model,
                queries.take(rows),
                corpus,
                candidates.take(rows),
                decoding,
                depth,
                weight=weight,
            )
            kept = _in_seconds(best, videos.cpu().numpy(), corpus, decoding, cut=cut)
            if decoding.nms is not None:
                kept = suppressed(kept, len(corpus), decoding.nms, limit)
            if exact:  # if too few survive of a full list, try again with a longer one
                is_full = (best.score > -torch.inf).sum(1).cpu().numpy() == depth
                again = is_full & (np.bincount(kept.query, minlength=len(numbers)) < limit)
                kept = kept.take(~again[kept.query])
                incomplete.append(numbers[again])
            parts.append(replace(kept, query=numbers[kept.query]))
        left = np.concatenate(incomplete) if incomplete else np.zeros(0, np.int64)
        depth *= _MORE
    moments = Moments.joined(parts)
    return moments.take(np.argsort(moments.query, kind="stable"))


def _in_seconds(
    best: BestSpans, rows: Indices, corpus: MemoryCorpus, decoding: Decoding, *, cut: bool
) -> Moments:
    """Spans (Q, k) in corpus rows (Q, k) as moments, but not missing ones or those that `cut` empties."""
    exist = best.score > -torch.inf
    is_filled = exist.cpu().numpy()
    query, video, spans = is_filled.nonzero()[0], rows[is_filled], best.where(exist)
    first, last = spans.first.cpu().numpy(), spans.last.cpu().numpy()
    score, ends = spans.score.double().cpu().numpy(), corpus.durations[video]
    start, end = spans.seconds(corpus.clip_seconds[video], ends, decoding)
    moments = Moments(query, video, start, np.minimum(end, ends) if cut else end, score, first, last)
    return moments.take(moments.start < moments.end) if cut else moments


def suppressed(moments: Moments, videos: int, nms: float, limit: int) -> Moments:
    """The first `limit` moments of each query whose IoU with a better one of their video is at most `nms`.

    Each query's moments must come best first. `videos` is the number of videos.
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
    """The best moments of each query in its proposals: the third stage of SPR, with any localizer.

    Each proposal is padded on both sides by `padding_seconds` (SPR: 8), rounded outward to clips, encoded as
    if it were a video, and searched for its best moment. A moment scores span + `weight` * window (the
    logarithm of SPR's exp(30 q) * P(start) * P(end)). The window's score is the localizer's, as in SPR; if
    the localizer does not score videos, it is the retriever's score of the proposal's best segment.

    SPR answers one moment for each proposal, without suppression. Padded proposals of a video may overlap,
    so `nms` removes repetitions (None: only equal moments). A query gets at most `limit` moments (None:
    `decoding.spans_per_query`). `proposals` and moments number the videos of `footage`; times are those of
    the whole video. Raises UsageError for a system that finds no moments.
    """
    check_localizes(trained.model)
    parts = [Moments.none()]
    for block in query_blocks(len(proposals.offsets) - 1, _QUERIES_TOGETHER):
        rows = torch.arange(block.start, block.stop, device=device_of(trained.model))
        part = proposals.part(block.start, block.stop)
        if len(part):
            moments = _best_of_proposals(
                trained.model, footage, queries.take(rows), part, decoding, padding_seconds, weight
            )
            parts.append(replace(moments, query=moments.query + block.start))
    names = [video.id for video in footage.videos]
    return best_first(Moments.joined(parts), names, nms, decoding.spans_per_query if limit is None else limit)


def best_first(moments: Moments, names: Sequence[str], nms: float | None, limit: int) -> Moments:
    """The best `limit` moments of each query, ordered by score, then name of the video, start and end.

    A moment is suppressed if its IoU with a better one of its video is above `nms`. With None, only equal
    moments are suppressed: padded proposals overlap, so two of them may find the same moment.
    """
    places = np.argsort(np.argsort(np.array(names)))[moments.video]
    order = np.lexsort((moments.end, moments.start, places, -moments.score, moments.query))
    threshold = _EQUAL if nms is None else min(nms, _EQUAL)
    return suppressed(moments.take(order), len(names), threshold, limit)


def _best_of_proposals(
    model: Any,
    footage: Footage,
    queries: QueryEncoding,
    proposals: Proposals,
    decoding: Decoding,
    padding: float,
    weight: float | None,
) -> Moments:
    """The best moment of each proposal, in order; a proposal without an allowed span has none."""
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
    """(P,) scores of the windows; see `rank_proposals`."""
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
