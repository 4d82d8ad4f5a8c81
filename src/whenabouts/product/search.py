"""The way of a query: text, example -> encoder -> index (nearest clips) -> stream (moments in them) -> rank.

Every answer comes through `Searcher.search`: the command line, Python, a server, and the evaluation of a
run on a corpus.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from whenabouts.confidence.alike import Alike
from whenabouts.confidence.alike import curves as curves_alike
from whenabouts.confidence.background import Language
from whenabouts.confidence.chance import Chance
from whenabouts.confidence.probability import Probability, general
from whenabouts.models.fusion import fuse
from whenabouts.models.zero_shot import Moments
from whenabouts.product import alike
from whenabouts.product.allowed import EVERYWHERE, Allowed, cut, inside
from whenabouts.product.answer_probability import ProbableMoments, with_probabilities
from whenabouts.product.coverage import Coverage, coverage_of, with_clips
from whenabouts.product.example import Example
from whenabouts.product.index.absent import is_gone
from whenabouts.product.index.filters import Filter
from whenabouts.product.index.records import ClipBlock, ClipHits, VideoRecord, unambiguous
from whenabouts.product.index.store import Store
from whenabouts.product.people import People
from whenabouts.product.query_language import (
    language_apart,
    note_on_languages,
    note_on_strange,
    strange_language,
    understands,
)
from whenabouts.product.reranking import FEATURES, features_of, learned_reranking, reranked
from whenabouts.product.snippet import weights_of
from whenabouts.product.streams import all_streams
from whenabouts.product.streams import stream as stream_named
from whenabouts.product.streams.protocol import QueryEncoder, QueryKind, Stream
from whenabouts.product.word_units import Rarity
from whenabouts.types import Moment, ScoredMoment, UsageError, WhenaboutsError, number_of

if TYPE_CHECKING:
    from whenabouts.checkers.protocol import Checker
    from whenabouts.models.trained import Trained
    from whenabouts.product.example import Like

from whenabouts.product.finder import Finder
from whenabouts.product.ranked_streams import ChanceOf, ranked
from whenabouts.product.search_result import SearchResult
from whenabouts.product.stored_calibration import NOT_CALIBRATED, Calibration
from whenabouts.product.stream_answer import (
    NOT_ENCODED,
    EncodedQuery,
    EncodedTexts,
    StreamAnswer,
    StreamQuery,
    TextVectors,
)
from whenabouts.product.verdict import UNCALIBRATED, judged, judged_alike, judged_by

# Clips that the index retrieves; videos whose clips are then looked at one by one. Within some videos every
# match counts, over all of them the best few hundred find the same moments (docs/finding.md).
NEAREST_CLIPS = 200
MATCHED_CLIPS = 1000
MATCHED_CLIPS_WITHIN = 1000
CANDIDATE_VIDEOS = 40
# A sentence encoder reads 256 word pieces; what is longer costs time and adds nothing.
MOST_QUERY_WORDS = 256
MOST_K = 1000
MOST_CHECKED = 50
MOST_PLACES = 10_000
"""Moments that `all` lists at most; what comes behind is listed with `skip`."""
# Added to the lowest score: no moment reaches over clips that are no answer.
_NO_ANSWER = -10.0
_TEXT: frozenset[QueryKind] = frozenset({"text"})
_MADE_OF: Mapping[QueryKind, str] = {"text": "words", "picture": "a picture", "moment": "a moment"}


# With only some stretches allowed, a trained system is asked for so many times the moments.
_MORE_OF_MODEL = 10


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What narrows a search and what answers it: the same for the command line, REST and Python.

    At most `k` moments (10), none with less than `min_confidence`. `within` are videos by id, name or path;
    `streams` leaves only these; `after` (included) and `before` (excluded) are dates of recording; `where`
    are conditions such as "camera=drone*". `model` is a trained system that finds the moments: a folder, a
    hub's name or an object. On first use, and when videos have come or changed, it encodes them.
    `retriever` is another one that chooses the videos for it, in place of the one that a staged run names.
    `segments` (seconds, such as 4) is for long videos: pieces of that length are chosen, and the model
    looks into these. `like` is an example, with or without words beside it: the file of a picture, VIDEO@T,
    VIDEO@START-END, a picture as an array (H, W, 3) of RGB, a `Moment` or an `Example`.
    `all` lists every place where all of the query is said, in order of video and time, from
    the one behind the first `skip` on: all of them up to `MOST_PLACES`, or `k`. `check` is a checker
    (`whenabouts.checkers`), or its name, that looks at the first `check_best` moments once more, within about
    `check_seconds` (`checking.py`).

    Raises UsageError for options that cannot be honoured together.
    """

    k: int | None = None
    within: str | Sequence[str] = ()
    streams: str | Sequence[str] = ()
    min_confidence: float = 0.0
    after: str | datetime | None = None
    before: str | datetime | None = None
    where: str | Sequence[str] = ()
    model: str | os.PathLike[str] | Trained | None = None
    retriever: str | os.PathLike[str] | Trained | None = None
    segments: float | None = None
    all: bool = False
    skip: int = 0
    like: Like | None = None
    check: Checker | str | None = None
    check_best: int = 5
    check_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("within", "streams", "where"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        if self.model is not None and self.streams:
            raise UsageError("a trained system searches its own streams; leave out the streams, or the model")
        if self.model is None and self.retriever is not None:
            raise UsageError(
                "a retriever chooses videos for a trained system; name that as well (--model, model=)"
            )
        if self.model is None and self.segments is not None:
            raise UsageError("segments are chosen for a trained system; name that as well (--model, model=)")
        if self.all and (self.model is not None or self.min_confidence):
            raise UsageError(
                "every place where it is said is listed without a trained system and without a least "
                "confidence; leave those out, or --all (all=)"
            )
        if self.like is not None and (self.model is not None or self.all):
            raise UsageError(
                "an example (--like, like=) is compared by streams; neither a trained system nor a list of "
                "all places takes one: leave out --model (model=) and --all (all=), or the example"
            )
        if self.check is not None and self.all:
            raise UsageError(
                "every place where it is said is not checked; leave out the check, or --all (all=)"
            )
        if not 1 <= self.check_best <= MOST_CHECKED:
            raise UsageError(f"check_best is {self.check_best}; check 1 to {MOST_CHECKED} moments")
        if not 0 < self.check_seconds < math.inf:
            raise UsageError(f"check_seconds is {self.check_seconds}; give seconds, more than 0")
        if self.skip < 0 or (self.skip and not self.all):
            raise UsageError(f"skip is {self.skip}; give 0 or more, together with --all (all=)")

    @property
    def count(self) -> int:
        """At most how many moments: `k`, or what it is without one."""
        if self.k is not None:
            return self.k
        return MOST_PLACES if self.all else 10


class Searcher:
    """Answers queries on one store; asking changes nothing.

    `encoders` maps streams to what queries are encoded with; a stream without one is searched by its
    words only, or not at all. `calibration` is what has been measured of the streams (`calibration/`);
    without it moments are still ordered, but without a confidence.
    Streams that are `broken` (their encoder cannot be used here) are left out, with a note; one that is
    asked for by name, or that is the last, raises its error.
    """

    def __init__(
        self,
        store: Store,
        encoders: Mapping[str, QueryEncoder],
        calibration: Calibration = NOT_CALIBRATED,
        probability: Probability | None = None,
        *,
        broken: Mapping[str, WhenaboutsError] = MappingProxyType({}),
    ) -> None:
        self._store = store
        self._encoders = dict(encoders)
        self._calibration = calibration
        self._probability = probability or general(calibration.adjustment)
        self._rarity: dict[str, tuple[Any, Rarity]] = {}
        self._broken = dict(broken)
        self._understood: dict[str, bool] = {}
        self._streams = {name: stream_named(name) for name in store.streams}
        self._people = People(store)
        self._covered: tuple[tuple[int, tuple[str, ...]], Coverage] | None = None
        self._holding: tuple[int, Mapping[str, Collection[str]]] | None = None

    @property
    def store(self) -> Store:
        """The store that is searched."""
        return self._store

    @property
    def calibration(self) -> Calibration:
        """What has been measured of the streams."""
        return self._calibration

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams that can be searched by words."""
        return tuple(name for name in self._streams if "text" in self._kinds(name))

    def _kinds(self, name: str) -> frozenset[QueryKind]:
        """The kinds of query that a stream can meet here; without its encoder, moments of its own alone."""
        kinds = self._streams[name].meets
        if name in self._broken:
            return kinds & {"moment"}
        return kinds if self._store.streams[name].dimension else kinds & _TEXT

    @property
    def _curves_alike(self) -> dict[str, Alike]:
        """What a cosine with an example says, of each stream whose network that was learned of."""
        learned = curves_alike()
        encoders = {name: info.encoder for name, info in self._store.streams.items()}
        return {name: learned[encoder] for name, encoder in encoders.items() if encoder in learned}

    def chance(self, stream: str, video_id: str) -> Chance | None:
        """What unrelated sentences score in a stream among videos like one; None: that was not measured."""
        return self._calibration.group(stream, self.language_of(video_id)).chance

    def language_of(self, video_id: str) -> str:
        """The language of a video's words, "" where that is not known."""
        record = self._store.ledger().by_id.get(video_id)
        return "" if record is None else record.language

    def withheld(self, ranked: Sequence[ScoredMoment]) -> str:
        """Why the first moment has no confidence; "" where there is one, or nothing was measured."""
        if not ranked:
            return ""
        language = self.language_of(ranked[0].video_id)
        groups = (self._calibration.group(name, language) for name in ranked[0].evidence)
        return next((group.withheld for group in groups if group.withheld), "")

    def search(
        self,
        text: str,
        *,
        k: int = 10,
        filter: Filter | None = None,
        streams: Sequence[str] = (),
        min_confidence: float = 0.0,
        model: Finder | None = None,
        like: Example | None = None,
        encoded: EncodedTexts = NOT_ENCODED,
    ) -> SearchResult:
        """At most `k` moments for a sentence, an example or both, best first; by `model` where one is given.

        `encoded` are queries that were encoded together (see `encoded`), with or without this one. Raises
        UsageError for an empty query, a `k` that is no number of moments, an unknown stream, and where no
        stream can compare what is asked.
        """
        if like is not None:
            return self._search_like(text, like, k, filter, streams, min_confidence)
        words, notes = checked_query(text, k, min_confidence)
        allowed = self.allowed(filter)
        notes += allowed.notes
        interval = None
        if model is not None:
            count = k if allowed.spans is None else min(MOST_K, k * _MORE_OF_MODEL)
            by_model = model.find(words, count, allowed.videos)
            ranked = allowed.moments(by_model.moments)
            answer, doubt = judged_by(by_model, model)
            notes += by_model.notes
        else:
            answers, probable = self.answered(words, allowed, streams, encoded)
            ranked = list(probable.moments)
            interval = self.interval(ranked)
            answer, doubt = judged(words, probable, answers, interval, self.withheld(ranked))
            notes += self._notes_on_languages(words)
            if not streams:
                notes += [f"stream {name} was not searched: {error}" for name, error in self._broken.items()]
        kept = [scored for scored in ranked if (scored.confidence or 0.0) >= min_confidence][:k]
        kept = kept if model is not None else self._with_snippets(words, kept, answers)
        if min_confidence and ranked and not kept and ranked[0].confidence is None:
            notes.append(f"{doubt or UNCALIBRATED}; ask without a least confidence")
        moments, videos = self.with_records(kept)
        if not moments:
            answer, doubt, interval = "no_match", "", None
        notes += gone_notes(videos.values())
        if answer == "no_match" and self._broken and model is None and not streams:
            # What was not looked at is never said to be without an answer.
            answer, interval = "unsure", None
            doubt = f"{' and '.join(self._broken)} could not be searched"
        rates = self._calibration.rates if model is None else None
        coverage = self.coverage(allowed.videos, streams if model is None else model.streams)
        rest = (doubt, rates, coverage, interval)
        return SearchResult(unambiguous(text), answer, moments, videos, tuple(notes), *rest)

    def answered(
        self,
        words: str,
        allowed: Allowed = EVERYWHERE,
        streams: Sequence[str] = (),
        encoded: EncodedTexts = NOT_ENCODED,
    ) -> tuple[list[StreamAnswer], ProbableMoments]:
        """What each stream has to say to a query, and the moments of all with their probabilities."""
        answers, _ = self._find_in(words, None, allowed, streams, encoded)
        return answers, self.with_probabilities(words, self.rank(answers), answers)

    def _search_like(
        self,
        text: str,
        like: Example,
        k: int,
        filter: Filter | None,
        streams: Sequence[str],
        min_confidence: float,
    ) -> SearchResult:
        """The moments that are like an example; how sure, where that was measured: of pictures alone."""
        words, notes = checked_query(text, k, min_confidence, is_optional=True)
        allowed = self.allowed(filter)
        answers, encoded = self._find_in(words, like, allowed, streams)
        if words:
            notes += [
                f"{answer.stream} was asked for the words alone: it has nothing to compare with {like.name}"
                for answer in answers
                if not encoded.streams[answer.stream].is_alike
            ]
        ranked = self.rank(answers, _unmeasured)
        if not words:
            ranked = alike.with_probabilities(ranked, answers, self._curves_alike)
        answer, doubt = judged_alike(ranked)
        kept = [scored for scored in ranked if (scored.confidence or 0.0) >= min_confidence][:k]
        if min_confidence and ranked and ranked[0].confidence is None:
            notes.append(f"{doubt}; ask without a least confidence")
        moments, videos = self.with_records(self._with_snippets(words, kept, answers) if words else kept)
        return SearchResult(
            unambiguous(text),
            answer if moments else "no_match",
            moments,
            videos,
            (*notes, *allowed.notes, *gone_notes(videos.values())),
            doubt if moments else "",
            coverage=self.coverage(allowed.videos, [answer.stream for answer in answers]),
            like=unambiguous(like.name),
        )

    def _notes_on_languages(self, query: str) -> list[str]:
        """What to say where an encoder does not know the language of some videos."""
        calibration = self._calibration
        spoken = self._store.ledger().languages
        strange = strange_language(query, spoken)
        if strange is not None and not self._is_understood(strange):
            return [note_on_strange(strange, spoken)]
        if not calibration.note:
            return []
        return [note_on_languages(query, spoken, calibration.foreign) or calibration.note]

    def _is_understood(self, language: Language) -> bool:
        """Whether an encoder of words knows a language; found out once, in some tenths of a second."""
        if language.code not in self._understood:
            encoders = [
                own for name, own in self._encoders.items() if self._streams[name].has_words is not False
            ]
            self._understood[language.code] = any(understands(encoder, language) for encoder in encoders)
        return self._understood[language.code]

    def with_records(
        self, moments: Iterable[ScoredMoment]
    ) -> tuple[tuple[ScoredMoment, ...], dict[str, VideoRecord]]:
        """Moments with path and title of their videos, and these; videos that are gone are left out."""
        moments = list(moments)
        ids = sorted({scored.video_id for scored in moments})
        # A video may be taken out between the two reads; what is gone is no answer.
        videos = {record.video_id: record for record in self._store.ledger().of(ids)}
        return tuple(
            replace(scored, path=videos[scored.video_id].path, title=videos[scored.video_id].title)
            for scored in moments
            if scored.video_id in videos
        ), videos

    def coverage(self, allowed: Sequence[str] | None = None, streams: Sequence[str] = ()) -> Coverage:
        """Which videos a search speaks for, and by which streams; of the whole corpus it is kept."""
        key = (self._store.version, tuple(streams))
        if allowed is None and self._covered is not None and self._covered[0] == key:
            return self._covered[1]
        ledger = self._store.ledger()
        videos = ledger.records if allowed is None else ledger.of(allowed)
        if self._holding is None or self._holding[0] != key[0]:
            self._holding = key[0], with_clips(self._store, self.streams)
        coverage = coverage_of(videos, streams, streams or self.streams, self._holding[1])
        if allowed is None:
            self._covered = key, coverage
        return coverage

    def find_all(
        self,
        text: str,
        filter: Filter | None = None,
        streams: Sequence[str] = (),
        encoded: EncodedTexts = NOT_ENCODED,
    ) -> list[StreamAnswer]:
        """What each stream has to say to a query."""
        return self._find_in(text, None, self.allowed(filter), streams, encoded)[0]

    def allowed(self, filter: Filter | None) -> Allowed:
        """What a filter leaves, and notes on the filter."""
        if filter is None or filter.is_empty:
            return EVERYWHERE
        videos, people = self._store.ledger().records, self._people.streams
        of_videos, of_people = filter.parted(people)
        ids = of_videos.choose(videos)
        notes, spans = of_videos.notes(videos, people), None
        for condition in of_people:
            own, note = self._people.allowed(condition, self._store.ledger().of(ids))
            spans = own if spans is None else spans & own
            notes += [note] if note else []
        if spans is not None:
            ids = [video_id for video_id in ids if video_id in spans.by_video]
        if not ids and not notes:
            notes = [f"none of the {number_of(len(videos), 'video')} of this corpus passes the filters"]
        return Allowed(ids, spans, tuple(notes))

    def _find_in(
        self,
        text: str,
        like: Example | None,
        allowed: Allowed,
        streams: Sequence[str],
        encoded_before: EncodedTexts = NOT_ENCODED,
    ) -> tuple[list[StreamAnswer], EncodedQuery]:
        """What each stream has to say, and the query as it was asked."""
        kinds = frozenset(kind for kind in ("text" if text else None, like and like.kind) if kind)
        chosen = self.chosen(streams, kinds)
        encoded = self.encode(text, chosen, like, encoded_before)
        answering = [
            name
            for name, query in encoded.streams.items()
            if query.vector is not None or (text and "text" in self._kinds(name))
        ]
        if not answering and like is not None:
            titles = " or ".join(self._streams[name].title for name in chosen)
            raise UsageError(
                f"{like.name}: this corpus has no {titles} there that others could be compared with"
            )
        return [self.search_stream(stream, encoded, allowed) for stream in answering], encoded

    def chosen(self, streams: Sequence[str], kinds: frozenset[QueryKind] = _TEXT) -> list[str]:
        """Some streams, each once, that can meet one of the `kinds` of a query; none given: all that can.

        Raises UsageError for one that is not there or cannot, and the error of one that is broken.
        """
        named = [self._store.stream(name).name for name in dict.fromkeys(streams)]
        chosen = [name for name in named or self._streams if self._kinds(name) & kinds]
        unable = [name for name in named if name not in chosen] or ([] if chosen else [*self._streams])
        for name in unable:
            if name in self._broken and self._streams[name].meets & kinds:
                raise self._broken[name]
        if unable:
            raise UsageError(_cannot_meet(unable, kinds))
        return chosen

    def encode(
        self,
        text: str,
        streams: Iterable[str],
        like: Example | None = None,
        encoded: EncodedTexts = NOT_ENCODED,
    ) -> EncodedQuery:
        """Encode a query, once for each stream that can compare it; not again what is `encoded`."""
        names = list(streams)
        missing = [name for name in names if (name, text) not in encoded.vectors]
        vectors = {**encoded.vectors, **self.encoded([text], missing)}
        queries = {name: self._stream_query(name, vectors.get((name, text)), like) for name in names}
        if like is None:
            queries = {
                name: replace(query, nearest=encoded.hits(name, text, partial(self._state_of, name)))
                for name, query in queries.items()
            }
        return EncodedQuery(text, queries, None if like is None else like.apart)

    def encoded(self, texts: Sequence[str], streams: Iterable[str] | None = None) -> TextVectors:
        """Queries as streams (None: all) compare them by words; each encoder is called once for all of them.

        What is encoded together changes a vector by rounding alone, some 1e-7.
        """
        texts, vectors = [*filter(None, dict.fromkeys(texts))], dict[tuple[str, str], NDArray[np.float32]]()
        by_encoder: dict[int, NDArray[np.float32]] = {}
        for name in self._streams if streams is None else streams:
            encoder = self._encoders.get(name)
            if encoder is None or not texts or "text" not in self._kinds(name):
                continue
            if id(encoder) not in by_encoder:
                by_encoder[id(encoder)] = self._streams[name].query_vectors(texts, encoder)
            vectors |= {(name, text): row for text, row in zip(texts, by_encoder[id(encoder)], strict=True)}
        return vectors

    def made_ready(self, texts: Sequence[str]) -> EncodedTexts:
        """Queries encoded together, with their nearest clips where an index is asked for all at once."""
        vectors, nearest = self.encoded(texts), dict[tuple[str, str], tuple[Hashable, ClipHits]]()
        for stream in dict.fromkeys(stream for stream, _ in vectors):
            own = [(text, vector) for (name, text), vector in vectors.items() if name == stream]
            state = self._state_of(stream)
            hits_of_each = self._store.nearest_of_each(stream, [vector for _, vector in own], NEAREST_CLIPS)
            if hits_of_each is not None and self._state_of(stream) == state:
                nearest |= {
                    (stream, text): (state, hits) for (text, _), hits in zip(own, hits_of_each, strict=True)
                }
        return EncodedTexts(self._store.description_version, vectors, nearest)

    def _state_of(self, stream: str) -> Hashable:
        """What changes whenever a stream or the ledger does."""
        return self._store.version, self._store.state_of(stream)

    def _stream_query(
        self, name: str, words: NDArray[np.float32] | None, like: Example | None
    ) -> StreamQuery:
        """A query as one stream compares it: by the vector of its `words`, by an example, or by both.

        Both are the sum of two directions. What cosines to expect of an example has not been measured: those
        with the candidates stand in for that (`fuse`).
        """
        example = None if like is None else self._vector_like(name, like)
        if example is None:
            return StreamQuery(words)
        return StreamQuery(example if words is None else _unit(words + example), is_alike=True)

    def _vector_like(self, name: str, like: Example) -> NDArray[np.float32] | None:
        """The vector of an example in a stream; None where the stream has none."""
        if like.kind not in self._kinds(name):
            return None
        if like.picture is not None:
            return self._streams[name].picture_vector(like.picture, self._encoders[name])
        assert like.moment is not None
        block = self._store.clips_of(name, [like.moment.video_id])
        mean = _unit(block.vectors[_inside(block, like.moment)].sum(axis=0))
        return mean if mean.any() else None

    def search_stream(self, name: str, query: EncodedQuery, allowed: Allowed = EVERYWHERE) -> StreamAnswer:
        """Moments of one stream: nearest and matching clips -> candidate videos -> curves -> moments."""
        stream, store, own = self._streams[name], self._store, query.streams[name]
        vector = own.vector
        nearest, matched = self._retrieved(stream, query, allowed)
        chosen, cosine = _candidates(nearest, matched), None
        if vector is None:
            block = store.clips_of(name, chosen, vectors=False)
        else:
            # On one thread: those of a product of matrices wait busily for longer than they work.
            block, cosine = store.compared(name, chosen, vector)
        bm25 = _bm25(block, matched) if vector is None or stream.shows_words(block) else None
        languages = {video_id: self.language_of(video_id) for video_id in block.video_ids}
        scale = None if own.is_alike else self._calibration.scale_of(block, name, languages)
        scores = fuse(cosine, bm25, scale)
        if query.apart is not None:
            scores[_inside(block, query.apart)] = scores.min(initial=0.0) + _NO_ANSWER
        block, scores, runs = inside(block, scores, allowed.spans)
        moments = runs.of_videos(
            stream.moments(runs.block, scores, lambda: self._shots(runs.block.video_ids))
        )
        if query.apart is not None:
            moments = _outside(moments, block, query.apart)
        if len(moments) and query.text and stream.shows_words(block):
            moments = reranked(query.text, block, scores, moments, self.rarity([name])[name])
        return StreamAnswer(name, nearest, matched, block, scores, cut(moments, block, allowed.spans))

    def _retrieved(
        self, stream: Stream, query: EncodedQuery, allowed: Allowed
    ) -> tuple[ClipHits | None, ClipHits | None]:
        """The nearest clips of a stream, and those whose words match; None for what is not compared."""
        store, name, vector = self._store, stream.name, query.streams[stream.name].vector
        nearest = matched = None
        prepared = query.streams[stream.name].nearest
        if prepared is not None and allowed is EVERYWHERE:
            nearest = prepared
        elif vector is not None:
            apart = 0 if query.apart is None else self.clips_in(name, query.apart)
            nearest = allowed.hits(
                lambda k: store.nearest(name, vector, k, video_ids=allowed.videos), NEAREST_CLIPS + apart
            )
        if query.text and stream.has_words is not False:
            most = MATCHED_CLIPS if allowed.videos is None else MATCHED_CLIPS_WITHIN
            parts = stream.parts_of_words
            matched = allowed.hits(
                lambda k: store.match_text(name, query.text, k, video_ids=allowed.videos, parts=parts), most
            )
        return nearest, matched

    def candidates(
        self, text: str, streams: Iterable[str], allowed: Sequence[str] | None = None
    ) -> list[str]:
        """Videos worth a closer look for a query, best first: those of the streams' nearest clips."""
        query, hits = self.encode(text, streams), list[ClipHits]()
        for name in streams:
            if (vector := query.streams[name].vector) is not None:
                hits.append(self._store.nearest(name, vector, NEAREST_CLIPS, video_ids=allowed))
            if self._streams[name].has_words is not False:
                hits.append(self._store.match_text(name, text, MATCHED_CLIPS, video_ids=allowed))
        return _candidates(*hits)

    def video_scores(
        self, text: str, streams: Iterable[str], video_ids: Sequence[str]
    ) -> NDArray[np.float64]:
        """(V,) how well the best clip of each video fits a query: its cosine, the mean over the streams.

        Streams without vectors are left out; a video without clips scores 0 there.
        """
        query = self.encode(text, streams)
        own = [(name, part.vector) for name, part in query.streams.items() if part.vector is not None]
        best = [self._best_clips(name, vector, video_ids) for name, vector in own]
        return np.asarray(np.mean(best, 0) if best else np.zeros(len(video_ids)), np.float64)

    def _best_clips(self, stream: str, vector: NDArray[np.float32], video_ids: Sequence[str]) -> list[float]:
        scores: dict[str, float] = {}
        missing = list(video_ids)
        while missing:  # a long video may have all of the nearest clips
            hits = self._store.nearest(stream, vector, NEAREST_CLIPS, video_ids=missing)
            for video, score in zip(hits.video_ids, hits.score.tolist(), strict=True):
                scores.setdefault(video, score)
            missing = [video for video in missing if video not in scores] if len(hits) else []
        return [scores.get(video, 0.0) for video in video_ids]

    def _shots(self, video_ids: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Where shots of some videos begin, in seconds (B,), and where each video's begin in that."""
        shots = {record.video_id: record.shots or () for record in self._store.ledger().of(video_ids)}
        rows = [shots.get(video_id, ()) for video_id in video_ids]
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return np.array([border for row in rows for border in row], np.float64), offsets

    def rank(self, answers: Sequence[StreamAnswer], chance_of: ChanceOf | None = None) -> list[ScoredMoment]:
        """Moments of all streams in one order; those that streams agree on are one moment.

        See `ranked`, which says how. `chance_of` is that of unrelated queries of the kind; None: of words.
        """
        moments = (answer.scored(row) for answer in answers for row in range(len(answer.moments)))
        return ranked(moments, chance_of or self.chance, len(answers))

    def with_probabilities(
        self, text: str, ranked: Sequence[ScoredMoment], answers: Sequence[StreamAnswer]
    ) -> ProbableMoments:
        """Moments of a query, best first, with the probability of each; without one if not calibrated."""
        if not ranked or ranked[0].chance_percentile is None:
            return ProbableMoments(tuple(ranked))
        names = [answer.stream for answer in answers]
        return with_probabilities(
            text, ranked, answers, self.rarity(names), self._probability_for(text, names), self.language_of
        )

    def _probability_for(self, text: str, streams: Iterable[str]) -> Probability:
        """The curves for a query: in another language than all words, as learned for the sentence model."""
        models = (self._store.streams[name].encoder for name in streams)
        model = next((name for name in models if name in self._probability.across), None)
        if model is None or not language_apart(text, self._store.ledger().languages):
            return self._probability
        return self._probability.across_languages(model)

    def rarity(self, streams: Iterable[str]) -> Mapping[str, Rarity]:
        """How rare words are in each of some streams that has words; counted once for each state of it."""
        counted = {}
        for name in streams:
            if self._streams[name].has_words is False:
                continue
            state, kept = self._state_of(name), self._rarity.get(name)
            if kept is None or kept[0] != state:
                kept = self._rarity[name] = state, Rarity.in_stream(self._store, name)
            counted[name] = kept[1]
        return counted

    def second_look(self, query: str, answer: StreamAnswer, row: int) -> dict[str, float]:
        """What each feature added to the score of a moment; nothing where the stream has no words."""
        if not self._streams[answer.stream].shows_words(answer.block):
            return {}
        rarity, own = self.rarity([answer.stream])[answer.stream], answer.moments.take(np.array([row]))
        features = features_of(query, answer.block, answer.scores, own, rarity)
        return dict(zip(FEATURES, learned_reranking().added(features)[0].tolist(), strict=True))

    def interval(self, ranked: Sequence[ScoredMoment]) -> tuple[float, float] | None:
        """The range (95 %) that the first moment's confidence leaves open, None where there is none."""
        if not ranked or ranked[0].confidence is None:
            return None
        measured = self._calibration.streams
        clips = sum(measured[name].clips for name in ranked[0].evidence if name in measured)
        return self._probability.interval(ranked[0].confidence, clips)

    def _with_snippets(
        self, query: str, moments: Sequence[ScoredMoment], answers: Sequence[StreamAnswer]
    ) -> list[ScoredMoment]:
        """The moments with the line that answers as evidence of streams whose clips have words."""
        spoken = {a.stream: a for a in answers if self._streams[a.stream].shows_words(a.block)}
        rarity = self.rarity(spoken)
        weights = {name: weights_of(query, rarity[name]) for name in spoken}
        return [
            replace(
                scored,
                evidence={
                    name: spoken[name].snippet(scored.video_id, piece, weights[name])
                    if name in spoken
                    else piece
                    for name, piece in scored.evidence.items()
                },
            )
            for scored in moments
        ]

    def clips_in(self, stream: str, moment: Moment) -> int:
        """How many clips of a stream share time with a moment."""
        block = self._store.clips_of(stream, [moment.video_id], vectors=False)
        return int(np.count_nonzero((block.start < moment.end) & (block.end > moment.start)))


def _unmeasured(stream: str, video_id: str) -> None:
    """The chance of an example: background scores were measured with text queries, so they do not apply."""


def gone_notes(records: Iterable[VideoRecord]) -> list[str]:
    """What to say of videos whose files are not there any more."""
    names = [unambiguous(record.path).rsplit("/", 1)[-1] for record in records if is_gone(record)]
    if not names:
        return []
    return [f"{', '.join(names)}: the file is gone; `whenabouts index PATH --prune` takes it out"]


def _bm25(block: ClipBlock, matched: ClipHits | None) -> NDArray[np.float64]:
    """What full text scored for each clip of a block, 0 where it did not match."""
    scores = np.zeros(len(block))
    if matched is None:
        return scores
    first = {
        video_id: int(offset) for video_id, offset in zip(block.video_ids, block.offsets[:-1], strict=True)
    }
    owner = np.array([first.get(video_id, -1) for video_id in matched.video_ids], np.int64)
    inside = owner >= 0
    scores[owner[inside] + matched.index[inside]] = matched.score[inside]
    return scores


def checked_query(
    text: str, k: int, min_confidence: float = 0.0, most: int = MOST_K, *, is_optional: bool = False
) -> tuple[str, list[str]]:
    """The words of a query as they are searched, with notes on what was changed.

    Raises UsageError where there are none, unless they are optional.
    """
    if not isinstance(text, str):
        raise UsageError(f"the query is {text!r}; give it as text")
    if isinstance(k, bool) or not isinstance(k, SupportsIndex):
        raise UsageError(f"k is {k!r}; give a whole number")
    if not 1 <= k <= most:
        raise UsageError(f"k is {k}; ask for 1 to {most} moments")
    if not 0 <= min_confidence <= 1:
        raise UsageError(f"the least confidence is {min_confidence}; give a number from 0 to 1")
    words = unambiguous(text).split()
    if not words and is_optional:
        return "", []
    if not words:
        raise UsageError("the query is empty; say in a few words what to look for")
    notes = []
    if len(words) > MOST_QUERY_WORDS:
        notes.append(f"only the first {MOST_QUERY_WORDS} of the query's {len(words)} words were used")
    if not any(letter.isalnum() for word in words for letter in word):
        notes.append("the query has no letters or digits, so it can only be compared by meaning")
    return words_of_query(text), notes


def words_of_query(text: str) -> str:
    """The words of a query as they are searched, with a space between them."""
    return " ".join(unambiguous(text).split()[:MOST_QUERY_WORDS])


def _inside(block: ClipBlock, moment: Moment) -> NDArray[np.bool_]:
    """(n,) which clips of a block share time with a moment."""
    inside = np.zeros(len(block), np.bool_)
    if moment.video_id in block.video_ids:
        rows = block.rows(block.video_ids.index(moment.video_id))
        inside[rows] = (block.start[rows] < moment.end) & (block.end[rows] > moment.start)
    return inside


def _outside(moments: Moments, block: ClipBlock, apart: Moment) -> Moments:
    """Those moments that do not share time with another one."""
    if apart.video_id not in block.video_ids:
        return moments
    own = moments.video == block.video_ids.index(apart.video_id)
    return moments.take(~(own & (moments.start < apart.end) & (moments.end > apart.start)))


def _unit(vector: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """The direction of a vector; zeros stay."""
    length = float(np.linalg.norm(vector))
    return np.asarray(vector / length if length > 0 else vector, np.float32)


def _cannot_meet(streams: Sequence[str], kinds: frozenset[QueryKind]) -> str:
    """Why some streams cannot answer a query of some kinds, and the remedy."""
    given = " or ".join(_MADE_OF[kind] for kind in sorted(kinds))
    meets = sorted(set[QueryKind]().union(*(stream_named(name).meets for name in streams)))
    named = " and ".join(stream_named(name).name for name in streams)
    remedies = "; or ".join(
        dict.fromkeys(
            stream.remedy
            for name, stream in all_streams().items()
            if stream.meets & kinds and name not in streams
        )
    )
    takes = [f"by {_MADE_OF[kind]}" for kind in meets]
    keys = sorted({key for name in streams if (key := stream_named(name).filter_key)})
    takes += [f"to narrow a search (--where {key}=NAME, where=)" for key in keys]
    return f"{named} cannot be searched by {given}, but {' or '.join(takes)}; {remedies}"


def _candidates(*hits: ClipHits | None) -> list[str]:
    """Videos to look into: those of the best hits of each list in turn, best first."""
    lists = [list(dict.fromkeys(clips.video_ids)) for clips in hits if clips is not None]
    chosen: dict[str, None] = {}
    for rank in range(max(map(len, lists), default=0)):
        for video_ids in lists:
            if rank < len(video_ids) and len(chosen) < CANDIDATE_VIDEOS:
                chosen.setdefault(video_ids[rank])
    return list(chosen)
