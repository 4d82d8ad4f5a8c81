"""Step 5: merge the moments of all streams into one order, with the probability that each is right."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from whenabouts.confidence.probability import Chance, Probability, general, surprises
from whenabouts.index.store import Store
from whenabouts.search.answer_probability import ProbableMoments, Unsaid, unsaid_in, with_probabilities
from whenabouts.search.moments import Localization, StreamAnswer
from whenabouts.search.query_language import language_apart
from whenabouts.search.stored_calibration import Calibration
from whenabouts.types import Moment, ScoredMoment

# Moments of different streams with at least this IoU are merged.
_SAME_MOMENT = 0.5
# A moment of words loses this much surprise if it says no word of the query: words on a related subject are
# surprising, too. Chosen with `benchmarks.drawn_up --choose`, where 1 to 3 find about as much.
_UNSAID_DISCOUNT = 2.0


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

    def withheld(self, ranked: Sequence[ScoredMoment], languages: Mapping[str, str]) -> str:
        """Why the first moment has no confidence; "" if it has one, or the corpus is uncalibrated."""
        if not ranked:
            return ""
        language = languages.get(ranked[0].moment.video_id, "")
        groups = (self._calibration.group(name, language) for name in ranked[0].evidence)
        return next((group.withheld for group in groups if group.withheld), "")


def rank(
    answers: Sequence[StreamAnswer], chance_of: ChanceOf, unsaid: Unsaid = MappingProxyType({})
) -> list[ScoredMoment]:
    """The moments of all streams in one order; moments found by several streams are merged (see `ranked`).

    `chance_of` is for unrelated queries of this kind.
    """
    moments = (scored for answer in answers for scored in answer.all_scored())
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
    each = [chances[name, moment.moment.video_id] or fallbacks.get(name) for name, moment in scored]
    each_surprise = surprises(each, [moment.score for _, moment in scored])
    entries = [
        _Entry.of(surprise, moment, name, unsaid)
        for surprise, (name, moment) in zip(each_surprise, scored, strict=True)
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
