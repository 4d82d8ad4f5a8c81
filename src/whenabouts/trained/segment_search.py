"""Searching long videos by segments: nearest keys -> segments -> proposals -> moments in these.

A system with places for 100 clips reads an hour as 100 clips of 36 seconds. Here videos are cut into segments
of a few seconds, and the index keeps a retriever's keys of each (`segments.py`). The nearest keys of a
query tell the segments that are scored exactly; the best of these are joined to proposals, and the localizer
looks into each with some seconds on both sides (`ranking/segments.py`, `ranking/refining.py`: the answers are
those of `whenabouts run --segments` on the exported features). What is looked into depends on the query and
is encoded when it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from whenabouts.index.keys import KeptVideo, Keys
from whenabouts.index.store import Store
from whenabouts.models.protocol import QueryEncoding
from whenabouts.ranking.candidates import Candidates, best_units, can_retrieve, score_corpus
from whenabouts.ranking.localize import can_localize
from whenabouts.ranking.proposals import Proposals, SegmentSettings, joined_segments
from whenabouts.ranking.rank import Moments, best_first, rank_proposals
from whenabouts.ranking.units import Units, segment_clips
from whenabouts.search import RankedMoments, Searcher
from whenabouts.trained.kept import WAIT_SECONDS, KeptSystem, open_kept
from whenabouts.trained.keys import Progress
from whenabouts.trained.loaded import LoadedModel
from whenabouts.trained.moments import NMS, MomentEvidence, Place, Witness
from whenabouts.trained.nearest import nearest_segments
from whenabouts.trained.segments import StoredFootage, StoredRows
from whenabouts.types import Moment, ScoredMoment, UsageError

if TYPE_CHECKING:
    from whenabouts.encoder_registry import EncoderRegistry

Indices = NDArray[np.int64]

SCORED_SEGMENTS = 400
"""Segments whose score is computed exactly, by what the index says of their keys; so are all where they are
no more than these."""


@dataclass(frozen=True, eq=False)
class _Segments:
    """All segments of some videos, and the `numbers` (N,), in order, of those that are scored."""

    footage: StoredFootage
    every: Units
    numbers: Indices


class SegmentSearch:
    """Finds moments in one corpus by segments with one or two trained systems; a `search.Finder`.

    `chooser` keeps segments, `localizer` finds the moments in what the chooser finds; they may be one system.
    Where the localizer finds none, the proposals themselves are answered.
    """

    def __init__(
        self, store: Store, chooser: KeptSystem, localizer: KeptSystem, settings: SegmentSettings
    ) -> None:
        self._store, self._chooser, self._localizer = store, chooser, localizer
        self._settings = settings
        self._rows = StoredRows(store, chooser.trained.inputs)
        alike = localizer.trained.inputs == chooser.trained.inputs
        self._own_rows = self._rows if alike else StoredRows(store, localizer.trained.inputs)
        self._notes = [*localizer.notes, *([] if chooser is localizer else chooser.notes)]

    @property
    def name(self) -> str:
        """What people call the system."""
        return self._localizer.name

    @property
    def is_kept(self) -> bool:
        """Whether the index holds such segments, be they of all videos or not."""
        return self._chooser.is_kept

    def prepare(self, *, wait: float = WAIT_SECONDS, progress: Progress | None = None) -> int:
        """Encode the videos that are new or changed; how many are encoded. Raises CorpusBusy, UsageError."""
        return self._chooser.prepare(wait=wait, progress=progress).count()

    def find(self, text: str, k: int, allowed: Sequence[str] | None, searcher: Searcher) -> RankedMoments:
        """At most `k` moments for a query, best first, in the videos that are allowed (None: all)."""
        keys, notes = self._chooser.fresh()
        notes = [*self._notes, *notes, *self._chooser.unread(keys)]
        if self._localizer.loaded.confidence is not None:
            notes.append(f"no confidence: {self.name} was calibrated on whole videos, not by segments")
        encoded = self._chooser.asked(text)
        segments = self._segments(keys, encoded, self._chooser.allowed(allowed))
        if not len(segments.numbers):
            return RankedMoments([], notes)
        return RankedMoments(self._moments(text, k, encoded, segments), notes)

    def _segments(self, keys: Keys, encoded: QueryEncoding, allowed: Sequence[str] | None) -> _Segments:
        """All segments of the videos allowed where they are few, else those whose keys are nearest."""
        few = self._few(keys, allowed)
        names: list[str] = []
        number = np.zeros(0, np.int64)
        if few is None:
            vectors = {name: one[0].float().cpu().numpy() for name, one in encoded.search.items()}
            names, number = nearest_segments(keys, vectors, SCORED_SEGMENTS, allowed)
        kept = keys.encodings(sorted(set(names))) if few is None else few
        footage = StoredFootage(self._rows, kept)
        every = Units.cut(footage, self._settings.seconds)
        if few is not None:
            return _Segments(footage, every, np.arange(len(every)))
        place = {video.video_id: at for at, video in enumerate(kept)}
        video = np.array([place.get(name, len(kept)) for name in names], np.int64)
        borders = np.searchsorted(every.video, np.arange(len(kept) + 2))
        found = borders[video] + number
        # What another program takes out or writes anew in this moment is not what the keys were of.
        return _Segments(footage, every, np.unique(found[found < borders[video + 1]]))

    def _few(self, keys: Keys, allowed: Sequence[str] | None) -> list[KeptVideo] | None:
        """The videos allowed, where all of their segments can be scored; else None."""
        if (keys.count() if allowed is None else len(allowed)) > SCORED_SEGMENTS:
            return None
        kept = keys.encodings(allowed)
        rows = sum(-(-video.rows // self._chooser.segment_clips) for video in kept)
        return sorted(kept, key=lambda video: video.video_id) if rows <= SCORED_SEGMENTS else None

    def _proposals(self, encoded: QueryEncoding, segments: _Segments) -> Proposals:
        """The best segments, joined."""
        model, windows = self._chooser.trained.model, segments.every.take(segments.numbers)
        segments.footage.read_ahead(windows.video)
        corpus = windows.encoded(model)
        scores = score_corpus(model, encoded, corpus)
        audible = torch.from_numpy(corpus.audible)[None].to(scores.device)
        best = best_units(scores, self._settings.depth, audible)
        numbers = torch.from_numpy(segments.numbers).to(best.rows.device)
        return joined_segments(Candidates(numbers[best.rows], best.scores), segments.every, self._settings)

    def _moments(self, text: str, k: int, encoded: QueryEncoding, segments: _Segments) -> list[ScoredMoment]:
        proposals = self._proposals(encoded, segments)
        trained, kept = self._localizer.trained, segments.footage.kept
        nms = NMS if trained.decoding.nms is None else trained.decoding.nms
        if can_localize(trained.model):
            footage = StoredFootage(self._own_rows, kept)
            footage.read_ahead(proposals.video)
            own = encoded if self._localizer is self._chooser else self._localizer.asked(text)
            padding = self._settings.padding_seconds
            decoding = replace(trained.decoding, spans_per_query=k)
            found = rank_proposals(trained, footage, own, proposals, decoding, padding, nms=nms)
        else:
            score = proposals.score.astype(np.float64)
            whole = Moments.whole(proposals.query, proposals.video, score, proposals.end)
            whole = replace(whole, start=proposals.start)
            found = best_first(whole, [video.video_id for video in kept], nms, k)
        return self._with_evidence(encoded, segments.footage, found)

    def _with_evidence(
        self, encoded: QueryEncoding, footage: StoredFootage, found: Moments
    ) -> list[ScoredMoment]:
        """Moments as nouns, with the clip of each whose key is nearest: each is read by itself for that."""
        if not len(found.video):
            return []
        windows = Units.around(footage, found.video, found.start, found.end)
        corpus = windows.encoded(self._chooser.trained.model)
        videos = corpus.take(np.arange(len(windows)))
        last = videos.mask.shape[1] - 1
        places = [Place(row, 0, last, begin) for row, begin in enumerate(windows.start.tolist())]
        told = zip(found.video.tolist(), found.start.tolist(), found.end.tolist(), strict=True)
        moments = [Moment(footage.kept[video].video_id, start, end) for video, start, end in told]
        witness = Witness(encoded, videos, corpus.clip_seconds)
        return MomentEvidence(self._store, self._localizer.trained, witness).of(
            moments, found.score.tolist(), places
        )


def open_segment_search(
    store: Store, registry: EncoderRegistry, loaded: LoadedModel, seconds: float
) -> SegmentSearch:
    """A trained system, and what chooses for it, on a corpus that is searched by segments.

    Raises UsageError for what chooses no segments, and for segments of a length that does not fit it.
    """
    first = loaded.retriever or loaded
    if not can_retrieve(first.trained.model):
        raise UsageError(
            f"{first.name} ({first.trained.system}) chooses no videos, and so no segments; name a retriever"
        )
    clips = segment_clips(first.trained.inputs, seconds, first.name)
    settings = SegmentSettings(clips * first.trained.inputs.clip_seconds)
    chooser = open_kept(store, registry, first, clips)
    localizer = chooser if first is loaded else open_kept(store, registry, loaded)
    return SegmentSearch(store, chooser, localizer, settings)
