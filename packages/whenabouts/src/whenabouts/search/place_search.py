"""Answers by exact words: the quoted phrases of a query, and lists of every place with all its words."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whenabouts.confidence.probability import MOST, PROBABLE, answer_for
from whenabouts.index.filters import Filter
from whenabouts.index.records import natural_key, unambiguous
from whenabouts.moments.zero_shot import Moments
from whenabouts.search.answer import Weights, from_answer, gone_notes, weights_of
from whenabouts.search.candidates import Allowed
from whenabouts.search.moments import StreamAnswer, shortened
from whenabouts.search.options import MOST_K, MOST_PLACES, SearchOptions
from whenabouts.search.phrases import ParsedQuery, parsed_query
from whenabouts.search.places import Place, never_said, places_in
from whenabouts.search.rank import doubt_of, notes_on_minimum, ranked
from whenabouts.search.reranking import features_of, learned_reranking
from whenabouts.search.search_result import Places, SearchResult
from whenabouts.search.searcher import Searcher
from whenabouts.search.understand import checked_query
from whenabouts.search.word_units import Rarity, units_of
from whenabouts.streams import stream as stream_named
from whenabouts.types import Answer, Evidence, ScoredMoment, UsageError, number_of

# Number of places with the best clips that are reranked.
_LOOKED_AT_TWICE = 200


def search_words(
    searcher: Searcher, text: str, options: SearchOptions, filter: Filter | None
) -> SearchResult | None:
    """The answer to a query with quotations, or to a request for all places; None for other queries.

    All quoted phrases must be said; the other words rank the places. If nobody says the phrases, their words
    are searched, with a note. Raises UsageError for an empty query, for a list of places of a query without
    words, and if no searched stream has words.
    """
    most = MOST_PLACES if options.all else MOST_K
    words, notes = checked_query(text, options.count, options.min_confidence, most)
    query = parsed_query(words)
    if not (options.all or query.phrases):
        return None
    if not query.phrases and not units_of(query.other_words):
        raise UsageError(f"{text[:50]!r} has no words, so it has no places; give words that are said")
    allowed = searcher.retrieval.allowed(filter)
    request = _Request(searcher, text, query, allowed, _with_words(searcher, options.streams))
    answered = _listed(request, options) if options.all else _ranked(request, options)
    if not (options.all or answered.moments or options.min_confidence):
        answered = _by_words(request, options, filter, answered.notes)
    return replace(answered, notes=tuple(dict.fromkeys((*notes, *allowed.notes, *answered.notes))))


def with_note_on_quotes(result: SearchResult) -> SearchResult:
    """The answer of a trained system or to an example, with a note if the query's quotations were ignored."""
    if not parsed_query(result.query).phrases:
        return result
    who = "a search by example" if result.like else "a trained system"
    note = f"{who} does not look for exact phrases, so the quoted words need not be said there"
    return replace(result, notes=(*result.notes, note))


@dataclass(frozen=True, slots=True)
class _Request:
    """A parsed query, and where to search it: streams with words, and what the filter allows."""

    searcher: Searcher
    text: str
    query: ParsedQuery
    allowed: Allowed
    streams: Sequence[str]

    def places(self, query: ParsedQuery) -> list[Iterator[Place]]:
        """The allowed places with everything in a query, by stream."""
        store, allowed = self.searcher.store, self.allowed
        return [places_in(store, name, query, allowed.videos, allowed.spans) for name in self.streams]

    def weights(self) -> Mapping[str, Weights]:
        """By stream, the weights of words that decide where a snippet begins."""
        text = " ".join(self.query.phrases) or self.query.other_words
        rarity = self.searcher.localization.rarity(self.streams)
        return {name: weights_of(text, rarity[name]) for name in self.streams}

    def result(self, answer: Answer, moments: Sequence[ScoredMoment], *notes: str) -> SearchResult:
        """The answer, completed with everything that does not depend on how it was found."""
        searcher = self.searcher
        shown, videos = searcher.answering.with_records(moments)
        return SearchResult(
            unambiguous(self.text),
            answer,
            shown,
            videos,
            (*notes, *gone_notes(videos.values())),
            calibration=searcher.calibration.rates,
            coverage=searcher.answering.coverage(self.allowed.videos, self.streams),
        )


def _with_words(searcher: Searcher, streams: Sequence[str]) -> list[str]:
    chosen = searcher.understanding.chosen(streams)
    spoken = [name for name in chosen if stream_named(name).has_words is not False]
    if not spoken:
        raise UsageError(
            f"quotation marks and --all look for words, and {' and '.join(chosen)} has none; leave them out, "
            "or index files that have subtitles (or with --transcribe)"
        )
    return spoken


def _listed(request: _Request, options: SearchOptions) -> SearchResult:
    """Every place, by video and time, and how many there are."""
    in_order = heapq.merge(*request.places(request.query), key=_by_time)
    skipped = sum(1 for _ in itertools.islice(in_order, options.skip))
    weights = request.weights()
    moments = [
        _scored(place, 0.0, weights[place.stream]) for place in itertools.islice(in_order, options.count)
    ]
    total = skipped + len(moments) + sum(1 for _ in in_order)
    seen, notes = skipped + len(moments), list[str]()
    if not total:
        closest = [] if request.query.phrases else ["a search without --all ranks the closest moments"]
        notes = [*_not_said(request, request.query), *closest]
    elif not moments:
        notes = [f"{number_of(total, 'place')} in all, so there is nothing after the first {options.skip:,}"]
    elif seen < total:
        notes = [f"{total:,} places in all; {total - seen:,} more follow (continue with skip {seen:,})"]
    result = request.result("match" if total else "no_match", moments, *notes)
    return replace(result, places=Places(total, skipped))


def _by_time(place: Place | ScoredMoment) -> tuple[str, float, float]:
    return natural_key(place.moment.video_id), place.moment.start, place.moment.end


def _ranked(request: _Request, options: SearchOptions) -> SearchResult:
    """The places with all the phrases, ranked by how well they fit the whole query."""
    searcher, query = request.searcher, request.query
    phrases = replace(query, other_words="")
    by_stream = {
        name: list(some) for name, some in zip(request.streams, request.places(phrases), strict=True)
    }
    if not any(by_stream.values()):
        return request.result("no_match", (), *_not_said(request, phrases))
    encoded = searcher.understanding.encode(query.plain, request.streams)
    weights, rarity = request.weights(), searcher.localization.rarity(request.streams)
    answers, scored, unscored = dict[str, StreamAnswer](), list[ScoredMoment](), list[ScoredMoment]()
    for name, places in by_stream.items():
        ids = list(dict.fromkeys(place.moment.video_id for place in places))
        answers[name] = searcher.search_stream(name, encoded, Allowed(ids))
        for place, score in zip(
            places, _scores(query.plain, places, answers[name], rarity[name]), strict=True
        ):
            (unscored if score is None else scored).append(_scored(place, score or 0.0, weights[name]))
    in_one_order = ranked(scored, searcher.measured.chance, len(answers))
    probable = searcher.ranking.with_probabilities(query.plain, in_one_order, list(answers.values()))
    in_order = list(probable.moments)
    # Places in videos that were not scored come last, by time.
    least = in_order[-1] if in_order else None
    score, confidence = (min(0.0, least.score), least.confidence) if least else (0.0, None)
    unscored.sort(key=_by_time)
    in_order += [replace(other, score=score, confidence=confidence) for other in unscored]
    if not query.other_words:  # the phrases are said, which is all that was asked
        in_order = [replace(moment, confidence=MOST) for moment in in_order]
    kept = [moment for moment in in_order if (moment.confidence or 0.0) >= options.min_confidence]
    answer = answer_for(
        in_order[0].confidence,
        has_moments=bool(kept),
        never_no_match=True,
        is_name=not query.other_words,
        thresholds=PROBABLE,
    )
    calibration = searcher.calibration
    interval = searcher.ranking.interval(in_order) if query.other_words and kept else None
    doubt = doubt_of(in_order[0].confidence, interval, searcher.ranking.withheld(in_order))
    notes = [calibration.note] if query.other_words and calibration.note else []
    notes += notes_on_minimum(in_order, kept, doubt)
    result = request.result(answer, kept[: options.count], *notes)
    return replace(result, doubt=doubt if answer == "unsure" else "", interval=interval)


def _by_words(
    request: _Request, options: SearchOptions, filter: Filter | None, not_said: Sequence[str]
) -> SearchResult:
    """Moments for the words of phrases that nobody says: never a match, as the query asked for phrases."""
    words = request.query.plain
    plain = request.searcher.search(words, k=options.count, filter=filter, streams=options.streams)
    if plain.answer == "no_match":
        return replace(request.result("no_match", ()), notes=tuple(not_said))
    notes = (*not_said, "these moments fit the words without the quotation marks", *plain.notes)
    doubt = plain.doubt if plain.answer == "unsure" else not_said[0]
    return replace(plain, query=unambiguous(request.text), answer="unsure", doubt=doubt, notes=notes)


def _scores(query: str, places: Sequence[Place], answer: StreamAnswer, rarity: Rarity) -> list[float | None]:
    """The score of each place of a stream as a moment; None if its video was not scored."""
    block = answer.block
    position = {video_id: number for number, video_id in enumerate(block.video_ids)}
    rows = [row for row, place in enumerate(places) if place.moment.video_id in position]
    scores: list[float | None] = [None] * len(places)
    if not rows:
        return scores
    inside = [places[row] for row in rows]
    video = np.array([position[place.moment.video_id] for place in inside])
    first, last = (np.array([getattr(place, name) for place in inside]) for name in ("first", "last"))
    spans = zip(block.offsets[video] + first, block.offsets[video] + last + 1, strict=True)
    best = np.array([answer.scores[start:end].max() for start, end in spans])
    start, end = (np.array([getattr(place.moment, name) for place in inside]) for name in ("start", "end"))
    closer = np.argsort(-best, kind="stable")[:_LOOKED_AT_TWICE]
    moments = Moments(video, start, end, best, first, last).take(closer)
    features = features_of(query, block, answer.scores, moments, rarity)
    best[closer] += learned_reranking().added(features).sum(axis=1)
    for row, score in zip(rows, best.tolist(), strict=True):
        scores[row] = score
    return scores


def _scored(place: Place, score: float, weights: Weights) -> ScoredMoment:
    words, moment = " ".join(filter(None, place.texts)), place.moment
    text = from_answer(words, weights)
    piece = Evidence(place.stream, score, moment.start, moment.end, text, recognised=place.recognised)
    evidence = {place.stream: piece}
    return ScoredMoment(moment, score, evidence=evidence, text=shortened(words), says_query=True)


def _not_said(request: _Request, query: ParsedQuery) -> list[str]:
    """Why there is no place: phrases that are said nowhere, or never together."""
    store, allowed = request.searcher.store, request.allowed
    absent = [set(never_said(store, name, query, allowed.videos, allowed.spans)) for name in request.streams]
    nowhere = sorted(set.intersection(*absent))
    if not nowhere:
        return ["each part of that is said, but nowhere all of it within a minute"]
    where = "" if allowed.videos is None else " in what the filters leave"
    return [f"nobody says {' or '.join(nowhere)}{where}"]
