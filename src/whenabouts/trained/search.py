"""Searching a corpus with a trained system: tokens -> search vectors -> nearest keys -> candidate videos ->
their exact scores -> spans -> moments.

What the system keeps of each video lies in the index (`keys.py`, `index/keys.py`). It is made on first
use and brought up to date whenever the list of videos has changed (`kept.py`). A system without keys
gets its candidates from the search that needs no training. Long videos may be searched by segments instead
(`segment_search.py`).

Two systems may share the work (`models/staged.py`): the retriever's keys and scores choose the videos, the
localizer finds the moments in them. What each keeps of the videos is stored for itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress as suppress_errors
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from whenabouts.clips import clip_spans
from whenabouts.explanation import Explained, Heard, Ranked
from whenabouts.explanation.asking import borders, heard, pieces_of
from whenabouts.index.keys import KeptVideo, Keys
from whenabouts.index.lock import CorpusBusy
from whenabouts.index.store import Store
from whenabouts.models import staged
from whenabouts.models.decoding import best_spans
from whenabouts.models.protocol import QueryEncoding, VideoEncoding
from whenabouts.ranking.candidates import best_units, score_corpus
from whenabouts.ranking.confidence import Background, TrainedConfidence
from whenabouts.ranking.encoded_corpus import MemoryCorpus, device_of, evaluating
from whenabouts.ranking.localize import can_localize
from whenabouts.search import RankedMoments, Searcher
from whenabouts.trained.kept import WAIT_SECONDS, KeptSystem, open_kept
from whenabouts.trained.keys import Progress, key_seconds, unpacked
from whenabouts.trained.loaded import LoadedModel
from whenabouts.trained.moments import CandidateRanking, MomentEvidence, Place, Spans, Witness
from whenabouts.trained.nearest import nearest_videos
from whenabouts.types import ScoredMoment, UsageError

if TYPE_CHECKING:
    from whenabouts.encoder_registry import EncoderRegistry

Floats = NDArray[np.float64]

CANDIDATE_VIDEOS = 300
"""Videos whose moments are looked at, by what the index says of their keys. Of 20,000 the 200 to 400 with the
truly best keys held all of the ten best moments of XML."""
EXACT_VIDEOS = 40
"""Of these the best, by their best moment, are scored exactly; so are all videos of a corpus this small."""
RETRIEVED_VIDEOS = 100
"""Videos whose retrieval score is computed exactly, by what the index says of their keys, before a localizer
looks into the best of them."""
_EXACT_A_MOMENT = 2
# Share of the videos that may be new or gone before what chance scores is asked again.
_CHANGED = 0.1


@dataclass(frozen=True, eq=False)
class Retrieved:
    """The videos that a retriever chose for a query, best first, with their scores.

    `corpus` holds these and perhaps more; `encoded` is the query as the retriever has it.
    """

    scores: Mapping[str, float]
    encoded: QueryEncoding
    corpus: MemoryCorpus


class TrainedSearch:
    """Finds moments in one corpus with one trained system; a `search.Finder`.

    `retriever` chooses the videos in its place, where there is one.
    """

    def __init__(self, store: Store, kept: KeptSystem, retriever: TrainedSearch | None = None) -> None:
        self._store, self._kept, self._retriever = store, kept, retriever
        self._trained = kept.trained
        self._notes: list[str] = [*self._kept.notes, *([] if retriever is None else retriever._notes)]
        self._background: tuple[int, Background] | None = None

    @property
    def name(self) -> str:
        """What people call the system."""
        return self._kept.name

    def prepare(self, *, wait: float = WAIT_SECONDS, progress: Progress | None = None) -> int:
        """Encode the videos that are new or changed; how many are encoded. Raises CorpusBusy, UsageError."""
        if self._retriever is not None:
            self._retriever.prepare(wait=wait, progress=progress)
        return self._kept.prepare(wait=wait, progress=progress).count()

    def find(self, text: str, k: int, allowed: Sequence[str] | None, searcher: Searcher) -> RankedMoments:
        """At most `k` moments for a query, best first, in the videos that are allowed (None: all)."""
        keys, notes = self._kept.fresh()
        unread, systems = self._kept.unread(keys), [self._kept]
        if self._retriever is not None:
            theirs, more = self._retriever._kept.fresh()
            notes = [*notes, *more]
            unread = unread or self._retriever._kept.unread(theirs)
            systems.append(self._retriever._kept)
        notes = [*self._notes, *notes, *unread, *self._kept.coarse(keys)]
        for system in systems:
            allowed = system.allowed(allowed)
        if allowed is not None and not allowed:
            return RankedMoments([], notes)
        moments = self._found(keys, text, k, allowed, searcher)
        known = self._kept.loaded.confidence
        if known is None or not moments:
            return RankedMoments(moments, notes)
        try:
            background = self._chance(keys, known, searcher) if known.definition == "margin" else None
        except UsageError as error:
            return RankedMoments(moments, [*notes, f"no confidence: {error}"])
        sure = known.of_scores([one.score for one in moments], background).tolist()
        moments = [replace(one, confidence=told) for one, told in zip(moments, sure, strict=True)]
        measured = f"confidence was measured on {known.about['split']}, not on this corpus"
        return RankedMoments(moments, [*notes, measured], known.thresholds)

    def _found(
        self, keys: Keys, text: str, k: int, allowed: Sequence[str] | None, searcher: Searcher
    ) -> list[ScoredMoment]:
        encoded = self.asked(text)
        if self._retriever is None:
            kept = keys.encodings(self._candidates(keys, (text, encoded, k), allowed, searcher))
            return self._moments(kept, encoded, k) if kept else []
        count = min(self._trained.decoding.top_videos, max(EXACT_VIDEOS, _EXACT_A_MOMENT * k))
        chosen = self._retriever.retrieved(text, count, allowed, searcher)
        kept = keys.encodings(list(chosen.scores))
        return self._moments(kept, encoded, k, chosen) if kept else []

    def retrieved(
        self, text: str, count: int, allowed: Sequence[str] | None, searcher: Searcher
    ) -> Retrieved:
        """The `count` videos that score best for a query, by the system's own scores of videos.

        All are scored where they are few, else those whose keys are nearest.
        """
        keys, _ = self._kept.fresh()
        encoded = self.asked(text)
        few = max(RETRIEVED_VIDEOS, count)
        nearest = self._nearest(keys, (text, encoded), (few, few), allowed, searcher)
        names = None if nearest is None else list(nearest)[:few]
        kept = sorted(keys.encodings(names), key=lambda video: video.video_id)
        if not kept:
            return Retrieved({}, encoded, self._corpus_of([], VideoEncoding(torch.zeros(0, 1))))
        corpus = self._corpus_of(kept, unpacked(kept).to(device_of(self._trained.model)))
        best = best_units(score_corpus(self._trained.model, encoded, corpus), min(count, len(corpus)))
        rows, scores = best.rows[0].tolist(), best.scores[0].double().tolist()
        return Retrieved(
            {corpus.ids[row]: score for row, score in zip(rows, scores, strict=True)}, encoded, corpus
        )

    def _chance(self, keys: Keys, known: TrainedConfidence, searcher: Searcher) -> Background:
        """What the calibration's unrelated sentences score best in this corpus.

        Asked on first use and kept with the corpus until a tenth of its videos has changed. It is of the
        whole corpus, also where a search is limited to some videos: then confidence is too low, not too high.
        """
        count = keys.count()
        fact, digest = f"chance:{self._pair}", hashlib.sha256("\n".join(known.unrelated).encode())
        if self._background is None:
            kept = self._store.fact(fact)
            if kept is not None and kept.get("sentences") == digest.hexdigest()[:16]:
                self._background = (int(kept["videos"]), Background(kept["median"], kept["spread"]))
        if self._background is None or abs(count - self._background[0]) > _CHANGED * self._background[0]:
            best = [self._found(keys, text, 1, None, searcher) for text in known.unrelated]
            background = Background.of([found[0].score for found in best if found])
            self._background = (count, background)
            told = {"videos": count, "median": background.median, "spread": background.spread}
            with suppress_errors(CorpusBusy):
                self._store.put_fact(fact, {**told, "sentences": digest.hexdigest()[:16]})
        return self._background[1]

    def explained(
        self, text: str, video_id: str, found: RankedMoments, moments: Sequence[Ranked]
    ) -> Explained:
        """What the system made of a query, with borders along one video; `moments` are what it `found`.

        Raises UsageError for a video of which it keeps nothing.
        """
        keys, _ = self._kept.fresh()
        kept = keys.encodings([video_id])
        if not kept:
            raise UsageError(f"{video_id} has nothing that {self.name} reads, or is not yet encoded with it")
        encoded, trained = self.asked(text), self._trained
        videos = unpacked(kept).to(device_of(trained.model))
        told = None if self._retriever is None else self._retriever._heard(text)
        return Explained(
            self.name,
            self._systems,
            told or self._heard(text),
            borders(trained, encoded, self._corpus_of(kept, videos), video_id),
            tuple(moments),
            tuple(found.notes),
        )

    def _heard(self, text: str) -> Heard | None:
        """The words that this system heeded; None where it tells none."""
        return heard(self._trained, self.asked(text), text, pieces_of(text, self._kept.encoder))

    @property
    def _systems(self) -> str:
        """The names of the systems at work, in the order of their work."""
        own = self._trained.system
        return own if self._retriever is None else f"{self._retriever._trained.system} + {own}"

    @property
    def _pair(self) -> str:
        """The fingerprint of what answers."""
        first = None if self._retriever is None else self._retriever._trained.fingerprint
        return staged.fingerprint_of(self._trained.fingerprint, first)

    def asked(self, text: str) -> QueryEncoding:
        """The query, encoded."""
        return self._kept.asked(text)

    def _candidates(
        self,
        keys: Keys,
        asked: tuple[str, QueryEncoding, int],
        allowed: Sequence[str] | None,
        searcher: Searcher,
    ) -> list[str] | None:
        """Ids of the videos to score exactly, for a query as text, as encoded, and its k; None for all."""
        text, encoded, k = asked
        few = max(EXACT_VIDEOS, _EXACT_A_MOMENT * k)
        counts = few, max(CANDIDATE_VIDEOS, few)
        nearest = self._nearest(keys, (text, encoded), counts, allowed, searcher)
        return self._likeliest(keys, nearest, encoded, few) if isinstance(nearest, Mapping) else nearest

    def _nearest(
        self,
        keys: Keys,
        asked: tuple[str, QueryEncoding],
        counts: tuple[int, int],
        allowed: Sequence[str] | None,
        searcher: Searcher,
    ) -> Mapping[str, float] | list[str] | None:
        """Videos by their nearest keys, with what these score; of `counts` the second so many.

        Without scores where there are no keys to search, and all (None: without a limit) where they are at
        most the first of `counts`.
        """
        few, many = counts
        if allowed is not None and len(allowed) <= few:
            return list(allowed)
        if keys.count() <= few:
            return None if allowed is None else list(allowed)
        text, encoded = asked
        if not keys.info.streams or not encoded.search:
            return searcher.candidates(text, self._trained.inputs.streams, allowed)
        vectors = {name: one[0].float().cpu().numpy() for name, one in encoded.search.items()}
        return nearest_videos(keys, vectors, many, allowed)

    def _likeliest(
        self, keys: Keys, nearest: Mapping[str, float], encoded: QueryEncoding, count: int
    ) -> list[str]:
        """The `count` videos with the best moments, by what the index says that their keys score."""
        model = self._trained.model
        if not can_localize(model) or len(nearest) <= count:
            return list(nearest)[:count]
        kept = keys.encodings(list(nearest), with_keys=False)
        if not kept:
            return []
        videos, device = _without_keys(keys, kept), device_of(model)
        videos = videos if device.type == "cpu" else videos.to(device)
        with evaluating(model):
            spans = model.score_spans(encoded.take(torch.zeros(len(kept), dtype=torch.int64)), videos)
        best = best_spans(spans, self._trained.decoding, 1).score[:, 0].double().cpu().numpy()
        score = best + float(model.video_weight) * np.array([nearest[one.video_id] for one in kept])
        return [kept[at].video_id for at in np.argsort(-score, kind="stable")[:count].tolist()]

    def _moments(
        self, kept: Sequence[KeptVideo], encoded: QueryEncoding, k: int, chosen: Retrieved | None = None
    ) -> list[ScoredMoment]:
        kept = sorted(kept, key=lambda video: video.video_id)
        videos = unpacked(kept).to(device_of(self._trained.model))
        corpus = self._corpus_of(kept, videos)
        said = None
        if chosen is not None:
            said = videos.mask.new_tensor([chosen.scores[name] for name in corpus.ids], dtype=torch.float32)
        ranked = CandidateRanking(self._trained, corpus, encoded, k, said)
        found = ranked.moments() if can_localize(self._trained.model) else ranked.whole_videos()
        theirs, asked = (corpus, encoded) if chosen is None else (chosen.corpus, chosen.encoded)
        witness = Witness(asked, theirs.blocks[0], theirs.clip_seconds)
        places = _places(found, corpus, theirs)
        return MomentEvidence(self._store, self._trained, witness).of(
            found.named(corpus.ids), found.score.tolist(), places
        )

    def _corpus_of(self, kept: Sequence[KeptVideo], videos: VideoEncoding) -> MemoryCorpus:
        """The candidates as a corpus of their own."""
        cells = videos.mask.sum(1).tolist()
        seconds = [
            key_seconds(self._trained, count, video.rows, video.duration)
            for count, video in zip(cells, kept, strict=True)
        ]
        return MemoryCorpus(
            tuple(video.video_id for video in kept),
            np.array(seconds, np.float64),
            np.array([video.duration for video in kept], np.float64),
            [videos],
            np.zeros(len(kept), np.int64),
            np.arange(len(kept), dtype=np.int64),
        )


def _places(found: Spans, corpus: MemoryCorpus, theirs: MemoryCorpus) -> list[Place]:
    """Where moments in the videos of one corpus lie in those of another, or of the same."""
    rows = theirs.rows_of([corpus.ids[row] for row in found.row.tolist()])
    if theirs is corpus:
        first, last = found.first, found.last
    else:
        first, last = clip_spans(found.start, found.end, theirs.clip_seconds[rows])
    return [Place(*one) for one in zip(rows.tolist(), first.tolist(), last.tolist(), strict=True)]


class _OnDemand(Mapping[str, torch.Tensor]):
    """Tensors by name that are read when they are first asked for."""

    def __init__(self, read: Callable[[], Mapping[str, torch.Tensor]]) -> None:
        self._read = cache(read)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def _without_keys(keys: Keys, kept: Sequence[KeptVideo]) -> VideoEncoding:
    """Encodings whose keys, half of what is kept of a video, are read only if the system looks at them."""
    whole = cache(lambda: unpacked(keys.encodings([video.video_id for video in kept])))
    return replace(
        unpacked(kept), keys=_OnDemand(lambda: whole().keys), key_masks=_OnDemand(lambda: whole().key_masks)
    )


def open_search(store: Store, registry: EncoderRegistry, loaded: LoadedModel) -> TrainedSearch:
    """A trained system on a corpus. Raises UsageError, EncoderMismatch, EncoderUnavailable."""
    retriever = None if loaded.retriever is None else open_search(store, registry, loaded.retriever)
    return TrainedSearch(store, open_kept(store, registry, loaded), retriever)
