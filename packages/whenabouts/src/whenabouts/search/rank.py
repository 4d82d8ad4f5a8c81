"""Step 5: one order of the moments of all streams, the probability that each is right, and the verdict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from whenabouts.confidence.alike import Alike
from whenabouts.confidence.probability import (
    FIXED,
    PROBABLE,
    Chance,
    Probability,
    answer_for,
    general,
    stands_out,
)
from whenabouts.index.lookup import query_words
from whenabouts.index.records import unambiguous
from whenabouts.index.store import Store
from whenabouts.search.answer_probability import (
    ProbableMoments,
    Unsaid,
    hits_inside,
    unsaid_in,
    with_probabilities,
)
from whenabouts.search.finder import Finder, RankedMoments
from whenabouts.search.moments import Localization, StreamAnswer
from whenabouts.search.query_language import language_apart
from whenabouts.search.stored_calibration import Calibration
from whenabouts.types import Answer, Moment, ScoredMoment

# Moments of different streams with at least this IoU are merged.
_SAME_MOMENT = 0.5
# A moment of words loses this much surprise if it says no word of the query: words on a related subject are
# surprising, too. Chosen with `benchmarks.drawn_up --choose`, where 1 to 3 find about as much.
_UNSAID_DISCOUNT = 2.0

UNCALIBRATED = "uncalibrated: how sure an answer is has not been measured here; run `whenabouts calibrate`"
UNMEASURED_ALIKE = "how often similar moments are those that were meant has not been measured"

ChanceOf = Callable[[str, str], Chance | None]
"""(stream, video id) -> the chance distribution of unrelated sentences there; None if not measured."""


class Ranking:
    """Orders the moments of one store."""

    def __init__(
        self,
        store: Store,
        calibration: Calibration,
        localization: Localization,
        probability: Probability | None = None,
    ) -> None:
        self._store, self._calibration, self._localization = store, calibration, localization
        self._probability = probability or general(calibration.adjustment)

    def with_probabilities(
        self,
        text: str,
        ranked: Sequence[ScoredMoment],
        answers: Sequence[StreamAnswer],
        count: int | None = None,
    ) -> ProbableMoments:
        """The first `count` moments of a query (None: all), best first, with the probability of each.

        None of them has one if the corpus is uncalibrated.
        """
        if not ranked or ranked[0].chance_percentile is None:
            return ProbableMoments(tuple(ranked[:count]))
        names = [answer.stream for answer in answers]
        languages = self._store.ledger().language_of
        rarity, probability = self._localization.rarity(names), self._probability_for(text, names)
        probable = with_probabilities(text, ranked, answers, rarity, probability, languages, count)
        is_foreign = self._calibration.is_foreign(ranked[0], languages.get(ranked[0].video_id, ""))
        return replace(probable, is_foreign=is_foreign)

    def _probability_for(self, text: str, streams: Iterable[str]) -> Probability:
        """The curves for a query; adjusted if no words are in its language and the model was measured so."""
        models = (self._store.streams[name].encoder for name in streams)
        model = next((name for name in models if name in self._probability.across), None)
        if model is None or not language_apart(text, self._store.ledger().languages):
            return self._probability
        return self._probability.across_languages(model)

    def unsaid(self, text: str, answers: Sequence[StreamAnswer]) -> Unsaid:
        """The share of a query that is not said in the first moments of each stream; empty if it is not used.

        It is not used for a query in another language than the corpus, whose words nobody says, nor for a
        single stream, whose second look counts what is said, unless the stream matched parts of words.
        """
        is_alone = len(answers) < 2 and not any(answer.parts_of_words for answer in answers)
        if is_alone or language_apart(text, self._store.ledger().languages):
            return {}
        return unsaid_in(text, answers, self._localization.rarity(answer.stream for answer in answers))

    def interval(self, ranked: Sequence[ScoredMoment]) -> tuple[float, float] | None:
        """The 95 % interval of the first moment's confidence; None without a confidence."""
        if not ranked or ranked[0].confidence is None:
            return None
        measured = self._calibration.streams
        clips = sum(measured[name].clips for name in ranked[0].evidence if name in measured)
        return self._probability.interval(ranked[0].confidence, clips)

    def withheld(self, ranked: Sequence[ScoredMoment]) -> str:
        """Why the first moment has no confidence; "" if it has one, or the corpus is uncalibrated."""
        if not ranked:
            return ""
        language = self._store.ledger().language_of.get(ranked[0].moment.video_id, "")
        groups = (self._calibration.group(name, language) for name in ranked[0].evidence)
        return next((group.withheld for group in groups if group.withheld), "")


def rank(
    answers: Sequence[StreamAnswer], chance_of: ChanceOf, unsaid: Unsaid = MappingProxyType({})
) -> list[ScoredMoment]:
    """The moments of all streams in one order; moments found by several streams are merged (see `ranked`).

    `chance_of` is for unrelated queries of this kind.
    """
    moments = [answer.scored(row) for answer in answers for row in range(len(answer.moments))]
    return ranked(moments, chance_of, len(answers), unsaid)


def ranked(
    moments: Iterable[ScoredMoment],
    chance_of: ChanceOf,
    streams: int,
    unsaid: Unsaid = MappingProxyType({}),
) -> list[ScoredMoment]:
    """The moments of `streams` streams in one order, from each stream's scores (`StreamAnswer.scored`).

    Scores become surprises among unrelated sentences (`Chance.surprise`), which puts streams, and groups of
    videos in a stream, on one scale. `_UNSAID_DISCOUNT` times the share of the query that a moment does not
    say (`unsaid`) is taken off. A moment found by several streams gets the sum, and the surer span. With
    m streams searched, an unrelated sentence has m chances, so the percentile is (1 - exp(-surprise)) ** m.
    A moment whose group has no chance gets no percentile, and is ranked by another chance of its stream.
    """
    scored = [(next(iter(moment.evidence)), moment) for moment in moments]
    pairs = dict.fromkeys((name, moment.moment.video_id) for name, moment in scored)
    chances = {(name, video_id): chance_of(name, video_id) for name, video_id in pairs}
    fallbacks = {name: chance for (name, _), chance in chances.items() if chance is not None}
    without = {id for id, chance in chances.items() if chance is None}
    used = [chances[name, moment.moment.video_id] or fallbacks.get(name) for name, moment in scored]
    surprises = [
        moment.score if chance is None else chance.surprise(moment.score)
        for chance, (_, moment) in zip(used, scored, strict=True)
    ]
    entries = [
        _Entry.of(surprise, moment, name, unsaid)
        for surprise, (name, moment) in zip(surprises, scored, strict=True)
    ]
    entries.sort(key=_Entry.sort_key)
    merged = _merged(entries) if streams > 1 else entries
    return [
        replace(
            entry.moment,
            score=entry.worth,
            chance_percentile=None
            if any((name, entry.moment.moment.video_id) in without for name in entry.moment.evidence)
            else (-math.expm1(-entry.surprise)) ** streams,
        )
        for entry in merged
    ]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A moment with its surprise, and with `worth`, its surprise less the discount, which orders the list."""

    worth: float
    surprise: float
    moment: ScoredMoment

    @classmethod
    def of(cls, surprise: float, moment: ScoredMoment, stream: str, unsaid: Unsaid) -> _Entry:
        # Only the first moments of a stream were looked at; the others are taken to say nothing.
        lost = unsaid[stream].get(moment.moment, 1.0) if stream in unsaid else 0.0
        return cls(surprise - _UNSAID_DISCOUNT * lost, surprise, moment)

    def sort_key(self) -> tuple[float, Moment]:
        return (-self.worth, self.moment.moment)

    def is_twin_of(self, other: _Entry) -> bool:
        """Whether two moments are the same, found by different streams."""
        return (
            self.moment.evidence.keys().isdisjoint(other.moment.evidence)
            and self.moment.moment.iou(other.moment.moment) >= _SAME_MOMENT
        )

    def joined(self, other: _Entry) -> _Entry:
        """The merged moment of two streams; the surer one keeps its span."""
        return _Entry(
            self.worth + max(0.0, other.worth),
            self.surprise + max(0.0, other.surprise),
            replace(
                self.moment,
                evidence={**self.moment.evidence, **other.moment.evidence},
                text=self.moment.text or other.moment.text,
            ),
        )


def _merged(entries: Iterable[_Entry]) -> list[_Entry]:
    """Moments, best first; those that several streams found are joined."""
    by_video: dict[str, list[_Entry]] = {}
    for entry in entries:
        kept = by_video.setdefault(entry.moment.moment.video_id, [])
        twin = next((place for place, other in enumerate(kept) if other.is_twin_of(entry)), None)
        if twin is None:
            kept.append(entry)
        else:
            kept[twin] = kept[twin].joined(entry)
    return sorted(itertools.chain.from_iterable(by_video.values()), key=_Entry.sort_key)


def unmeasured(stream: str, video_id: str) -> None:
    """The chance of an example: background scores were measured with text queries, so they do not apply."""


# Answers to an example ------------------------------------------------------------------------------


def alike_probabilities(
    ranked: Sequence[ScoredMoment], answers: Sequence[StreamAnswer], curves: Mapping[str, Alike]
) -> list[ScoredMoment]:
    """`ranked` (best first) with a probability for each moment of a stream of `curves`, None for others.

    Probabilities never rise from one moment to the next.
    """
    by_stream = {answer.stream: answer for answer in answers}
    least, moments = 1.0, []
    for scored in ranked:
        probabilities = [
            curves[name].of(_cosine(scored, by_stream[name])) for name in scored.evidence if name in curves
        ]
        least = min(least, max(probabilities, default=1.0))
        moments.append(replace(scored, confidence=least if probabilities else None))
    return moments


def _cosine(scored: ScoredMoment, answer: StreamAnswer) -> float:
    """The largest cosine of the example with a clip of the moment.

    If none of the nearest clips lies in the moment, the last one's cosine stands in as an upper bound.
    """
    nearest = answer.nearest
    if nearest is None or not len(nearest):
        return -1.0
    inside = hits_inside(nearest, scored.moment)
    return float(nearest.score[inside].max() if inside.any() else nearest.score.min())


# Verdicts ---------------------------------------------------------------------------------------------


def literal_in(query: str, answers: Iterable[StreamAnswer]) -> StreamAnswer | None:
    """The first stream whose best moment has every word of the query literally."""
    words = set(query_words(query)[0])
    return next(
        (answer for answer in answers if words and len(answer.moments) and answer.says(0, words)), None
    )


def judged_by(ranked: RankedMoments, model: Finder) -> tuple[Answer, str]:
    """The verdict on a trained system's answer, and the doubt if it is "unsure"."""
    confidence = ranked.moments[0].confidence if ranked.moments else None
    thresholds = ranked.thresholds or FIXED
    answer = answer_for(confidence, has_moments=bool(ranked.moments), thresholds=thresholds)
    if answer != "unsure":
        return answer, ""
    name = unambiguous(model.name)
    if confidence is None:
        return answer, f"how sure an answer of {name} is, has not been measured on this corpus"
    return answer, f"{name} is about as sure of queries that have no answer"


def judged(
    query: str,
    probable: ProbableMoments,
    answers: Sequence[StreamAnswer],
    interval: tuple[float, float] | None,
    withheld: str,
) -> tuple[Answer, str]:
    """The verdict on an answer, and the doubt if it is "unsure".

    If a stream's best moment has every word of the query literally, "no match" would mislead. So it would if
    hardly any unrelated sentence scores as high, or if the sentence model does not know the language, so that
    nothing was compared by meaning.
    """
    ranked = probable.moments
    confidence = ranked[0].confidence if ranked else None
    literal = literal_in(query, answers)
    answer = answer_for(
        confidence,
        has_moments=bool(ranked),
        never_no_match=literal is not None
        or probable.is_foreign
        or bool(ranked and stands_out(ranked[0].chance_percentile)),
        is_name=probable.is_name,
        in_five=probable.in_five,
        thresholds=PROBABLE,
    )
    if answer != "unsure":
        return answer, ""
    doubt = doubt_of(confidence, interval, withheld)
    if literal is not None and confidence is not None and confidence < PROBABLE.match_at:
        return answer, f"{_doubt_of_literal(literal, set(query_words(query)[0]))}; {doubt}"
    return answer, doubt


def judged_alike(ranked: Sequence[ScoredMoment]) -> tuple[Answer, str]:
    """The verdict on an answer to an example (does the first moment show the same video?) and the doubt."""
    confidence = ranked[0].confidence if ranked else None
    answer = answer_for(confidence, has_moments=bool(ranked), thresholds=PROBABLE)
    if confidence is None:
        return answer, UNMEASURED_ALIKE
    share = round(100 * confidence)
    why = f"frames this similar come from the same video in {share} of 100 cases"
    return answer, why if answer == "unsure" else ""


def doubt_of(confidence: float | None, interval: tuple[float, float] | None, withheld: str) -> str:
    """Why an answer is "unsure"."""
    if confidence is None or interval is None:
        return withheld or UNCALIBRATED
    low, high = (round(100 * bound) for bound in interval)
    return f"an answer like this is right in {round(100 * confidence)} of 100 cases ({low} to {high})"


def notes_on_minimum(moments: Sequence[ScoredMoment], kept: Sequence[ScoredMoment], doubt: str) -> list[str]:
    """A note if a minimum confidence leaves no moment because the moments have no confidence."""
    if kept or not moments or moments[0].confidence is not None:
        return []
    return [f"{doubt or UNCALIBRATED}; search without a minimum confidence"]


def _doubt_of_literal(answer: StreamAnswer, words: Collection[str]) -> str:
    """The doubt if the best moment has all the words, but they prove little."""
    looked_at = len(answer.moments)
    places = sum(answer.says(row, words) for row in range(looked_at))
    count = f"its words are all said in {places} of the {looked_at} places looked at"
    if places > max(2, looked_at / 2):
        return f"{count}, too often to tell places apart"
    return count
