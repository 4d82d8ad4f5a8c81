"""Step 5: merge the moments of all streams into one order, with the probability that each is right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from whenabouts.confidence.probability import Chance, Probability, general
from whenabouts.index.store import Store
from whenabouts.search.answer_probability import ProbableMoments, with_probabilities
from whenabouts.search.moments import Localization, StreamAnswer
from whenabouts.search.query_language import language_apart
from whenabouts.search.stored_calibration import Calibration
from whenabouts.types import ScoredMoment

# Moments of different streams with at least this IoU are merged.
_SAME_MOMENT = 0.5


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
        languages: Mapping[str, str],
        count: int | None = None,
    ) -> ProbableMoments:
        """The first `count` moments of a query (None: all), best first, with the probability of each.

        None of them has one if the corpus is uncalibrated.
        """
        if not ranked or ranked[0].chance_percentile is None:
            return ProbableMoments(tuple(ranked[:count]))
        names = [answer.stream for answer in answers]
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

    def interval(self, ranked: Sequence[ScoredMoment]) -> tuple[float, float] | None:
        """The 95 % interval of the first moment's confidence; None without a confidence."""
        if not ranked or ranked[0].confidence is None:
            return None
        measured = self._calibration.streams
        clips = sum(measured[name].clips for name in ranked[0].evidence if name in measured)
        return self._probability.interval(ranked[0].confidence, clips)

    def withheld(self, ranked: Sequence[ScoredMoment], languages: Mapping[str, str]) -> str:
        """Why the first moment has no confidence; "" if it has one, or the corpus is uncalibrated."""
        if not ranked:
            return ""
        language = languages.get(ranked[0].moment.video_id, "")
        groups = (self._calibration.group(name, language) for name in ranked[0].evidence)
        return next((group.withheld for group in groups if group.withheld), "")


def rank(answers: Sequence[StreamAnswer], chance_of: ChanceOf) -> list[ScoredMoment]:
    """The moments of all streams in one order; moments found by several streams are merged (see `ranked`).

    `chance_of` is for unrelated queries of this kind.
    """
    moments = (scored for answer in answers for scored in answer.all_scored())
    return ranked(moments, chance_of, len(answers))


def ranked(moments: Iterable[ScoredMoment], chance_of: ChanceOf, streams: int) -> list[ScoredMoment]:
    """The moments of `streams` streams, with each stream's scores (`StreamAnswer.scored`), in one order.

    Scores become surprises among unrelated sentences (`Chance.surprise`), which puts streams, and groups of
    videos in a stream, on one scale. A moment found by several streams gets the sum of its surprises, and the
    span of the surer stream. With m streams searched, an unrelated sentence has m chances, so the percentile
    is (1 - exp(-surprise)) ** m. A moment whose group has no chance gets no percentile, and is ranked by
    another chance of its stream.
    """
    scored = [(next(iter(moment.evidence)), moment) for moment in moments]
    pairs = dict.fromkeys((name, moment.moment.video_id) for name, moment in scored)
    chances = {(name, video_id): chance_of(name, video_id) for name, video_id in pairs}
    fallbacks = {name: chance for (name, _), chance in chances.items() if chance is not None}
    without = {id for id, chance in chances.items() if chance is None}
    each = [chances[name, moment.moment.video_id] or fallbacks.get(name) for name, moment in scored]
    in_turn = {
        chance: iter(
            _surprises(chance, [m.score for (_, m), c in zip(scored, each, strict=True) if c == chance])
        )
        for chance in dict.fromkeys(each)
    }
    surprises = [(next(in_turn[c]), name, moment) for c, (name, moment) in zip(each, scored, strict=True)]
    surprises.sort(key=lambda item: (-item[0], item[2].moment))
    merged: list[tuple[float, ScoredMoment]] = []
    for surprise, name, moment in surprises:
        twin = _twin(merged, moment, name) if streams > 1 else None
        if twin is None:
            merged.append((surprise, moment))
        else:
            its_surprise, surer = merged[twin]
            merged[twin] = its_surprise + max(0.0, surprise), _joined(surer, moment)
    merged.sort(key=lambda item: (-item[0], item[1].moment))
    return [
        replace(
            moment,
            score=surprise,
            chance_percentile=None
            if any((name, moment.moment.video_id) in without for name in moment.evidence)
            else (-math.expm1(-surprise)) ** streams,
        )
        for surprise, moment in merged
    ]


def _surprises(chance: Chance | None, scores: list[float]) -> list[float]:
    return chance.surprises(scores) if chance else scores


def _twin(ranked: Sequence[tuple[float, ScoredMoment]], scored: ScoredMoment, stream: str) -> int | None:
    """The row of the same moment found by another stream, or None."""
    for place, (_, other) in enumerate(ranked):
        if stream not in other.evidence and other.moment.iou(scored.moment) >= _SAME_MOMENT:
            return place
    return None


def _joined(first: ScoredMoment, second: ScoredMoment) -> ScoredMoment:
    """The merged moment of two streams; `first` is the surer and keeps its span."""
    return replace(first, evidence={**first.evidence, **second.evidence}, text=first.text or second.text)


def unmeasured(stream: str, video_id: str) -> None:
    """The chance of an example: background scores were measured with text queries, so they do not apply."""
