"""Searching a corpus with a trained system: nearest keys -> candidates -> their exact scores -> moments.

What the system keeps of each video lies in the index (`search_keys.py`, `index/keys.py`). It is made on first
use and brought up to date whenever the list of videos has changed (`indexed_corpus.py`). A system without
keys gets its candidates, and the scores of videos, from the search that needs no training. Two systems may
share the work (`models/staged.py`): the retriever's keys and scores choose the videos, the localizer finds
the moments in them. What each keeps of the videos is stored for itself.

Long videos may be searched by segments: a system with places for 100 clips reads an hour as 100 clips of 36
seconds. Then the index keeps a retriever's keys of segments of a few seconds. Those with the nearest keys are
scored exactly, the best of these are joined to proposals, and the localizer looks into each with some seconds
on both sides: the answers are those of `whenabouts run --segments --nms 0` on the exported features. What is
looked into depends on the query and is encoded for it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress as suppress_errors
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from whenabouts.clips import clip_spans
from whenabouts.index.keys import KeptVideo
from whenabouts.index.lock import CorpusBusy
from whenabouts.index.store import Store
from whenabouts.search.finder import RankedMoments
from whenabouts.search.searcher import Searcher
from whenabouts.streams import stream as stream_named
from whenabouts.types import ScoredMoment, UsageError
from whenabouts_systems.models import staged
from whenabouts_systems.models.decoding import best_spans
from whenabouts_systems.models.protocol import QueryEncoding, VideoEncoding
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.candidates import Candidates, best_units, can_retrieve, score_corpus
from whenabouts_systems.ranking.confidence import Background, TrainedConfidence
from whenabouts_systems.ranking.encoded_corpus import (
    Floats,
    Indices,
    Mask,
    MemoryCorpus,
    Progress,
    device_of,
    evaluating,
)
from whenabouts_systems.ranking.localize import can_localize
from whenabouts_systems.ranking.proposals import SegmentSettings, joined_segments
from whenabouts_systems.ranking.rank import Moments, best_first, rank, rank_proposals
from whenabouts_systems.ranking.units import Units, segment_clips
from whenabouts_systems.trained_search.evidence import Places, with_evidence
from whenabouts_systems.trained_search.indexed_corpus import IndexedCorpus, unpacked
from whenabouts_systems.trained_search.opened import (
    WAIT_SECONDS,
    IndexedSystem,
    OpenedModel,
    open_indexed,
    open_model,
)
from whenabouts_systems.trained_search.stored_footage import (
    StoredFootage,
    StoredRows,
    in_parts,
    transcript_of,
)

if TYPE_CHECKING:
    from whenabouts.corpus import Corpus
    from whenabouts.encoder_registry import EncoderRegistry

CANDIDATE_VIDEOS = 300
"""Videos whose moments are looked at, by what the index says of their keys. Of 20,000 the 200 to 400 with the
truly best keys held all of the ten best moments of XML."""
EXACT_VIDEOS = 40
"""Of these the best, by their best moment, are scored exactly; so are all videos of a corpus this small."""
RETRIEVED_VIDEOS = 100
"""Videos whose retrieval score is computed exactly, by what the index says of their keys, before a localizer
looks into the best of them."""
SCORED_SEGMENTS = 400
"""Segments whose score is computed exactly, by what the index says of their keys; so are all where they are
no more than these."""
SHARED_TIME = 0.0
"""How much (IoU) an answer may share with a better one of its video: nothing, as in the search by words that
needs no training. What a checkpoint's paper suppresses is for `run` and for measuring."""
_EXACT_A_MOMENT = 2
# Bytes of candidates that are unpacked at once: memory that is used again need not be fetched anew, page by
# page (a search with HERO took 163 ms of a processor with all at once, 118 with these).
_PART_BYTES = 16 << 20
# Share of the videos that may be new or gone before what chance scores is measured again.
_CHANGED = 0.1


@dataclass(frozen=True, eq=False)
class Retrieved:
    """The videos that a retriever chose for a query: its `scores` by id, best first.

    `corpus` holds these and perhaps more (None: none was chosen); `query` is as the retriever has it.
    """

    scores: Mapping[str, float]
    query: QueryEncoding
    corpus: MemoryCorpus | None


class TrainedSearch:
    """Finds moments in one corpus with one or two trained systems; a `search.Finder`.

    `retriever` chooses the videos in place of the localizer, where there is one. With `segments` it chooses
    these (and may be the localizer itself); where the localizer then finds no moments, the proposals
    themselves are answered. `untrained` chooses and scores videos for a system without keys.
    """

    def __init__(
        self,
        store: Store,
        localizer: IndexedSystem,
        retriever: IndexedSystem | None = None,
        segments: SegmentSettings | None = None,
        untrained: Callable[[], Searcher] | None = None,
    ) -> None:
        self.localizer, self.retriever, self.segments = localizer, retriever, segments
        self._store, self._untrained = store, untrained
        self._systems = [system for system in dict.fromkeys((localizer, retriever)) if system is not None]
        self._transcripts = [name for name in store.streams if stream_named(name).transcript]
        self._decoding = replace(localizer.trained.decoding, nms=SHARED_TIME)
        self._background: tuple[int, Background] | None = None
        if segments is not None:
            own, theirs = localizer.trained.inputs, self._chooser.trained.inputs
            self._rows = StoredRows(store, theirs)
            self._own_rows = self._rows if own == theirs else StoredRows(store, own)

    @property
    def name(self) -> str:
        """What people call the system."""
        return self.localizer.name

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it, or what chooses its videos, reads: the words of HERO's sentences, too."""
        inputs = [own.trained.inputs for own in self._systems]
        words = [transcript_of(self._store, read) for read in inputs]
        return tuple(
            dict.fromkeys(filter(None, [*chain.from_iterable(read.streams for read in inputs), *words]))
        )

    @property
    def _chooser(self) -> IndexedSystem:
        return self.retriever or self.localizer

    @property
    def is_kept(self) -> bool:
        """Whether the index holds what chooses videos or segments, be it of all videos or not."""
        return self._chooser.is_kept

    def prepare(self, *, wait: float = WAIT_SECONDS, progress: Progress | None = None) -> int:
        """Encode the videos that are new or changed; how many are encoded. Raises CorpusBusy, UsageError."""
        if self.segments is not None:
            return self._chooser.prepare(wait=wait, progress=progress).keys.count()
        for system in reversed(self._systems):
            corpus = system.prepare(wait=wait, progress=progress)
        return corpus.keys.count()

    def find(self, text: str, k: int, allowed: Sequence[str] | None) -> RankedMoments:
        """At most `k` moments for a query, best first, in the videos that are allowed (None: all)."""
        notes = [note for system in self._systems for note in system.notes]
        if self.segments is not None:
            return self._find_by_segments(text, k, allowed, notes)
        corpora = [system.corpus() for system in self._systems]
        notes += [note for _, own in corpora for note in own]
        pairs = zip(self._systems, corpora, strict=True)
        unread = (system.notes_on_unread(own) for system, (own, _) in pairs)
        corpus = corpora[0][0]
        notes += [*next((note for note in unread if note), []), *self.localizer.notes_on_long(corpus)]
        for stale, _ in corpora[1:]:  # what either has not yet encoded is not answered
            allowed = stale.names(stale.allowed(allowed))
        mask = corpus.allowed(allowed)
        if not mask.any():
            return RankedMoments([], notes)
        moments = self._moments(corpus, text, k, mask)
        confidence = self.localizer.model.confidence
        if confidence is None or not moments:
            return RankedMoments(moments, notes)
        if self._is_scored_untrained:
            why = f"{self.name} was calibrated by itself, and here the untrained search scores videos"
            return RankedMoments(moments, [*notes, f"no confidence: {why}"])
        try:
            background = self._chance(corpus, confidence) if confidence.definition == "margin" else None
        except UsageError as error:
            return RankedMoments(moments, [*notes, f"no confidence: {error}"])
        sure = confidence.of_scores([moment.score for moment in moments], background).tolist()
        moments = [replace(moment, confidence=share) for moment, share in zip(moments, sure, strict=True)]
        measured = f"confidence was measured on {confidence.about['split']}, not on this corpus"
        return RankedMoments(moments, [*notes, measured], confidence.thresholds)

    def _chance(self, corpus: IndexedCorpus, confidence: TrainedConfidence) -> Background:
        """What the calibration's unrelated sentences score best in this corpus.

        Measured on first use and kept with the corpus until a tenth of its videos has changed. It is of the
        whole corpus, also where a search is limited to some videos: then confidence is too low, not too high.
        """
        count, mask = corpus.keys.count(), corpus.allowed(None)
        first = None if self.retriever is None else self.retriever.trained.fingerprint
        fact = f"chance:{staged.fingerprint_of(self.localizer.trained.fingerprint, first)}"
        digest = hashlib.sha256("\n".join(confidence.unrelated).encode()).hexdigest()[:16]
        if self._background is None:
            kept = self._store.fact(fact)
            if kept is not None and kept.get("sentences") == digest:
                self._background = (int(kept["videos"]), Background(kept["median"], kept["spread"]))
        if self._background is None or abs(count - self._background[0]) > _CHANGED * self._background[0]:
            best = [self._moments(corpus, text, 1, mask) for text in confidence.unrelated]
            background = Background.of([moments[0].score for moments in best if moments])
            self._background = (count, background)
            record = {"videos": count, "median": background.median, "spread": background.spread}
            with suppress_errors(CorpusBusy):
                self._store.put_fact(fact, {**record, "sentences": digest})
        return self._background[1]

    # By whole videos -----------------------------------------------------------------------------

    def _moments(self, corpus: IndexedCorpus, text: str, k: int, allowed: Mask) -> list[ScoredMoment]:
        """Candidate videos -> the best moments in them, with their evidence."""
        trained = self.localizer.trained
        query = self.localizer.encode(text)
        retrieved = None
        if self.retriever is None:
            rows = self._likeliest(corpus, text, query, k, allowed)
        else:
            count = min(trained.decoding.top_videos, max(EXACT_VIDEOS, _EXACT_A_MOMENT * k))
            retrieved = self.retrieved(text, count, corpus.names(allowed))
            rows = corpus.rows_of(retrieved.scores)
        if not len(rows) or not corpus.kept(rows):
            return []
        videos = corpus.select(np.sort(rows))
        if retrieved is not None:
            scores = [retrieved.scores[name] for name in videos.ids]
            of_videos = torch.tensor([scores], dtype=torch.float32, device=device_of(trained.model))
        elif can_retrieve(trained.model):
            of_videos = score_corpus(trained.model, query, videos)
        else:
            of_videos = self._untrained_scores(text, videos)
        moments = self._ranked(videos, query, best_units(of_videos, len(videos)), k)
        if retrieved is None or retrieved.corpus is None:
            keyed, by = videos, query
            places = Places(moments.video, moments.first, moments.last, np.zeros(len(moments)))
        else:
            keyed, by = retrieved.corpus, retrieved.query
            places = _places(moments, videos, keyed)
        return self._with_evidence(by, keyed, moments, videos.ids, places)

    @property
    def _is_scored_untrained(self) -> bool:
        """Whether nothing else says which videos are right, and a moment's score asks for it."""
        model = self.localizer.trained.model
        chooses = self.retriever is not None or can_retrieve(model)
        return not chooses and bool(model.video_weight) and self._untrained is not None

    def _untrained_scores(self, text: str, videos: MemoryCorpus) -> torch.Tensor:
        """(1, V) what the untrained search gives videos; 0 where that does not count."""
        trained = self.localizer.trained
        scores = np.zeros(len(videos))
        if self._is_scored_untrained:
            assert self._untrained is not None
            scores = self._untrained().retrieval.video_scores(text, list(trained.inputs.streams), videos.ids)
        return torch.tensor(scores[None], dtype=torch.float32, device=device_of(trained.model))

    def _ranked(self, videos: MemoryCorpus, query: QueryEncoding, candidates: Candidates, k: int) -> Moments:
        """The k best moments that differ; the best videos from end to end, where no moments are found."""
        trained = self.localizer.trained
        if can_localize(trained.model):
            return rank(trained, videos, query, candidates, self._decoding, limit=k, exact=True, cut=True)
        best = candidates.first(k)
        rows, score = best.rows[0].cpu().numpy(), best.scores[0].double().cpu().numpy()
        last = videos.take(rows).mask.sum(1).cpu().numpy() - 1
        return replace(Moments.whole(np.zeros_like(rows), rows, score, videos.durations[rows]), last=last)

    def retrieved(self, text: str, count: int, allowed: Sequence[str] | None) -> Retrieved:
        """The `count` videos that score best for a query, by the chooser's own scores of videos.

        All are scored where they are few, else those whose keys are nearest.
        """
        chooser = self._chooser
        corpus, _ = chooser.corpus()
        query = chooser.encode(text)
        few = max(RETRIEVED_VIDEOS, count)
        rows, _ = self._nearest(chooser, corpus, text, query, (few, few), corpus.allowed(allowed))
        if not corpus.kept(rows[:few]):
            return Retrieved({}, query, None)
        videos = corpus.select(np.sort(rows[:few]))
        best = best_units(score_corpus(chooser.trained.model, query, videos), min(count, len(videos)))
        scores = zip(best.rows[0].tolist(), best.scores[0].double().tolist(), strict=True)
        return Retrieved({videos.ids[row]: score for row, score in scores}, query, videos)

    def _nearest(
        self,
        system: IndexedSystem,
        corpus: IndexedCorpus,
        text: str,
        query: QueryEncoding,
        counts: tuple[int, int],
        allowed: Mask,
    ) -> tuple[Indices, Floats | None]:
        """Videos by their nearest keys, with what these score; of `counts` the second so many.

        Without scores where there are no keys to search, and all where they are at most the first of
        `counts`.
        """
        few, many = counts
        rows = np.flatnonzero(allowed)
        if len(rows) <= few:
            return rows, None
        if not corpus.keys.info.streams or not query.search:
            assert self._untrained is not None
            streams = list(system.trained.inputs.streams)
            return corpus.rows_of(
                self._untrained().retrieval.videos(text, streams, corpus.names(allowed))
            ), None
        return corpus.nearest(_search_vectors(query), many, allowed)

    def _likeliest(
        self, corpus: IndexedCorpus, text: str, query: QueryEncoding, k: int, allowed: Mask
    ) -> Indices:
        """The videos with the best moments, by what the index says that their keys score."""
        few = max(EXACT_VIDEOS, _EXACT_A_MOMENT * k)
        counts = few, max(CANDIDATE_VIDEOS, few)
        rows, scores = self._nearest(self.localizer, corpus, text, query, counts, allowed)
        model = self.localizer.trained.model
        if scores is None:
            return rows
        if not can_localize(model) or len(rows) <= few:
            return rows[:few]
        kept = corpus.kept(rows, with_keys=False)
        if not kept:
            return rows[:0]
        sizes = [len(video.encoding) for video in kept]
        parts = in_parts(kept, sizes, _PART_BYTES, len(kept))
        best = np.concatenate([self._best_spans(corpus, query, part) for part in parts])
        score_of = dict(zip(rows.tolist(), scores.tolist(), strict=True))
        rows = corpus.rows_of(video.video_id for video in kept)
        score = best + float(model.video_weight) * np.array([score_of[row] for row in rows.tolist()])
        return rows[np.argsort(-score, kind="stable")[:few]]

    def _best_spans(self, corpus: IndexedCorpus, query: QueryEncoding, kept: Sequence[KeptVideo]) -> Floats:
        """(V,) what the best moment of each of some videos scores, without the score of its video."""
        trained = self.localizer.trained
        videos, device = _without_keys(corpus, kept), device_of(trained.model)
        videos = videos if device.type == "cpu" else videos.to(device)
        with evaluating(trained.model):
            spans = trained.model.score_spans(query.take(torch.zeros(len(kept), dtype=torch.int64)), videos)
        best: Floats = best_spans(spans, trained.decoding, 1).score[:, 0].double().cpu().numpy()
        return best

    # By segments ---------------------------------------------------------------------------------

    def _find_by_segments(
        self, text: str, k: int, allowed: Sequence[str] | None, notes: Sequence[str]
    ) -> RankedMoments:
        corpus, more = self._chooser.corpus()
        notes = [*notes, *more, *self._chooser.notes_on_unread(corpus)]
        if self.localizer.model.confidence is not None:
            notes.append(f"no confidence: {self.name} was calibrated on whole videos, not by segments")
        query = self._chooser.encode(text)
        kept, segments, numbers = self._segments(corpus, query, corpus.allowed(allowed))
        if not len(numbers):
            return RankedMoments([], notes)
        return RankedMoments(self._moments_by_segments(text, k, query, kept, segments, numbers), notes)

    def _segments(
        self, corpus: IndexedCorpus, query: QueryEncoding, allowed: Mask
    ) -> tuple[list[KeptVideo], Units, Indices]:
        """Some videos, all of their segments, and the numbers (N,), in order, of those that are scored.

        All of the videos allowed where they are few, else those whose keys are nearest.
        """
        assert self.segments is not None
        rows = np.flatnonzero(allowed)
        kept = corpus.kept(rows) if len(rows) <= SCORED_SEGMENTS else None
        if kept is not None and self._count(kept) <= SCORED_SEGMENTS:
            every = Units.cut(StoredFootage(self._rows, kept), self.segments.seconds)
            return kept, every, np.arange(len(every))
        units, _ = corpus.nearest(_search_vectors(query), SCORED_SEGMENTS, allowed)
        rows, number = corpus.place_of(units)
        kept = corpus.kept(np.unique(rows))
        every = Units.cut(StoredFootage(self._rows, kept), self.segments.seconds)
        place = {video.video_id: at for at, video in enumerate(kept)}
        video = np.array([place.get(corpus.ids[row], len(kept)) for row in rows.tolist()], np.int64)
        borders = np.searchsorted(every.video, np.arange(len(kept) + 2))
        numbers = borders[video] + number
        return kept, every, np.unique(numbers[numbers < borders[video + 1]])

    def _count(self, kept: Sequence[KeptVideo]) -> int:
        """How many segments some videos have."""
        return sum(-(-video.rows // self._chooser.segment_clips) for video in kept)

    def _moments_by_segments(
        self,
        text: str,
        k: int,
        query: QueryEncoding,
        kept: Sequence[KeptVideo],
        segments: Units,
        numbers: Indices,
    ) -> list[ScoredMoment]:
        """Segments scored exactly -> the best joined to proposals -> the best moments in these."""
        assert self.segments is not None
        trained, names = self.localizer.trained, [video.video_id for video in kept]
        footage = StoredFootage(self._rows, kept)
        footage.read_ahead(segments.video[numbers])
        corpus = segments.take(numbers).encoded(self._chooser.trained.model)
        scores = score_corpus(self._chooser.trained.model, query, corpus)
        best = best_units(scores, self.segments.depth, torch.from_numpy(corpus.audible)[None])
        rows = torch.from_numpy(numbers).to(best.rows.device)[best.rows]
        proposals = joined_segments(Candidates(rows, best.scores), segments, self.segments)
        if can_localize(trained.model):
            own_footage = StoredFootage(self._own_rows, kept)
            own_footage.read_ahead(proposals.video)
            own = query if self.localizer is self._chooser else self.localizer.encode(text)
            decoding, padding = self._decoding, self.segments.padding_seconds
            moments = rank_proposals(
                trained, own_footage, own, proposals, decoding, padding, nms=SHARED_TIME, limit=k
            )
        else:
            score = proposals.score.astype(np.float64)
            whole = Moments.whole(proposals.query, proposals.video, score, proposals.end)
            moments = best_first(replace(whole, start=proposals.start), names, SHARED_TIME, k)
        # Each moment is read by itself for its evidence: the clip of it whose key is nearest.
        windows = Units.around(footage, moments.video, moments.start, moments.end)
        if not len(windows):
            return []
        keyed = windows.encoded(self._chooser.trained.model)
        row, last = np.arange(len(windows)), keyed.take([0]).mask.shape[1] - 1
        places = Places(row, np.zeros_like(row), np.full_like(row, last), windows.start)
        return self._with_evidence(query, keyed, moments, names, places)

    def _with_evidence(
        self,
        query: QueryEncoding,
        keyed: MemoryCorpus,
        moments: Moments,
        names: Sequence[str],
        places: Places,
    ) -> list[ScoredMoment]:
        system = self.localizer.trained.system
        return with_evidence(self._store, self._transcripts, system, query, keyed, moments, names, places)


def _search_vectors(query: QueryEncoding) -> dict[str, np.ndarray]:
    """The search vectors of one query, by stream."""
    return {stream: vectors[0].float().cpu().numpy() for stream, vectors in query.search.items()}


def _places(moments: Moments, corpus: MemoryCorpus, keyed: MemoryCorpus) -> Places:
    """Where moments in the videos of one corpus lie in those of another."""
    rows = keyed.rows_of([corpus.ids[row] for row in moments.video.tolist()])
    first, last = clip_spans(moments.start, moments.end, keyed.clip_seconds[rows])
    return Places(rows, first, last, np.zeros(len(rows)))


class _OnDemand(Mapping[str, torch.Tensor]):
    """Tensors by name that are read when they are first used."""

    def __init__(self, read: Callable[[], Mapping[str, torch.Tensor]]) -> None:
        self._read = cache(read)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def _without_keys(corpus: IndexedCorpus, kept: Sequence[KeptVideo]) -> VideoEncoding:
    """Encodings whose keys, half of what is kept of a video, are read only if the system looks at them."""
    whole = cache(lambda: unpacked(corpus.keys.encodings([video.video_id for video in kept])))
    return replace(
        unpacked(kept), keys=_OnDemand(lambda: whole().keys), key_masks=_OnDemand(lambda: whole().key_masks)
    )


def open_search(
    store: Store, registry: EncoderRegistry, model: OpenedModel, segments: float | None = None
) -> TrainedSearch:
    """A trained system, and its retriever, on a corpus; by segments of so many seconds, or by whole videos.

    Raises EncoderMismatch, EncoderUnavailable; UsageError for what chooses no segments, and for segments of a
    length that does not fit it.
    """

    def untrained() -> Searcher:
        return Searcher(store, registry.usable()[0])

    first = model.retriever or model
    if segments is None:
        retriever = None if first is model else open_indexed(store, registry, first)
        return TrainedSearch(store, open_indexed(store, registry, model), retriever, None, untrained)
    if not can_retrieve(first.trained.model):
        raise UsageError(
            f"{first.name} ({first.trained.system}) chooses no videos, and so no segments; name a retriever"
        )
    clips = segment_clips(first.trained.inputs, segments, first.name)
    settings = SegmentSettings(clips * first.trained.inputs.clip_seconds)
    chooser = open_indexed(store, registry, first, clips)
    localizer = chooser if first is model else open_indexed(store, registry, model)
    return TrainedSearch(store, localizer, chooser, settings, untrained)


System = str | os.PathLike[str] | Trained
"""A trained system: a folder, a hub's name, or an object."""


ORDER = 100


def recognises(model: System) -> bool:
    """True: every name is taken for a trained system's."""
    return True


def on(store: Store, encoders: EncoderRegistry, shared: dict[str, OpenedModel]) -> CorpusSystems:
    """The trained systems of one corpus; `shared` are those that are loaded."""
    return CorpusSystems(store, encoders, shared)


def trained_on(corpus: Corpus, model: System, retriever: System | None = None) -> TrainedSearch:
    """A trained system on a corpus. Raises UsageError where another plugin answers to that name."""
    finder = corpus.finder(model, retriever)
    if not isinstance(finder, TrainedSearch):
        raise UsageError(f"{finder.name} is no trained system; name the folder of one")
    return finder


class CorpusSystems:
    """Trained systems on one handle of a corpus."""

    def __init__(
        self, store: Store, encoders: EncoderRegistry, loaded: dict[str, OpenedModel] | None = None
    ) -> None:
        """`loaded` systems are shared with other handles."""
        self._store, self._encoders = store, encoders
        self._loaded = {} if loaded is None else loaded
        self._searches: dict[str, tuple[Any, TrainedSearch]] = {}

    def search(
        self, model: System, retriever: System | None = None, segments: float | None = None
    ) -> TrainedSearch:
        """A trained system on whole videos, or on segments of so many seconds.

        `retriever` chooses the videos for it, in place of the one that a staged run names.
        """
        opened, name = self._open(model, retriever)
        state, name = (opened, self._store.streams), f"{name}\0{segments and float(segments)}"
        if name not in self._searches or self._searches[name][0] != state:
            self._searches[name] = state, open_search(self._store, self._encoders, opened, segments)
        return self._searches[name][1]

    def _open(self, model: System, retriever: System | None) -> tuple[OpenedModel, str]:
        """A trained system with its retriever, and what distinguishes the pair from others."""
        given, name = _named(model)
        chooser, chooser_name = (None, "") if retriever is None else _named(retriever)
        name = f"{name}\0{chooser_name}"
        opened = self._loaded.get(name)
        if opened is None or not opened.is_current:
            opened = self._loaded[name] = open_model(given, chooser)
        return opened, name


def _named(model: System) -> tuple[str | Trained, str]:
    """A trained system as it is opened, and what distinguishes it from others."""
    if isinstance(model, Trained):
        return model, f"python:{id(model)}"
    return os.fspath(model), os.fspath(model)
