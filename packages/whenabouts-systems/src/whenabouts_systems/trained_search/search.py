"""Search a corpus with a trained system: from nearest keys to candidates, exact scores and moments.

`whenabouts/corpus.py` loads this module through the entry point `trained` of `whenabouts.moment_finders`, and
calls `recognises` and `on`.

The index holds the system's encodings and keys of each video (`search_keys.py`, `index/keys.py`). They are
made on first use and updated whenever videos were added, changed or removed (`opened.py`). For a system
without keys, the untrained search chooses and scores the videos. Two systems may share the work
(`models/staged.py`): the retriever chooses videos by its keys and scores, the localizer finds their moments.
The index holds the encodings of both.

Long videos may be searched by segments, because a system with positions for 100 clips reads an hour as 100
clips of 36 seconds. The index then holds the retriever's keys of segments of a few seconds:

1. the segments with the nearest keys are scored exactly;
2. the best of them are joined to proposals;
3. the localizer searches each proposal with some padding; these windows depend on the query, so they are
   encoded for each query.

In a corpus of at most `SCORED_SEGMENTS` segments, the answers equal those of `whenabouts run --segments
--nms 0` on the exported features. In a larger one the keys choose the segments that are scored.
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
"""How many videos, those with the nearest keys, have their moments scored. Of 20,000 videos, the 200 to 400
with the nearest keys (by exact search) held all of XML's ten best moments."""
EXACT_VIDEOS = 40
"""How many of these, those with the best moments, are scored exactly; all if the corpus has no more."""
RETRIEVED_VIDEOS = 100
"""The videos with the nearest keys that get an exact retrieval score before a localizer searches the best."""
SCORED_SEGMENTS = 400
"""The number of segments with the nearest keys that get an exact score; all, if there are no more."""
SHARED_TIME = 0.0
"""The IoU above which a better moment of the same video suppresses an answer: any overlap, as in the
untrained search. The threshold of a checkpoint's paper is for `run` and for evaluation."""
_EXACT_PER_MOMENT = 2
# Bytes of candidates that are unpacked at a time: reused memory costs no page faults (a search with HERO took
# 163 ms of processor time with all candidates at once, and 118 ms with this limit).
_PART_BYTES = 16 << 20
# The background scores are measured again once the number of videos has changed by more than this share.
_CHANGED = 0.1


@dataclass(frozen=True, eq=False)
class Retrieved:
    """The videos that a retriever chose for a query: `scores` by id, best first.

    `corpus` holds at least these videos, None if none was chosen; `query` is the retriever's encoding.
    """

    scores: Mapping[str, float]
    query: QueryEncoding
    corpus: MemoryCorpus | None


class TrainedSearch:
    """Finds moments in one corpus with one or two trained systems; a `search.Finder`.

    `retriever`, if given, chooses the videos; otherwise the localizer does. With `segments` the retriever
    chooses segments (it may be the localizer itself); if the localizer finds no moments, the answers are the
    proposals. `untrained` chooses and scores videos for a system without keys.
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
            localizer_inputs, chooser_inputs = localizer.trained.inputs, self._chooser.trained.inputs
            self._rows = StoredRows(store, chooser_inputs)
            self._localizer_rows = (
                self._rows if localizer_inputs == chooser_inputs else StoredRows(store, localizer_inputs)
            )

    @property
    def name(self) -> str:
        """The localizer's name for users."""
        return self.localizer.name

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that the systems read, with the transcript if one reads sentences (HERO)."""
        inputs = [system.trained.inputs for system in self._systems]
        words = [transcript_of(self._store, read) for read in inputs]
        return tuple(
            dict.fromkeys(filter(None, [*chain.from_iterable(read.streams for read in inputs), *words]))
        )

    @property
    def _chooser(self) -> IndexedSystem:
        return self.retriever or self.localizer

    @property
    def is_kept(self) -> bool:
        """Whether the index holds the keys of the retriever, for some or all videos."""
        return self._chooser.is_kept

    def prepare(self, *, wait: float = WAIT_SECONDS, progress: Progress | None = None) -> int:
        """Encode new and changed videos; return the number of all. Raises CorpusBusy and UsageError."""
        if self.segments is not None:
            return self._chooser.prepare(wait=wait, progress=progress).keys.count()
        for system in reversed(self._systems):
            corpus = system.prepare(wait=wait, progress=progress)
        return corpus.keys.count()

    def find(self, text: str, k: int, allowed: Sequence[str] | None) -> RankedMoments:
        """At most `k` moments for a query, best first, in the `allowed` videos (None: all)."""
        notes = [note for system in self._systems for note in system.notes]
        if self.segments is not None:
            return self._find_by_segments(text, k, allowed, notes)
        corpora = [system.corpus() for system in self._systems]
        notes += [note for _, corpus_notes in corpora for note in corpus_notes]
        pairs = zip(self._systems, corpora, strict=True)
        unread = (system.notes_on_unread(encoded) for system, (encoded, _) in pairs)
        corpus = corpora[0][0]
        notes += [*next((note for note in unread if note), []), *self.localizer.notes_on_long(corpus)]
        for other, _ in corpora[1:]:  # while another program writes, each may have encoded other videos
            allowed = other.names(other.allowed(allowed))
        mask = corpus.allowed(allowed)
        if not mask.any():
            return RankedMoments([], notes)
        moments = self._moments(corpus, text, k, mask)
        confidence = self.localizer.model.confidence
        if confidence is None or not moments:
            return RankedMoments(moments, notes)
        if self._is_scored_untrained:
            why = f"{self.name} was calibrated alone, but here the untrained search scores videos"
            return RankedMoments(moments, [*notes, f"no confidence: {why}"])
        try:
            background = self._chance(corpus, confidence) if confidence.definition == "margin" else None
        except UsageError as error:
            return RankedMoments(moments, [*notes, f"no confidence: {error}"])
        confidences = confidence.of_scores([moment.score for moment in moments], background).tolist()
        moments = [
            replace(moment, confidence=share) for moment, share in zip(moments, confidences, strict=True)
        ]
        measured = f"confidence was measured on {confidence.about['split']}, not on this corpus"
        return RankedMoments(moments, [*notes, measured], confidence.thresholds)

    def _chance(self, corpus: IndexedCorpus, confidence: TrainedConfidence) -> Background:
        """The best scores of the calibration's unrelated sentences in this corpus.

        They are measured on first use and stored until the number of videos has changed by more than a tenth;
        videos that replace as many others do not count. They come from the whole corpus even if a search is
        limited to some videos; confidence is then too low rather than too high.
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
        """The k best moments in the candidate videos, with their evidence."""
        trained = self.localizer.trained
        query = self.localizer.encode(text)
        retrieved = None
        if self.retriever is None:
            rows = self._likeliest(corpus, text, query, k, allowed)
        else:
            count = min(trained.decoding.top_videos, max(EXACT_VIDEOS, _EXACT_PER_MOMENT * k))
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
            keyed, keyed_query = videos, query
            places = Places(moments.video, moments.first, moments.last, np.zeros(len(moments)))
        else:
            keyed, keyed_query = retrieved.corpus, retrieved.query
            places = _places(moments, videos, keyed)
        return self._with_evidence(keyed_query, keyed, moments, videos.ids, places)

    @property
    def _is_scored_untrained(self) -> bool:
        """Whether the untrained search scores videos: the localizer adds such scores but gives none."""
        model = self.localizer.trained.model
        chooses = self.retriever is not None or can_retrieve(model)
        return not chooses and bool(model.video_weight) and self._untrained is not None

    def _untrained_scores(self, text: str, videos: MemoryCorpus) -> torch.Tensor:
        """(1, V) video scores of the untrained search; zeros if they are not used."""
        trained = self.localizer.trained
        scores = np.zeros(len(videos))
        if self._is_scored_untrained:
            assert self._untrained is not None
            scores = self._untrained().retrieval.video_scores(text, list(trained.inputs.streams), videos.ids)
        return torch.tensor(scores[None], dtype=torch.float32, device=device_of(trained.model))

    def _ranked(self, videos: MemoryCorpus, query: QueryEncoding, candidates: Candidates, k: int) -> Moments:
        """The k best moments that do not overlap; whole videos if the system finds no moments."""
        trained = self.localizer.trained
        if can_localize(trained.model):
            return rank(trained, videos, query, candidates, self._decoding, limit=k, exact=True, cut=True)
        best = candidates.first(k)
        rows, score = best.rows[0].cpu().numpy(), best.scores[0].double().cpu().numpy()
        last = videos.take(rows).mask.sum(1).cpu().numpy() - 1
        return replace(Moments.whole(np.zeros_like(rows), rows, score, videos.durations[rows]), last=last)

    def retrieved(self, text: str, count: int, allowed: Sequence[str] | None) -> Retrieved:
        """The `count` videos with the best exact scores of the chooser, among those with the nearest keys.

        In a small corpus all videos are scored.
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
        """The videos with the nearest keys, and the keys' scores.

        `counts` is (few, many): with at most `few` allowed videos all are returned, else about `many`. The
        scores are None if no keys were searched.
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
        """The rows of the videos with the best moments, with the scores of the keys as video scores."""
        few = max(EXACT_VIDEOS, _EXACT_PER_MOMENT * k)
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
        """(V,) the score of each video's best moment, without the video's score."""
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
        """Videos, all of their segments, and the ascending numbers (N,) of the segments to score.

        The segments to score are those with the nearest keys, or all if there are few.
        """
        assert self.segments is not None
        rows = np.flatnonzero(allowed)
        kept = corpus.kept(rows) if len(rows) <= SCORED_SEGMENTS else None
        if kept is not None and self._count(kept) <= SCORED_SEGMENTS:
            segments = Units.cut(StoredFootage(self._rows, kept), self.segments.seconds)
            return kept, segments, np.arange(len(segments))
        units, _ = corpus.nearest(_search_vectors(query), SCORED_SEGMENTS, allowed)
        rows, number = corpus.place_of(units)
        kept = corpus.kept(np.unique(rows))
        segments = Units.cut(StoredFootage(self._rows, kept), self.segments.seconds)
        place = {video.video_id: at for at, video in enumerate(kept)}
        video = np.array([place.get(corpus.ids[row], len(kept)) for row in rows.tolist()], np.int64)
        borders = np.searchsorted(segments.video, np.arange(len(kept) + 2))
        numbers = borders[video] + number
        return kept, segments, np.unique(numbers[numbers < borders[video + 1]])

    def _count(self, kept: Sequence[KeptVideo]) -> int:
        """The number of segments of some videos."""
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
        """Score segments exactly, join the best to proposals, and find the best moments in these."""
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
            localizer_footage = StoredFootage(self._localizer_rows, kept)
            localizer_footage.read_ahead(proposals.video)
            localizer_query = query if self.localizer is self._chooser else self.localizer.encode(text)
            moments = rank_proposals(
                trained,
                localizer_footage,
                localizer_query,
                proposals,
                self._decoding,
                self.segments.padding_seconds,
                nms=SHARED_TIME,
                limit=k,
            )
        else:
            score = proposals.score.astype(np.float64)
            whole = Moments.whole(proposals.query, proposals.video, score, proposals.end)
            moments = best_first(replace(whole, start=proposals.start), names, SHARED_TIME, k)
        # The evidence of a moment is its clip with the nearest key, so each moment is encoded for its keys.
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
    """Stream -> the search vector (D,) of one query."""
    return {stream: vectors[0].float().cpu().numpy() for stream, vectors in query.search.items()}


def _places(moments: Moments, corpus: MemoryCorpus, keyed: MemoryCorpus) -> Places:
    """The places in `keyed` of moments in `corpus`, which has the same videos in other rows."""
    rows = keyed.rows_of([corpus.ids[row] for row in moments.video.tolist()])
    first, last = clip_spans(moments.start, moments.end, keyed.clip_seconds[rows])
    return Places(rows, first, last, np.zeros(len(rows)))


class _OnDemand(Mapping[str, torch.Tensor]):
    """A mapping of tensors by name, read on first use."""

    def __init__(self, read: Callable[[], Mapping[str, torch.Tensor]]) -> None:
        self._read = cache(read)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def _without_keys(corpus: IndexedCorpus, kept: Sequence[KeptVideo]) -> VideoEncoding:
    """Encodings of videos, whose keys (half of the stored bytes) are read only if the system uses them."""
    whole = cache(lambda: unpacked(corpus.keys.encodings([video.video_id for video in kept])))
    return replace(
        unpacked(kept), keys=_OnDemand(lambda: whole().keys), key_masks=_OnDemand(lambda: whole().key_masks)
    )


def open_search(
    store: Store, registry: EncoderRegistry, model: OpenedModel, segments: float | None = None
) -> TrainedSearch:
    """The search of a corpus with a trained system and its retriever.

    `segments` searches by segments of this many seconds, None by whole videos. Raises EncoderMismatch and
    EncoderUnavailable; UsageError if the retriever cannot choose segments, or their length does not fit it.
    """

    def untrained() -> Searcher:
        return Searcher(store, registry.usable()[0])

    first = model.retriever or model
    if segments is None:
        retriever = None if first is model else open_indexed(store, registry, first)
        return TrainedSearch(store, open_indexed(store, registry, model), retriever, None, untrained)
    if not can_retrieve(first.trained.model):
        raise UsageError(
            f"{first.name} ({first.trained.system}) cannot choose videos or segments; name a retriever"
        )
    clips = segment_clips(first.trained.inputs, segments, first.name)
    settings = SegmentSettings(clips * first.trained.inputs.clip_seconds)
    chooser = open_indexed(store, registry, first, clips)
    localizer = chooser if first is model else open_indexed(store, registry, model)
    return TrainedSearch(store, localizer, chooser, settings, untrained)


System = str | os.PathLike[str] | Trained
"""A trained system: a folder, a hub's name, or an object."""


ORDER = 100
"""Asked last of all finders, because it accepts every name."""


def recognises(model: System) -> bool:
    """True, because every name may be that of a trained system."""
    return True


def on(store: Store, encoders: EncoderRegistry, shared: dict[str, OpenedModel]) -> CorpusSystems:
    """The trained systems on one corpus; `shared` holds the systems that are already loaded."""
    return CorpusSystems(store, encoders, shared)


def trained_on(corpus: Corpus, model: System, retriever: System | None = None) -> TrainedSearch:
    """The search of a corpus with a trained system. Raises UsageError if the name is another plugin's."""
    finder = corpus.finder(model, retriever)
    if not isinstance(finder, TrainedSearch):
        raise UsageError(f"{finder.name} is not a trained system; give the folder of one")
    return finder


class CorpusSystems:
    """Trained systems on one handle of a corpus."""

    def __init__(self, store: Store, encoders: EncoderRegistry, loaded: dict[str, OpenedModel]) -> None:
        """`loaded` systems are shared with other handles of corpora."""
        self._store, self._encoders, self._loaded = store, encoders, loaded
        self._searches: dict[str, tuple[Any, TrainedSearch]] = {}

    def search(
        self, model: System, retriever: System | None = None, segments: float | None = None
    ) -> TrainedSearch:
        """The search with a trained system of whole videos, or of segments of `segments` seconds.

        `retriever` chooses the videos for it and replaces the retriever of a staged run.
        """
        opened, name = self._open(model, retriever)
        state, name = (opened, self._store.streams), f"{name}\0{segments and float(segments)}"
        if name not in self._searches or self._searches[name][0] != state:
            self._searches[name] = state, open_search(self._store, self._encoders, opened, segments)
        return self._searches[name][1]

    def _open(self, model: System, retriever: System | None) -> tuple[OpenedModel, str]:
        """A trained system with its retriever, and a key of the pair for caching."""
        given, name = _named(model)
        chooser, chooser_name = (None, "") if retriever is None else _named(retriever)
        name = f"{name}\0{chooser_name}"
        opened = self._loaded.get(name)
        if opened is None or not opened.is_current:
            opened = self._loaded[name] = open_model(given, chooser)
        return opened, name


def _named(model: System) -> tuple[str | Trained, str]:
    """A trained system for `open_model`, and its key for caching."""
    if isinstance(model, Trained):
        return model, f"python:{id(model)}"
    return os.fspath(model), os.fspath(model)
