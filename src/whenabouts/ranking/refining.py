"""Moments in proposals: SPR's third stage, by any localizer, each proposal read as if it were a video.

A proposal of `segments.py` is padded on both sides (8 seconds), rounded outward to the clips of the
localizer's features, encoded by itself and searched for its best moment, whose seconds are then those of the
whole video. A moment scores span + `video_weight` * video, as everywhere (SPR's exp(30 q) * P(start) *
P(end), as a logarithm). What stands for the video is the window: what the localizer itself says of it, as in
SPR, or, where it chooses no videos, what the retriever says of the proposal's best segment.

SPR answers with one moment a proposal, without suppression; padded proposals of a video may overlap, and
`decoding.nms` drops what comes twice. All that is answered of a query is the best `decoding.spans_per_query`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.formats.runs import RunBlock, Task
from whenabouts.models.decoding import Decoding, best_spans, clips_inside, seconds_of
from whenabouts.models.protocol import QueryBatch, QueryEncoding, SpanScores
from whenabouts.overlap import suppress
from whenabouts.ranking.corpus import CorpusEncoding, Progress, device_of, evaluating
from whenabouts.ranking.localize import can_localize, scored_pairs
from whenabouts.ranking.rank import System, encoded_queries
from whenabouts.ranking.retrieve import can_retrieve, query_blocks
from whenabouts.ranking.segments import (
    Footage,
    Proposals,
    SegmentIndex,
    SegmentSettings,
    Windows,
    place_in_group,
    segment_clips,
)
from whenabouts.types import UsageError

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Queries = Callable[[Indices], QueryBatch]

# Moments that share more than this are one and the same, also where nothing else is suppressed.
_THE_SAME = 1 - 1e-9
# Queries whose segments are found together, and whose proposals are read and encoded together.
_FOUND, _READ = 512, 32


@dataclass(frozen=True, eq=False)
class Moments:
    """M moments of some queries: number of the query, row of the video, seconds, score; all (M,)."""

    query: Indices
    video: Indices
    start: Floats
    end: Floats
    score: Floats

    def take(self, rows: NDArray[Any]) -> Moments:
        """Some of them."""
        return Moments(self.query[rows], self.video[rows], self.start[rows], self.end[rows], self.score[rows])


_NONE = Moments(*(np.zeros(0, kind) for kind in (np.int64, np.int64, float, float, float)))


def refined(
    model: Any,
    queries: QueryEncoding,
    footage: Footage,
    proposals: Proposals,
    decoding: Decoding,
    padding_seconds: float,
    *,
    weight: float | None = None,
) -> Moments:
    """The best moment of each proposal (none where no span is allowed), in the order of the proposals.

    `queries` are as the localizer encodes them, `proposals` name videos of `footage`. `weight` is how often
    the window's score counts; None is the system's own `video_weight`. Raises UsageError for a system that
    finds no moments.
    """
    if not can_localize(model):
        raise UsageError("this system chooses videos and does not find moments in them; name a localizer")
    refiner = _Refiner(model, footage, decoding, padding_seconds, weight)
    found = [_NONE]
    for some in query_blocks(len(proposals.offsets) - 1, _READ):
        rows = torch.arange(some.start, some.stop, device=device_of(model))
        moments = refiner.moments(queries.take(rows), proposals.part(some.start, some.stop))
        found.append(replace(moments, query=moments.query + some.start))
    names = [one.name for one in fields(Moments)]
    return Moments(*(np.concatenate([getattr(one, name) for one in found]) for name in names))


@dataclass(frozen=True, eq=False)
class _Refiner:
    """What `refined` is told, for the proposals of a few queries at a time."""

    model: Any
    footage: Footage
    decoding: Decoding
    padding: float
    weight: float | None

    def moments(self, queries: QueryEncoding, proposals: Proposals) -> Moments:
        """The best moment of each proposal."""
        if not len(proposals):
            return _NONE
        model, decoding = self.model, self.decoding
        windows, row = _windows(self.footage, proposals, self.padding)
        corpus = windows.encoded(model)
        sought = _Sought.of(proposals, row)
        first, last, score = _best_of_each(model, queries, corpus, sought, decoding)
        if factor := float(model.video_weight) if self.weight is None else self.weight:
            score = score + factor * _scores_of_windows(model, queries, corpus, proposals, row)
        start, end = seconds_of(first, last, corpus.clip_seconds[row], corpus.durations[row], decoding)
        begins, found = windows.start[row], score > -np.inf
        end = np.minimum(begins + end, self.footage.durations[proposals.video])
        return Moments(proposals.query, proposals.video, begins + start, end, score).take(found)


@dataclass(frozen=True, eq=False)
class _Sought:
    """Windows (Q, N) of each query, where there `is` one, and the place (P,) of each proposal among Q * N."""

    rows: Indices
    there: NDArray[np.bool_]
    place: Indices

    @classmethod
    def of(cls, proposals: Proposals, row: Indices) -> _Sought:
        counts = np.diff(proposals.offsets)
        there = np.arange(counts.max(initial=0)) < counts[:, None]
        rows = np.zeros(there.shape, np.int64)
        rows[there] = row
        return cls(rows, there, np.flatnonzero(there))


def _windows(footage: Footage, proposals: Proposals, padding: float) -> tuple[Windows, Indices]:
    """The different windows of proposals, and the number (P,) of each one's."""
    every = Windows.around(footage, proposals.video, proposals.start - padding, proposals.end + padding)
    told = np.stack([every.video, every.first, every.stop], 1)
    different, row = np.unique(told, axis=0, return_inverse=True)
    video, first, stop = (np.ascontiguousarray(column) for column in different.T)
    return Windows(footage, video, first, stop), row.reshape(-1)


def _best_of_each(
    model: Any, queries: QueryEncoding, corpus: CorpusEncoding, sought: _Sought, decoding: Decoding
) -> tuple[Indices, Indices, Floats]:
    """First and last clip and score (P,) of the best span of each proposal."""
    rows, there = (torch.from_numpy(one).to(device_of(model)) for one in (sought.rows, sought.there))
    inside = torch.from_numpy(clips_inside(corpus.clip_seconds, corpus.durations, decoding)).to(rows.device)
    first, last = torch.zeros_like(rows).flatten(), torch.zeros_like(rows).flatten()
    score = torch.full(first.shape, -torch.inf, dtype=torch.float64, device=rows.device)
    with evaluating(model):
        for scores, pairs in scored_pairs(model, queries, corpus, rows, there):
            at = torch.arange(scores.mask.shape[1], device=rows.device)
            mask = scores.mask & (at < inside[rows.flatten()[pairs]][:, None])
            best = best_spans(SpanScores(scores.start, scores.end, mask, scores.spans), decoding, 1)
            first[pairs], last[pairs] = best.first[:, 0], best.last[:, 0]
            score[pairs] = best.score[:, 0].double()
    place = sought.place
    return first.cpu().numpy()[place], last.cpu().numpy()[place], score.cpu().numpy()[place]


def _scores_of_windows(
    model: Any, queries: QueryEncoding, corpus: CorpusEncoding, proposals: Proposals, row: Indices
) -> Floats:
    """(P,): what stands for the video's score; see above."""
    if not can_retrieve(model):
        return proposals.score.astype(np.float64)
    found = np.zeros(len(row))
    with evaluating(model):
        for number, (low, high) in enumerate(zip(proposals.offsets, proposals.offsets[1:], strict=False)):
            if low < high:
                asked = queries.take(torch.tensor([number], device=device_of(model)))
                scores = model.score_videos(asked, corpus.take(row[low:high]))
                found[low:high] = scores[0].double().cpu().numpy()
    return found


def chosen(found: Moments, names: Sequence[str], nms: float | None, most: int) -> Moments:
    """The best `most` of each query, best first: by score, name of the video, start and end.

    A moment goes that shares more than `nms` (IoU) with a better one of its video; None: only one that is
    answered already, as padded proposals that overlap may answer the same moment.
    """
    places = np.argsort(np.argsort(np.array(names)))[found.video]
    found = found.take(np.lexsort((found.end, found.start, places, -found.score, found.query)))
    group = found.query * len(names) + found.video
    ranks = -np.arange(len(group), dtype=np.float64)
    shared = _THE_SAME if nms is None else min(nms, _THE_SAME)
    found = found.take(np.sort(suppress(group, found.start, found.end, ranks, shared)))
    return found.take(place_in_group(found.query) < most)


class SegmentRanker:
    """Answers queries by segments: retrieve, join, refine. What `ranking.Ranker` is for whole videos.

    `retriever` and `localizer` are trained systems, each with the videos as it reads them; `video_weight` is
    how often a window's score counts in that of a moment (None: as the localizer says). Raises UsageError
    where one cannot do its part, where they do not have the same videos, and for segments of a length that
    does not fit the retriever.
    """

    def __init__(
        self,
        retriever: tuple[System, Footage],
        localizer: tuple[System, Footage],
        settings: SegmentSettings,
        *,
        decoding: Decoding | None = None,
        video_weight: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.trained, self._footage = localizer
        self._retriever, footage = retriever
        inputs = footage.inputs
        seconds = segment_clips(inputs, settings.seconds, self._retriever.system) * inputs.clip_seconds
        self.settings = replace(settings, seconds=seconds)
        """As they are: segments of whole clips."""
        self.decoding: Decoding = decoding if decoding is not None else self.trained.decoding
        self._weight = video_weight
        self._names = tuple(video.id for video in footage.videos)
        self._row_of = {name: row for row, name in enumerate(self._names)}
        theirs = {video.id: row for row, video in enumerate(self._footage.videos)}
        if theirs.keys() != self._row_of.keys():
            raise UsageError(
                f"the retriever knows {len(self._row_of)} videos and the localizer {len(theirs)}, "
                "and they are not the same; both must read the same split"
            )
        self._theirs = np.array([theirs[name] for name in self._names], np.int64)
        self._index = SegmentIndex.of(self._retriever.model, footage, self.settings, progress=progress)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What it can be asked for."""
        return ("VCMR", "SVMR", "VR") if can_localize(self.trained.model) else ("VR",)

    @property
    def unfound(self) -> int:
        """How many videos are never among the answers, because the retriever reads nothing of them."""
        return self._index.unfound

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
        """The lists of some tasks, for some queries at a time; arguments as of `Ranker.answers`.

        A video scores what its best segment does; with SVMR the segments of the given video alone are found.
        """
        for task in tasks:
            if task not in self.tasks:
                raise UsageError(f"{self.trained.system} finds no moments and cannot answer {task}")
        for some in query_blocks(len(query_ids), _FOUND):
            numbers = np.arange(some.start, some.stop)
            names = [query_ids[at] for at in some]
            asked = encoded_queries(self._retriever, retrieval_queries or queries, numbers)
            of_localizer = encoded_queries(self.trained, queries, numbers)
            lists: dict[Task, RunBlock] = {}
            for task in tasks:
                kept = [at for at, name in enumerate(names) if task != "SVMR" or name in (given or {})]
                there = self._allowed([names[at] for at in kept], given if task == "SVMR" else pools)
                rows = torch.tensor(kept, dtype=torch.int64)
                found = self._moments(task, asked, of_localizer, rows, there) if kept else _NONE
                lists[task] = self._block([names[at] for at in kept], found)
            yield lists
            if progress is not None:
                progress(some.stop, len(query_ids))

    def _moments(
        self, task: Task, asked: QueryEncoding, own: QueryEncoding, rows: Tensor, allowed: Tensor | None
    ) -> Moments:
        """The answers to some queries, best first."""
        proposals = self._index.proposals(asked.take(rows.to(device_of(self._retriever.model))), allowed)
        if task == "VR":
            return _videos(proposals)
        model = self.trained.model
        named = replace(proposals, video=self._theirs[proposals.video])
        found = refined(
            model,
            own.take(rows.to(device_of(model))),
            self._footage,
            named,
            self.decoding,
            self.settings.padding_seconds,
            weight=self._weight,
        )
        found = replace(found, video=np.argsort(self._theirs)[found.video])
        return chosen(found, self._names, self.decoding.nms, self.decoding.spans_per_query)

    def _allowed(
        self, names: Sequence[str], videos: Mapping[str, str] | Mapping[str, Sequence[str]] | None
    ) -> Tensor | None:
        """(Q, V) bool: the videos of each query; those of a query that is not named are all."""
        if videos is None:
            return None
        allowed = torch.zeros((len(names), len(self._names)), dtype=torch.bool)
        for at, name in enumerate(names):
            told = videos.get(name)
            pool = self._names if told is None else [told] if isinstance(told, str) else told
            lacking = [one for one in pool if one not in self._row_of]
            if lacking:
                raise UsageError(
                    f"query {name!r}: video {lacking[0]!r} is not among the {len(self._names)} videos"
                )
            allowed[at, [self._row_of[one] for one in pool]] = True
        return allowed

    def _block(self, names: Sequence[str], found: Moments) -> RunBlock:
        offsets = np.concatenate([[0], np.bincount(found.query, minlength=len(names)).cumsum()])
        return RunBlock(
            tuple(names),
            offsets.astype(np.int64),
            self._names,
            found.video.astype(np.int32),
            found.start,
            found.end,
            found.score,
        )


def _videos(proposals: Proposals) -> Moments:
    """The videos of proposals, each once, as its best proposal ranks."""
    told = np.stack([proposals.query, proposals.video], 1)
    _, first = np.unique(told, axis=0, return_index=True)
    first.sort()
    nothing = np.full(len(first), np.nan)
    score = proposals.score[first].astype(np.float64)
    return Moments(proposals.query[first], proposals.video[first], nothing, nothing, score)
