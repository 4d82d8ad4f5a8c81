"""How likely each moment of an answer is right: its features, and the learned curve over them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from whenabouts.confidence.common_words import is_term
from whenabouts.confidence.probability import MOST_LEAD, NAME_RARITY, Features, Probability
from whenabouts.index.lookup import words_of
from whenabouts.index.records import ClipBlock, ClipHits
from whenabouts.search.word_units import Rarity, compounded_in, stand_in_order, units_of
from whenabouts.types import Moment, ScoredMoment

if TYPE_CHECKING:
    from whenabouts.search.moments import StreamAnswer

# Words count as said where they are said within so many seconds of what answers best.
_AROUND = 30.0
# Moments whose own words are looked at; those behind are no surer than the last of these.
_LOOKED_AT = 10
_FIFTH = 5
# Where words are found by parts of them, so many signs that stand together are said.
_LEAST_PART = 3
LISTED = 20
"""Moments of a list that its features come from."""
# Two texts about different things share hardly one pair of words in fifty, a recording and the same recording
# in other cues nine in ten.
_FEWEST_PAIRS = 6
_SAME_PAIRS = 0.4
# Where nothing else scores, the first stands as far above it as this.
_ALONE = 5.0


@dataclass(frozen=True, slots=True)
class Spoken:
    """How much of a query is said in a place.

    `spoken`, `unspoken`: the rarity of its words that are, and are not. `phrase`: they stand there in their
    order. `hours`: until when something is said in its video. `nearer`: how many clips of the stream are
    nearer in meaning than the first one of the place. `is_name`: it is a name or a rare term and said there.
    """

    spoken: float
    unspoken: float
    phrase: bool
    hours: float = 0.0
    nearer: int = 0
    is_name: bool = False

    @property
    def share(self) -> float:
        """How much of the query's rarity is said there, in [0, 1]."""
        return self.spoken / max(self.spoken + self.unspoken, 1e-9)


@dataclass(frozen=True, slots=True)
class ProbableMoments:
    """Moments of a query, best first, with the probability that each is right as their confidence.

    `features` are those of the first moments, none where nothing was measured and moments have no confidence.
    `in_five` is the probability that one of the first five is right. `is_name`: the query is a name or a
    rare term that is said there.
    """

    moments: tuple[ScoredMoment, ...] = ()
    features: tuple[Features, ...] = ()
    in_five: float | None = None
    is_name: bool = False


def features_of(
    query: str,
    ranked: Sequence[ScoredMoment],
    spoken_in: Callable[[int], Spoken | None],
    language_of: Callable[[str], str],
    count: int = 1,
) -> list[Features]:
    """The features of the first `count` of `ranked` (one or more, best first; scored as surprises).

    `spoken_in` compares the query with a moment by its row; None where it has no words. `language_of` has the
    language of a video's words by its id.
    """
    units = units_of(query)
    lead, of_video, crowd, same = _of_list(rivals_of(ranked, language_of))
    words = math.log(len(units) + 0.5)
    features = []
    for row, scored in enumerate(ranked[:count]):
        there = spoken_in(row)
        of_words = (0.0, words, 0.0, 0.0, 0.0)
        if there is not None:
            length = 0.0 if there.phrase else math.log1p(there.hours)
            of_words = (
                math.log1p(there.spoken),
                words,
                length,
                math.log1p(there.nearer),
                float(there.is_name),
            )
        features.append(Features(_root(scored.score), lead, _root(of_video), crowd, same, *of_words))
    return features


def rivals_of(ranked: Sequence[ScoredMoment], language_of: Callable[[str], str]) -> list[ScoredMoment]:
    """The first moment and those that compete with it, at most `LISTED`.

    A copy of the recording and its translation also hold the answer, so they make it no less right: moments
    that say the same as an earlier one in another video, and moments in another language, are left out.
    """
    language, kept = language_of(ranked[0].moment.video_id), list[ScoredMoment]()
    for scored in ranked:
        is_theirs = language_of(scored.moment.video_id) == language
        if is_theirs and not any(_is_copy(scored, other) for other in kept):
            kept.append(scored)
            if len(kept) == LISTED:
                break
    return kept


def _is_copy(scored: ScoredMoment, other: ScoredMoment) -> bool:
    """Whether two moments of two videos say the same."""
    if scored.moment.video_id == other.moment.video_id or not scored.text:
        return False
    return says_the_same(scored.text, other.text)


def says_the_same(text: str, other: str) -> bool:
    """Whether two texts say the same: to the letter where they are short, else mostly."""
    own, theirs = _pairs_of(text), _pairs_of(other)
    fewest = min(len(own), len(theirs))
    if fewest < _FEWEST_PAIRS:
        return text == other
    return len(own & theirs) >= _SAME_PAIRS * fewest


@lru_cache(maxsize=1 << 12)
def _pairs_of(text: str) -> frozenset[tuple[str, str]]:
    """Each two neighbouring words of a text."""
    return frozenset(itertools.pairwise(words_of(text)))


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


def spoken_near(
    query: str, scored: ScoredMoment, answer: StreamAnswer, rarity: Rarity, better: Moment | None = None
) -> Spoken:
    """How much of a query is said in a moment and around its strongest place, not in a `better` moment."""
    language = rarity.languages.get(scored.moment.video_id, "")
    units, there = units_of(query, language), units_of(_words_near(answer, scored, better), language)
    present = set(there) | _joined(there)
    if language:
        present |= compounded_in(there, units, language)
    pairs = itertools.pairwise(units)
    present |= {unit for pair in pairs if "".join(pair) in present for unit in pair}
    is_part = False
    if answer.parts_of_words:
        signs = "".join(there)
        present |= {unit for unit in units if len(unit) >= _LEAST_PART and unit in signs}
        is_part = len(whole := "".join(units)) >= _LEAST_PART and whole in signs
    weights = rarity.of_each(units)
    spoken = sum(weight for unit, weight in weights.items() if unit in present)
    unspoken = sum(weight for unit, weight in weights.items() if unit not in present)
    phrase = is_part or stand_in_order(units, there)
    is_rare = spoken >= min(NAME_RARITY, rarity.of_second)
    return Spoken(
        spoken,
        unspoken,
        phrase,
        _hours_of(answer, scored.moment.video_id),
        _nearer(answer.nearest, scored),
        phrase and is_rare and not language and is_term(words_of(query)),
    )


def _nearer(hits: ClipHits | None, scored: ScoredMoment) -> int:
    """How many of the nearest clips come before the first that shares time with a moment."""
    if hits is None:
        return 0
    own = np.array(hits.video_ids) == scored.moment.video_id
    inside = own & (hits.start < scored.moment.end) & (hits.end > scored.moment.start)
    return int(np.argmax(inside)) if inside.any() else len(hits)


def _hours_of(answer: StreamAnswer, video_id: str) -> float:
    """Until when something is said in a video, in hours."""
    block = answer.block
    if video_id not in block.video_ids:
        return 0.0
    return float(block.end[_rows_of(block, video_id)].max(initial=0.0)) / 3600


def _rows_of(block: ClipBlock, video_id: str) -> slice:
    position = block.video_ids.index(video_id)
    return slice(int(block.offsets[position]), int(block.offsets[position + 1]))


def _joined(units: Sequence[str]) -> set[str]:
    """Each two neighbours as one: "clean room" is said by "cleanroom", and the other way round."""
    return {first + second for first, second in itertools.pairwise(units)}


def _words_near(answer: StreamAnswer, scored: ScoredMoment, better: Moment | None) -> str:
    moment, block = scored.moment, answer.block
    if moment.video_id not in block.video_ids:
        return ""
    piece = scored.evidence.get(answer.stream)
    start = min(moment.start, (piece.start if piece else moment.start) - _AROUND)
    end = max(moment.end, (piece.end if piece else moment.end) + _AROUND)
    own = _rows_of(block, moment.video_id)
    is_near = (block.start[own] < end) & (block.end[own] > start)
    if better is not None and better.video_id == moment.video_id:
        is_near &= (block.start[own] >= better.end) | (block.end[own] <= better.start)
    near = own.start + np.flatnonzero(is_near)
    return " ".join(block.text[row] for row in near.tolist())


def spoken_at(
    query: str,
    scored: ScoredMoment,
    answers: Iterable[StreamAnswer],
    rarity: Mapping[str, Rarity],
    better: Moment | None = None,
) -> dict[str, Spoken]:
    """How much of a query is said or written in a place, by each stream with words. `rarity` has these.

    What is said in a `better` moment of the video speaks for that one alone.
    """
    return {
        answer.stream: spoken_near(query, scored, answer, rarity[answer.stream], better)
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
    language_of: Callable[[str], str],
) -> ProbableMoments:
    """`ranked` (one or more, best first, scored as surprises) with the probability that each is right.

    Probabilities never rise from a moment to the next. `rarity` has each stream with words, `language_of` the
    language of a video.
    """

    @cache
    def spoken_in(row: int) -> Spoken | None:
        scored = ranked[row]
        found_by = [answer for answer in answers if answer.stream in scored.evidence]
        better = ranked[0].moment if row else None
        return most_spoken(spoken_at(query, scored, found_by, rarity, better), scored)

    features = features_of(query, ranked, spoken_in, language_of, _LOOKED_AT)
    there = spoken_in(0)
    first, has_words = features[0], there is not None
    at_first = least = probability.of_first(first, has_words=has_words)
    moments = []
    for row, scored in enumerate(ranked):
        if row and not _is_copy(scored, ranked[0]):
            own = replace(features[min(row, len(features) - 1)], surprise=_root(scored.score))
            least = min(least, probability.of_later(first, at_first, own, has_words=has_words))
        spoken = spoken_in(row) if row < len(features) else None
        says_query = spoken is not None and spoken.phrase
        moments.append(replace(scored, confidence=least, says_query=says_query))
    in_five = probability.of_five(first, has_words=has_words)
    return ProbableMoments(tuple(moments), tuple(features), in_five, there is not None and there.is_name)
