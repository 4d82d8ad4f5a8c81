"""How likely each moment of an answer is right: its features, and the learned curve over them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from whenabouts.confidence.probability import MOST_LEAD, NAME_RARITY, NAME_WORDS, Features, Probability
from whenabouts.product.index.lookup import words_of
from whenabouts.product.streams import stream
from whenabouts.product.word_units import Rarity, compounded_in, stand_in_order, units_of
from whenabouts.types import ScoredMoment

if TYPE_CHECKING:
    from whenabouts.product.stream_answer import StreamAnswer

# Words count as said where they are said within so many seconds of what answers best.
_AROUND = 30.0
# Moments whose own words are looked at; those behind are no surer than the last of these.
_LOOKED_AT = 10
_FIFTH = 5
# Where words are found by parts of them, so many signs that stand together are said.
_LEAST_PART = 3
LISTED = 20
"""Moments of a list that its features come from."""
# Where nothing else scores, the first stands as far above it as this.
_ALONE = 5.0


@dataclass(frozen=True, slots=True)
class Spoken:
    """How much of a query is said in a place: rarity of words that are, and are not; whether as a phrase.

    `hours` are those of its video.
    """

    spoken: float
    unspoken: float
    phrase: bool
    hours: float = 0.0
    is_rare: bool = True

    @property
    def share(self) -> float:
        """How much of the query's rarity is said there, in [0, 1]."""
        return self.spoken / max(self.spoken + self.unspoken, 1e-9)

    @property
    def is_name(self) -> bool:
        """Whether it is a word, a name or a phrase that is said as it is, and rare enough to look for."""
        return self.phrase and self.is_rare


def features_of(
    query: str,
    ranked: Sequence[ScoredMoment],
    spoken_in: Callable[[ScoredMoment], Spoken | None],
    count: int = 1,
) -> list[Features]:
    """The features of the first `count` of `ranked` (one or more, best first; scored as surprises).

    `spoken_in` compares the query with a place; None where it has no words.
    """
    units = units_of(query)
    is_short = len(words_of(query)) <= NAME_WORDS
    others = (scored for scored in ranked[1:] if not _is_copy(scored, ranked[0]))
    lead, of_video, crowd, same = _of_list([ranked[0], *itertools.islice(others, LISTED - 1)])
    words = math.log(len(units) + 0.5)
    features = []
    for scored in ranked[:count]:
        there = spoken_in(scored)
        own, length = (0.0, 0.0, 0.0, 0.0, 0.0), 0.0
        if there is not None:
            phrase, whole = float(there.phrase), float(there.unspoken <= 0)
            amounts = (math.log1p(there.spoken), math.log1p(there.unspoken))
            own = (*amounts, whole, phrase, phrase if is_short else 0.0)
            length = 0.0 if there.phrase else math.log1p(there.hours)
        features.append(
            Features(_root(scored.score), lead, _root(of_video), crowd, same, *own, words, length)
        )
    return features


def _is_copy(scored: ScoredMoment, first: ScoredMoment) -> bool:
    """Whether another video says the same there, to the score: the recording again, or its sound alone.

    A copy is no rival: that two files hold the answer makes it no less right.
    """
    texts = [[piece.text for piece in own.evidence.values()] for own in (scored, first)]
    is_same = texts[0] == texts[1] and any(texts[0]) and math.isclose(scored.score, first.score, rel_tol=1e-6)
    return is_same and scored.video_id != first.video_id


def _root(units: float) -> float:
    return math.sqrt(max(0.0, units))


def _of_list(ranked: Sequence[ScoredMoment]) -> tuple[float, float, float, float]:
    """Lead, lead of the video, crowd and share of the same video."""
    first = ranked[0]
    below = np.array([first.score - scored.score for scored in ranked])
    others = [
        gap
        for gap, scored in zip(below.tolist(), ranked, strict=True)
        if scored.moment.video_id != first.moment.video_id
    ]
    # A corpus of one video has no other one to stand above: then the lead is the one inside it.
    lead = float(below[min(_FIFTH, len(below) - 1)]) if len(below) > 1 else min(_ALONE, first.score)
    after = ranked[1 : _FIFTH + 1]
    same = [scored.moment.video_id == first.moment.video_id for scored in after]
    return (
        min(MOST_LEAD, lead),
        min(MOST_LEAD, others[0] if others else lead),
        float(np.log(np.exp(-below).sum())),
        float(np.mean(same)) if same else 1.0,
    )


def spoken_near(query: str, scored: ScoredMoment, answer: StreamAnswer, rarity: Rarity) -> Spoken:
    """How much of a query is said in a moment and around its strongest place."""
    language = rarity.languages.get(scored.video_id, "")
    units, there = units_of(query, language), units_of(_words_near(answer, scored), language)
    present = set(there) | _joined(there) | compounded_in(there, units, language)
    pairs = itertools.pairwise(units)
    present |= {unit for pair in pairs if "".join(pair) in present for unit in pair}
    is_part = False
    if stream(answer.stream).parts_of_words:
        signs = "".join(there)
        present |= {unit for unit in units if len(unit) >= _LEAST_PART and unit in signs}
        is_part = len(whole := "".join(units)) >= _LEAST_PART and whole in signs
    weights = {unit: rarity.of(unit) for unit in units}
    spoken = sum(weight for unit, weight in weights.items() if unit in present)
    unspoken = sum(weight for unit, weight in weights.items() if unit not in present)
    is_rare = spoken >= min(NAME_RARITY, rarity.of_second)
    hours = _hours_of(answer, scored.video_id)
    return Spoken(spoken, unspoken, is_part or stand_in_order(units, there), hours, is_rare)


def _hours_of(answer: StreamAnswer, video_id: str) -> float:
    """Until when something is said in a video, in hours."""
    block = answer.block
    if video_id not in block.video_ids:
        return 0.0
    own = block.rows(block.video_ids.index(video_id))
    return float(block.end[own].max(initial=0.0)) / 3600


def _joined(units: Sequence[str]) -> set[str]:
    """Each two neighbours as one: "clean room" is said by "cleanroom", and the other way round."""
    return {first + second for first, second in itertools.pairwise(units)}


def _words_near(answer: StreamAnswer, scored: ScoredMoment) -> str:
    moment, block = scored.moment, answer.block
    if moment.video_id not in block.video_ids:
        return ""
    piece = scored.evidence.get(answer.stream)
    start = min(moment.start, (piece.start if piece else moment.start) - _AROUND)
    end = max(moment.end, (piece.end if piece else moment.end) + _AROUND)
    own = block.rows(block.video_ids.index(moment.video_id))
    near = own.start + np.flatnonzero((block.start[own] < end) & (block.end[own] > start))
    return " ".join(block.text[row] for row in near.tolist())


def spoken_at(
    query: str, scored: ScoredMoment, answers: Iterable[StreamAnswer], rarity: Mapping[str, Rarity]
) -> dict[str, Spoken]:
    """How much of a query is said or written in a place, by each stream with words. `rarity` has these."""
    return {
        answer.stream: spoken_near(query, scored, answer, rarity[answer.stream])
        for answer in answers
        if answer.stream in rarity and any(answer.block.text)
    }


def most_spoken(by_stream: Mapping[str, Spoken], scored: ScoredMoment) -> Spoken | None:
    """What the stream has that has most of a query, of those that found the moment.

    None where none of them has words: what somebody says beside a sound speaks neither for nor against it.
    """
    own = (spoken for stream, spoken in by_stream.items() if stream in scored.evidence)
    return max(own, key=lambda spoken: (spoken.phrase, spoken.share), default=None)


def with_probabilities(
    query: str,
    ranked: Sequence[ScoredMoment],
    answers: Sequence[StreamAnswer],
    rarity: Mapping[str, Rarity],
    probability: Probability,
) -> tuple[list[ScoredMoment], bool]:
    """`ranked` (best first, scored as surprises) with the probability that each is right as its confidence.

    And whether the query is a word, a name or a phrase that is said at the first. Probabilities never rise
    from a moment to the next. `rarity` has each stream with words.
    """
    if not ranked:
        return [], False

    def spoken_in(scored: ScoredMoment) -> Spoken | None:
        found_by = [answer for answer in answers if answer.stream in scored.evidence]
        return most_spoken(spoken_at(query, scored, found_by, rarity), scored)

    features = features_of(query, ranked, spoken_in, _LOOKED_AT)
    there = spoken_in(ranked[0])
    first, has_words = features[0], there is not None
    at_first = probability.of_first(first, has_words=has_words)
    least, moments = at_first, [replace(ranked[0], confidence=at_first)]
    for place, scored in enumerate(ranked[1:], 1):
        own = replace(features[min(place, len(features) - 1)], surprise=_root(scored.score))
        if not _is_copy(scored, ranked[0]):
            least = min(least, probability.of_later(first, at_first, own, has_words=has_words))
        moments.append(replace(scored, confidence=least))
    return moments, there is not None and there.is_name
