"""The six steps of a query: understand, candidates, curves, moments, rank, answer.

`Corpus` searches with `Searcher.search`; other modules use its single steps. Each step has a file of its name
and keeps its own caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from whenabouts.confidence.alike import Alike
from whenabouts.confidence.alike import curves as curves_alike
from whenabouts.confidence.probability import Probability
from whenabouts.index.filters import Filter
from whenabouts.index.records import unambiguous
from whenabouts.index.store import Store
from whenabouts.index.stream import QueryEncoder
from whenabouts.search.answer import Answering, gone_notes
from whenabouts.search.answer_probability import ProbableMoments
from whenabouts.search.candidates import EVERYWHERE, Allowed, Retrieval
from whenabouts.search.curves import curve_of
from whenabouts.search.example import Example
from whenabouts.search.finder import Finder
from whenabouts.search.moments import Localization, StreamAnswer
from whenabouts.search.options import MOST_K
from whenabouts.search.rank import (
    Ranking,
    alike_probabilities,
    judged,
    judged_alike,
    judged_by,
    notes_on_minimum,
    rank,
    unmeasured,
)
from whenabouts.search.search_result import SearchResult
from whenabouts.search.stored_calibration import NOT_CALIBRATED, Calibration, MeasuredCorpus
from whenabouts.search.understand import NOT_ENCODED, EncodedQuery, EncodedTexts, Understanding, checked_query
from whenabouts.types import ScoredMoment, WhenaboutsError

# If only some time ranges are allowed, a trained system is asked for this many times `k` moments.
_MORE_OF_MODEL = 10


class Searcher:
    """Answers queries on one store; changes nothing.

    For `encoders` and `broken` see `Understanding`. `calibration` holds the measurements of the streams;
    without it moments are ordered but have no confidence. `probability`: the default is the general curves,
    adjusted by the calibration.
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
        self.store, self.calibration = store, calibration
        self.understanding = Understanding(store, encoders, broken)
        self.retrieval = Retrieval(store, self.understanding)
        self.localization = Localization(store, self.understanding)
        self.ranking = Ranking(store, calibration, self.localization, probability)
        self.answering = Answering(store, self.understanding, self.localization)

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams that words can search."""
        return self.understanding.text_streams

    @property
    def measured(self) -> MeasuredCorpus:
        """The calibration for the present state of the store."""
        return MeasuredCorpus(self.calibration, self.store.ledger().language_of)

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
        """At most `k` moments for a sentence, an example or both, best first.

        With `model`, that trained system finds them, and `streams` and `encoded` are ignored; with `like`,
        `model` and `encoded` are. `encoded` holds vectors of queries that were encoded in one batch; it need
        not contain this one. Raises UsageError for an empty query, an invalid `k` or `min_confidence`, an
        unknown stream, and if no stream can search for the query.
        """
        if like is not None:
            return self._search_like(text, like, k, filter, streams, min_confidence)
        words, notes = checked_query(text, k, min_confidence)
        allowed = self.retrieval.allowed(filter)
        notes += allowed.notes
        interval, unsearched = None, dict[str, str]()
        if model is not None:
            count = k if allowed.spans is None else min(MOST_K, k * _MORE_OF_MODEL)
            by_model = model.find(words, count, allowed.videos)
            ranked = allowed.moments(by_model.moments)
            answer, doubt = judged_by(by_model, model)
            notes += by_model.notes
        else:
            answers, probable = self.answered(words, allowed, streams, encoded, k)
            ranked = list(probable.moments)
            interval = self.ranking.interval(ranked)
            withheld = self.ranking.withheld(ranked)
            answer, doubt = judged(words, probable, answers, interval, withheld)
            notes += self.understanding.notes_on_languages(words, self.calibration)
            unsearched = self._unsearched(streams, "text")
            notes += unsearched.values()
        kept = [scored for scored in ranked if (scored.confidence or 0.0) >= min_confidence][:k]
        kept = kept if model is not None else self.answering.with_snippets(words, kept, answers)
        notes += notes_on_minimum(ranked, kept, doubt)
        moments, videos = self.answering.with_records(kept)
        if not moments:
            answer, doubt, interval = "no_match", "", None
        notes += gone_notes(videos.values())
        if answer == "no_match" and unsearched:  # these streams might have an answer
            answer, interval = "unsure", None
            doubt = f"{' and '.join(unsearched)} could not be searched"
        rates = self.calibration.rates if model is None else None
        coverage = self.answering.coverage(allowed.videos, streams if model is None else model.streams)
        result = (doubt, rates, coverage, interval)
        return SearchResult(unambiguous(text), answer, moments, videos, tuple(notes), *result)

    def nothing(self, text: str, streams: Sequence[str] = ()) -> SearchResult:
        """The result if no video is allowed to answer."""
        note = "no video of this corpus matches the conditions read from the question"
        coverage = self.answering.coverage([], streams)
        return SearchResult(unambiguous(text), "no_match", (), notes=(note,), coverage=coverage)

    def answered(
        self,
        words: str,
        allowed: Allowed = EVERYWHERE,
        streams: Sequence[str] = (),
        encoded: EncodedTexts = NOT_ENCODED,
        count: int | None = None,
    ) -> tuple[list[StreamAnswer], ProbableMoments]:
        """Each stream's answer, and the best `count` moments of all (None: every one) with probabilities."""
        answers = self.stream_answers(self.understanding.query_for(words, streams, encoded=encoded), allowed)
        return answers, self.ranking.with_probabilities(words, self.rank(words, answers), answers, count)

    def rank(self, words: str, answers: Sequence[StreamAnswer]) -> list[ScoredMoment]:
        """The moments of all streams in one order."""
        return rank(answers, self.measured.chance, self.ranking.unsaid(words, answers))

    def find_all(
        self, text: str, filter: Filter | None = None, encoded: EncodedTexts = NOT_ENCODED
    ) -> list[StreamAnswer]:
        """Encode a text and return each stream's answer."""
        query = self.understanding.query_for(text, encoded=encoded)
        return self.stream_answers(query, self.retrieval.allowed(filter))

    def stream_answers(self, query: EncodedQuery, allowed: Allowed = EVERYWHERE) -> list[StreamAnswer]:
        """Each stream's answer to an encoded query."""
        return [self.search_stream(name, query, allowed) for name in query.streams]

    def search_stream(self, name: str, query: EncodedQuery, allowed: Allowed = EVERYWHERE) -> StreamAnswer:
        """The moments of one stream."""
        candidates = self.retrieval.of_stream(name, query, allowed)
        curve = curve_of(self.store, self.measured, query, candidates)
        return self.localization.of_curve(curve, query, allowed)

    def _search_like(
        self,
        text: str,
        like: Example,
        k: int,
        filter: Filter | None,
        streams: Sequence[str],
        min_confidence: float,
    ) -> SearchResult:
        """Moments like an example.

        Without words, streams whose encoder has a learned curve (`confidence.alike`) give probabilities.
        """
        words, notes = checked_query(text, k, min_confidence, is_optional=True)
        allowed = self.retrieval.allowed(filter)
        query = self.understanding.query_for(words, streams, like)
        answers = self.stream_answers(query, allowed)
        if words:
            notes += [
                f"{answer.stream} searched for the words alone, because it has nothing to compare with "
                f"{like.name}"
                for answer in answers
                if not query.streams[answer.stream].is_alike
            ]
        unsearched = self._unsearched(streams, like.kind, *(["text"] if words else []))
        notes += [note for name, note in unsearched.items() if name not in query.streams]
        ranked = rank(answers, unmeasured)
        if not words:
            ranked = alike_probabilities(ranked, answers, self._curves_alike())
        answer, doubt = judged_alike(ranked)
        kept = [scored for scored in ranked if (scored.confidence or 0.0) >= min_confidence][:k]
        notes += notes_on_minimum(ranked, kept, doubt)
        moments, videos = self.answering.with_records(
            self.answering.with_snippets(words, kept, answers) if words else kept
        )
        return SearchResult(
            unambiguous(text),
            answer if moments else "no_match",
            moments,
            videos,
            (*notes, *allowed.notes, *gone_notes(videos.values())),
            doubt if moments else "",
            coverage=self.answering.coverage(allowed.videos, [answer.stream for answer in answers]),
            like=unambiguous(like.name),
        )

    def _unsearched(self, streams: Sequence[str], *kinds: str) -> dict[str, str]:
        """A note for each broken stream that a query of some kinds would search, if no streams are given."""
        broken = {} if streams else self.understanding.broken
        meeting = [name for name in broken if self.understanding.streams[name].meets.intersection(kinds)]
        return {name: f"stream {name} was not searched: {broken[name]}" for name in meeting}

    def _curves_alike(self) -> dict[str, Alike]:
        """Stream -> learned curve from cosine to probability, for streams whose encoder has one."""
        learned = curves_alike()
        encoders = {name: info.encoder for name, info in self.store.streams.items()}
        return {name: learned[encoder] for name, encoder in encoders.items() if encoder in learned}
