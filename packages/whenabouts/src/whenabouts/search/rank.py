"""Step 5: the moments of all streams in one order, each with the probability that it is right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from whenabouts.confidence.probability import Chance, Probability, general
from whenabouts.index.store import Store
from whenabouts.search.answer_probability import ProbableMoments, with_probabilities
from whenabouts.search.moments import Localization, StreamAnswer
from whenabouts.search.query_language import language_apart
from whenabouts.search.stored_calibration import Calibration
from whenabouts.types import Moment, ScoredMoment

# Moments of different streams that share this much (IoU) are one moment with two reasons.
_SAME_MOMENT = 0.5


ChanceOf = Callable[[str, str], Chance | None]
"""What unrelated sentences score in a stream (first) among the videos like one (second, by its id)."""


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
        language_of: Callable[[str], str],
    ) -> ProbableMoments:
        """Moments of a query, best first, with the probability of each; without one if not calibrated."""
        if not ranked or ranked[0].chance_percentile is None:
            return ProbableMoments(tuple(ranked))
        names = [answer.stream for answer in answers]
        return with_probabilities(
            text,
            ranked,
            answers,
            self._localization.rarity(names),
            self._probability_for(text, names),
            language_of,
        )

    def _probability_for(self, text: str, streams: Iterable[str]) -> Probability:
        """The curves for a query: in another language than all words, as learned for the sentence model."""
        models = (self._store.streams[name].encoder for name in streams)
        model = next((name for name in models if name in self._probability.across), None)
        if model is None or not language_apart(text, self._store.ledger().languages):
            return self._probability
        return self._probability.across_languages(model)

    def interval(self, ranked: Sequence[ScoredMoment]) -> tuple[float, float] | None:
        """The range (95 %) that the first moment's confidence leaves open, None where there is none."""
        if not ranked or ranked[0].confidence is None:
            return None
        measured = self._calibration.streams
        clips = sum(measured[name].clips for name in ranked[0].evidence if name in measured)
        return self._probability.interval(ranked[0].confidence, clips)

    def withheld(self, ranked: Sequence[ScoredMoment], language_of: Callable[[str], str]) -> str:
        """Why the first moment has no confidence; "" where there is one, or nothing was measured."""
        if not ranked:
            return ""
        language = language_of(ranked[0].moment.video_id)
        groups = (self._calibration.group(name, language) for name in ranked[0].evidence)
        return next((group.withheld for group in groups if group.withheld), "")


def rank(answers: Sequence[StreamAnswer], chance_of: ChanceOf) -> list[ScoredMoment]:
    """Moments of all streams in one order; those that streams agree on are one moment (see `ranked`).

    `chance_of` is that of unrelated queries of the kind.
    """
    moments = (scored for answer in answers for scored in answer.all_scored())
    return ranked(moments, chance_of, len(answers))


def ranked(moments: Iterable[ScoredMoment], chance_of: ChanceOf, streams: int) -> list[ScoredMoment]:
    """The moments of `streams` streams, as each scores them (`StreamAnswer.scored`), in one order.

    Scores become surprises among unrelated sentences (`Chance.surprise`), which puts streams, and groups of
    videos within a stream, on one scale. A moment that several streams have gets the sum of its surprises,
    and the span of the stream that is surer. With m streams searched, an unrelated sentence has m chances,
    so the percentile is (1 - exp(-surprise)) ** m. A moment without a chance has no percentile, and is ranked
    by another chance of its stream.
    """
    scored = [(next(iter(moment.evidence)), moment) for moment in moments]
    pairs = dict.fromkeys((name, moment.moment.video_id) for name, moment in scored)
    chances = {(name, video_id): chance_of(name, video_id) for name, video_id in pairs}
    others = {name: chance for (name, _), chance in chances.items() if chance is not None}
    without = {id for id, chance in chances.items() if chance is None}
    by_surprise = [
        (name, _surprising(moment, chances[name, moment.moment.video_id] or others.get(name)))
        for name, moment in scored
    ]
    by_surprise.sort(key=lambda item: _order(item[1]))
    merged: list[ScoredMoment] = []
    for name, moment in by_surprise:
        twin = _twin(merged, moment, name) if streams > 1 else None
        if twin is None:
            merged.append(moment)
        else:
            merged[twin] = _joined(merged[twin], moment)
    merged.sort(key=_order)
    return [
        moment
        if any((name, moment.moment.video_id) in without for name in moment.evidence)
        else replace(moment, chance_percentile=(-math.expm1(-moment.score)) ** streams)
        for moment in merged
    ]


def _order(scored: ScoredMoment) -> tuple[float, Moment]:
    return (-scored.score, scored.moment)


def _surprising(scored: ScoredMoment, chance: Chance | None) -> ScoredMoment:
    return replace(scored, score=chance.surprise(scored.score)) if chance else scored


def _twin(ranked: Sequence[ScoredMoment], scored: ScoredMoment, stream: str) -> int | None:
    """Where another stream already has the same moment."""
    for place, other in enumerate(ranked):
        if stream not in other.evidence and other.moment.iou(scored.moment) >= _SAME_MOMENT:
            return place
    return None


def _joined(first: ScoredMoment, second: ScoredMoment) -> ScoredMoment:
    """One moment of two streams; `first` is the surer and keeps its span."""
    return replace(
        first,
        score=first.score + max(0.0, second.score),
        evidence={**first.evidence, **second.evidence},
        text=first.text or second.text,
    )


def unmeasured(stream: str, video_id: str) -> None:
    """The chance of an example: background scores were measured with text queries, so they do not apply."""
