"""Answers to questions that rules interpreted (`questions.py`), built from plain searches.

For an order ("first", "last") only moments count whose verdict is a match. A weak moment never decides which
is the first; the answer is then "unsure".
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from whenabouts.confidence.probability import PROBABLE, answer_for
from whenabouts.index.filters import Filter, recorded
from whenabouts.index.records import VideoRecord, natural_key
from whenabouts.moments import peaks
from whenabouts.search.candidates import CANDIDATE_VIDEOS
from whenabouts.search.options import MOST_K, MOST_PLACES, SearchOptions
from whenabouts.search.phrases import parsed_query
from whenabouts.search.question_scopes import Scope
from whenabouts.search.questions import Question
from whenabouts.search.rank import notes_on_minimum
from whenabouts.search.search_result import MAYBE, PROBABLY, STANDS_HERE, WRITTEN, SearchResult
from whenabouts.search.understand import checked_query
from whenabouts.types import Evidence, ScoredMoment, number_of

_SURE = (STANDS_HERE, WRITTEN, PROBABLY)


class Ask(Protocol):
    """A plain search."""

    def __call__(self, text: str, options: SearchOptions, videos: Sequence[str] | None) -> SearchResult:
        """The answer to a text; `videos` limits it to these ids (None: all that the options allow)."""


def narrowed(
    scopes: Sequence[Scope], given: Filter | None, records: Sequence[VideoRecord]
) -> list[str] | None:
    """Ids of the videos that all scopes of a question allow, among `given.within`; None without scopes.

    The other conditions of the filter, such as a speaker, are for the search in these videos.
    """
    if not scopes:
        return None
    ids = (given.within if given else ()) or [record.video_id for record in records]
    return [video_id for video_id in ids if all(scope.allows(video_id) for scope in scopes)]


def answered(
    question: Question, options: SearchOptions, videos: Sequence[str] | None, ask: Ask
) -> SearchResult:
    """The answer to a question in `videos` (None: in all); `k` and the minimum confidence are applied last.

    Raises UsageError like a plain search.
    """
    checked_query(
        question.text, options.count, options.min_confidence, MOST_PLACES if options.all else MOST_K
    )
    if not (question.order or question.relation or question.without):
        result = ask(question.text, options, videos)
    else:
        whole = replace(options, k=MOST_K, min_confidence=0.0)
        result = _of_event(question, whole, videos, ask)
        if question.order:
            result = _in_order(result, question)
        is_all = question.order == "every" and options.k is None and result.answer == "match"
        count = MOST_K if is_all else options.count
        least = options.min_confidence
        kept = tuple(scored for scored in result.moments if (scored.confidence or 0.0) >= least)
        result = _with(result, kept[:count], *notes_on_minimum(result.moments, kept, result.doubt))
    return replace(result, words=question.text, understood=question.rules, is_in_order=bool(question.order))


def _of_event(
    question: Question, options: SearchOptions, videos: Sequence[str] | None, ask: Ask
) -> SearchResult:
    if question.relation:
        return _paired(question, options, videos, ask)
    result = ask(question.text, options, videos)
    return _without(result, question, options, ask) if question.without else result


def _with(result: SearchResult, moments: Sequence[ScoredMoment], *notes: str) -> SearchResult:
    """A result with only some of its moments, possibly in another order."""
    is_same_first = bool(moments and result.moments) and moments[0] is result.moments[0]
    return replace(
        result,
        answer=result.answer if moments else "no_match",
        doubt=result.doubt if moments else "",
        moments=tuple(moments),
        notes=(*result.notes, *notes),
        interval=result.interval if is_same_first else None,
    )


# Order -----------------------------------------------------------------------------------------------


def _in_order(result: SearchResult, question: Question) -> SearchResult:
    """The matching moments, by time; for "first" and "last" one per video."""
    if result.answer != "match":
        if result.answer == "unsure":
            what = "which are all of them" if question.order == "every" else f"which is the {question.order}"
            return replace(result, doubt=f"no moment is surely one, so {what} is not known; {result.doubt}")
        return result
    words = {id(scored): result.word_of(scored) for scored in result}
    is_last = question.order == "last"

    def time_of(scored: ScoredMoment) -> tuple[object, ...]:
        return (*_place_of(result.videos[scored.video_id]), scored.start, scored.end)

    sure = sorted((scored for scored in result if words[id(scored)] in _SURE), key=time_of, reverse=is_last)
    notes = []
    if question.order != "every":
        sure = list({scored.video_id: scored for scored in reversed(sure)}.values())[::-1]
        sure.sort(key=time_of, reverse=is_last)
        border = time_of(sure[0])
        weak = [time_of(scored) for scored in result if words[id(scored)] == MAYBE]
        nearer = sum(time > border if is_last else time < border for time in weak)
        if nearer:
            where = "later" if is_last else "earlier"
            notes.append(f"{number_of(nearer, f'{where} moment')} may be one, but not surely")
    looked_into = len({scored.video_id for scored in result})
    is_cut = looked_into >= CANDIDATE_VIDEOS or len(result) >= peaks.Config().count
    is_cut = is_cut and not parsed_query(question.text).phrases  # all places of a quotation are known
    if is_cut and result.coverage is not None and result.coverage.videos > CANDIDATE_VIDEOS:
        notes.append(f"the order is that of the {looked_into} videos that fit best")
    return _with(result, sure, *notes)


def _place_of(video: VideoRecord) -> tuple[object, ...]:
    """Sort key of a video: its recording date, then its name (2 before 10).

    A file's time counts only by day, because files are copied in any order.
    """
    when, key = recorded(video)
    moment = when.replace(hour=0, minute=0, second=0, microsecond=0) if key == "modified" else when
    return moment, natural_key(video.video_id)


# Two events ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Event:
    """A moment, and the seconds of the place in it that fits its event best."""

    scored: ScoredMoment
    is_sure: bool
    start: float
    end: float

    @classmethod
    def all_of(cls, result: SearchResult) -> list[_Event]:
        events = []
        for scored in result:
            piece: Evidence | None = next(iter(scored.evidence.values()), None)
            place = (scored.start, scored.end) if piece is None else (piece.start, piece.end)
            events.append(cls(scored, result.answer == "match" and result.word_of(scored) in _SURE, *place))
        return events


def _paired(
    question: Question, options: SearchOptions, videos: Sequence[str] | None, ask: Ask
) -> SearchResult:
    """Moments of the event that begin after (before) a moment of the other event in the same video."""
    result, other = ask(question.text, options, videos), ask(question.other, options, videos)
    result = replace(result, notes=tuple(dict.fromkeys((*result.notes, *other.notes))))
    missing = [
        f"nothing like {text} was found"
        for text, answer in ((question.text, result), (question.other, other))
        if answer.answer == "no_match"
    ]
    near = result
    if result.coverage is not None and result.coverage.videos > CANDIDATE_VIDEOS and other.moments:
        # Each search looks into the videos that fit it best, which may differ.
        near = ask(question.text, options, list(dict.fromkeys(scored.video_id for scored in other)))
    partners: dict[str, list[_Event]] = {}
    for event in _Event.all_of(other):
        partners.setdefault(event.scored.video_id, []).append(event)
    pairs = [
        (_joint(event, partner, question), event.is_sure and partner.is_sure)
        for event in _Event.all_of(near)
        if (partner := _partner(event, partners.get(event.scored.video_id, ()), question)) is not None
    ]
    pairs.sort(key=lambda pair: (-(pair[0].confidence or 0.0), pair[0].sort_key))
    if not pairs:
        notes = missing or [f"nowhere does one begin {question.relation} the other in the same video"]
        return _with(result, (), *notes)
    joined = _with(result, [scored for scored, _ in pairs], *missing)
    joined = replace(joined, videos={**other.videos, **near.videos})
    if missing:
        return replace(joined, answer="no_match", doubt="")
    if pairs[0][1]:
        return replace(joined, answer="match", doubt="")
    doubts = dict.fromkeys(
        answer.doubt or f"{text} is not surely there"
        for text, answer in ((question.text, result), (question.other, other))
        if answer.answer != "match"
    )
    doubt = "; ".join(doubts) or "that both are there in this order is not sure"
    return replace(joined, answer="unsure", doubt=doubt)


def _partner(event: _Event, candidates: Sequence[_Event], question: Question) -> _Event | None:
    """The surest moment of the other event on the right side of a moment; among equals the nearest."""
    fitting = [
        other
        for other in candidates
        if (other.end <= event.start if question.relation == "after" else event.end <= other.start)
    ]
    return max(
        fitting,
        key=lambda other: (other.is_sure, other.scored.confidence or 0.0, -abs(other.start - event.start)),
        default=None,
    )


def _joint(event: _Event, partner: _Event, question: Question) -> ScoredMoment:
    """A moment scored by both events: the product of their probabilities, else the sum of their scores."""
    scored, other, moment = event.scored, partner.scored, event.scored.moment
    if question.relation == "after":
        moment = replace(moment, start=max(moment.start, partner.end))
    else:
        moment = replace(moment, end=min(moment.end, partner.start))
    confidence = None
    score = scored.score + other.score
    if scored.confidence is not None and other.confidence is not None:
        confidence = scored.confidence * other.confidence
        score = math.log(max(confidence, sys.float_info.min))  # a trained system may be sure of "no"
    return replace(
        scored,
        moment=moment,
        score=score,
        confidence=confidence,
        chance_percentile=None,
        partner=other.moment,
        says_query=scored.says_query and other.says_query,
        evidence=_inside(scored.evidence, moment.start, moment.end),
    )


def _inside(evidence: Mapping[str, Evidence], start: float, end: float) -> dict[str, Evidence]:
    """The evidence inside a moment."""
    return {name: piece for name, piece in evidence.items() if start <= piece.start and piece.end <= end}


# One event without another ---------------------------------------------------------------------------


def _without(result: SearchResult, question: Question, options: SearchOptions, ask: Ask) -> SearchResult:
    """The moments that do not overlap a moment that is surely of the other event."""
    if not result.moments:
        return result
    videos = list(dict.fromkeys(scored.video_id for scored in result))
    if parsed_query(question.without).other_words:
        other = ask(question.without, options, videos)
    else:  # all places of a quotation are known
        other = ask(question.without, SearchOptions(streams=options.streams, all=True), videos)
    sure = [event.scored.moment for event in _Event.all_of(other) if event.is_sure]
    kept = [scored for scored in result if all(not scored.moment.overlap(moment) for moment in sure)]
    notes = []
    if left_out := len(result) - len(kept):
        notes.append(f"{number_of(left_out, 'moment')} with {question.without} left out")
    if other.answer == "unsure":
        notes.append(f"no moment is surely {question.without}, so none was left out")
    if kept and kept[0] is not result.moments[0]:
        return _judged_anew(_with(result, kept, *notes))
    return _with(result, kept, *notes)


def _judged_anew(result: SearchResult) -> SearchResult:
    """If an answer's best moment was left out, judge it by the next moment."""
    first = result.moments[0]
    if result.answer == "no_match":
        return result
    answer = answer_for(
        first.confidence, has_moments=True, never_no_match=first.says_query, thresholds=PROBABLE
    )
    doubt = "the best moments were left out" if answer == "unsure" else ""
    return replace(result, answer=answer, doubt=doubt)
