"""Candidate videos -> the best moments of one query in them, by a trained system; what speaks for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from whenabouts.index.store import Store
from whenabouts.models.decoding import seconds_of
from whenabouts.models.protocol import QueryEncoding, VideoEncoding
from whenabouts.models.trained import Trained
from whenabouts.overlap import suppress
from whenabouts.ranking.candidates import Candidates, best_units, can_retrieve, score_corpus
from whenabouts.ranking.encoded_corpus import MemoryCorpus, device_of
from whenabouts.ranking.localize import best_moments
from whenabouts.search import shortened
from whenabouts.streams import stream as stream_named
from whenabouts.types import Evidence, Moment, ScoredMoment

Floats = NDArray[np.float64]

NMS = 0.5
"""Moments of one video that share more than this (IoU) are one answer, where the system does not say."""
_SPANS_A_MOMENT, _LEAST_SPANS, _MOST_SPANS = 20, 200, 50_000


@dataclass(frozen=True, eq=False)
class Spans:
    """Moments found in candidates, best first: rows of the candidates, clips (inclusive), seconds, scores."""

    row: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    start: Floats
    end: Floats
    score: Floats

    def named(self, video_ids: Sequence[str]) -> list[Moment]:
        """The moments as nouns; rows are those of `video_ids`."""
        told = zip(self.row.tolist(), self.start.tolist(), self.end.tolist(), strict=True)
        return [Moment(video_ids[row], start, end) for row, start, end in told]


@dataclass(frozen=True, eq=False)
class CandidateRanking:
    """The best moments of one query in candidate videos; `said` (V,) is what a retriever says of each."""

    trained: Trained
    corpus: MemoryCorpus
    encoded: QueryEncoding
    k: int
    said: torch.Tensor | None = None

    def moments(self) -> Spans:
        """At most k that differ: more spans are decoded until so many survive suppression."""
        candidates = best_units(self._scores(), len(self.corpus))
        count = max(_LEAST_SPANS, _SPANS_A_MOMENT * self.k)
        while True:
            found = self._decoded(candidates, count)
            kept = self._distinct(found)
            if len(kept.row) >= self.k or len(found.row) < count or count >= _MOST_SPANS:
                return kept
            count = min(5 * count, _MOST_SPANS)

    def whole_videos(self) -> Spans:
        """The best videos from beginning to end, for a system that finds no moments in them."""
        best = best_units(self._scores(), min(self.k, len(self.corpus)))
        rows = best.rows[0].cpu().numpy()
        last = self.corpus.blocks[0].mask.sum(1).cpu().numpy()[rows] - 1
        ends = self.corpus.durations[rows]
        scores = best.scores[0].double().cpu().numpy()
        return Spans(rows, np.zeros_like(rows), last, np.zeros(len(rows)), ends, scores)

    def _scores(self) -> torch.Tensor:
        """(1, V): what is said of each candidate; zeros where nothing chooses videos."""
        if self.said is not None:
            return self.said[None]
        if not can_retrieve(self.trained.model):
            return torch.zeros((1, len(self.corpus)), device=device_of(self.trained.model))
        return score_corpus(self.trained.model, self.encoded, self.corpus)

    def _decoded(self, candidates: Candidates, count: int) -> Spans:
        best, rows = best_moments(
            self.trained.model, self.encoded, self.corpus, candidates, self.trained.decoding, count
        )
        found = best.score[0] > -torch.inf
        row, first, last = (one[0][found].cpu().numpy() for one in (rows, best.first, best.last))
        score = best.score[0][found].double().cpu().numpy()
        seconds, ends = self.corpus.clip_seconds[row], self.corpus.durations[row]
        start, end = seconds_of(first, last, seconds, ends, self.trained.decoding)
        return Spans(row, first, last, start, np.minimum(end, ends), score)

    def _distinct(self, found: Spans) -> Spans:
        """The first k that no better moment of the same video suppresses."""
        nms = NMS if self.trained.decoding.nms is None else self.trained.decoding.nms
        real = np.flatnonzero(found.start < found.end)
        rank = -np.arange(len(real), dtype=np.float64)
        kept = real[suppress(found.row[real], found.start[real], found.end[real], rank, nms)][: self.k]
        return Spans(*(getattr(found, name)[kept] for name in Spans.__annotations__))


@dataclass(frozen=True, eq=False)
class Witness:
    """What evidence is told by: a query, and V stretches of videos with search keys, as one system has them.

    `clip_seconds` (V,) is how long the clips of each are.
    """

    encoded: QueryEncoding
    videos: VideoEncoding
    clip_seconds: Floats

    @property
    def streams(self) -> list[str]:
        """The streams that are searched by keys."""
        return [stream for stream in self.encoded.search if stream in self.videos.keys]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a moment lies in what a witness has: its row, first and last clip (inclusive).

    `begin` is the second of its video at which the row begins.
    """

    row: int
    first: int
    last: int
    begin: float = 0.0


@dataclass(frozen=True, eq=False)
class MomentEvidence:
    """What speaks for the moments that were found: for each stream the clip whose key is nearest."""

    store: Store
    trained: Trained
    witness: Witness

    def of(
        self, moments: Sequence[Moment], scores: Sequence[float], places: Sequence[Place]
    ) -> list[ScoredMoment]:
        """The moments with their scores, their evidence and their words."""
        said = self._said(sorted({moment.video_id for moment in moments}))
        told = zip(moments, scores, places, strict=True)
        return [self._scored(moment, score, place, said) for moment, score, place in told]

    def _said(self, video_ids: Sequence[str]) -> Callable[[str, float, float], str]:
        """What tells the words said in a stretch of a video."""
        streams = [name for name in self.store.streams if stream_named(name).transcript]
        if not streams or not video_ids:
            return lambda video_id, start, end: ""
        block = self.store.clips_of(streams[0], video_ids, vectors=False)
        places = {name: at for at, name in enumerate(block.video_ids)}

        def said(video_id: str, start: float, end: float) -> str:
            own = block.rows(places[video_id])
            inside = (block.start[own] < end) & (block.end[own] > start)
            return " ".join(block.text[own.start + at] for at in np.flatnonzero(inside).tolist())

        return said

    def _scored(
        self, moment: Moment, score: float, place: Place, said: Callable[[str, float, float], str]
    ) -> ScoredMoment:
        found = (self._best_clip(stream, moment, place, said) for stream in self.witness.streams)
        evidence = {piece.stream: piece for piece in found if piece is not None}
        if not evidence:
            system = self.trained.system
            evidence = {system: Evidence(system, score, moment.start, moment.end)}
        text = shortened(said(moment.video_id, moment.start, moment.end))
        return ScoredMoment(moment, score, None, evidence, text)

    def _best_clip(
        self, stream: str, moment: Moment, place: Place, said: Callable[[str, float, float], str]
    ) -> Evidence | None:
        """The clip of a moment whose key is nearest; the whole moment where keys are no clips.

        None where no clip of it has a key.
        """
        videos, row = self.witness.videos, place.row
        keys, real = videos.keys[stream][row], videos.key_masks[stream][row].bool()
        scores = (keys @ self.witness.encoded.search[stream][0]).masked_fill(~real, -torch.inf)
        start, end = moment.start, moment.end
        inside = scores[place.first : place.last + 1]
        if len(keys) == videos.mask.shape[1] and len(inside):
            scores, seconds = inside, float(self.witness.clip_seconds[row])
            begin = place.begin + (place.first + int(inside.argmax())) * seconds
            # Times of a moment may be cut at the video's end, and a clip with them.
            start = min(max(start, begin), end)
            end = max(min(end, begin + seconds), start)
        if (score := float(scores.max())) == -np.inf:
            return None
        text = said(moment.video_id, start, end) if stream_named(stream).transcript else ""
        return Evidence(stream, score, start, end, shortened(text))
