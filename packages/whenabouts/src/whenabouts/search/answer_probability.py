"""How likely each moment of an answer is right: its features, and the learned curve over them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from whenabouts.confidence.common_words import is_term
from whenabouts.confidence.probability import MOST_LEAD, NAME_RARITY, Features, Probability
from whenabouts.index.lookup import words_of
from whenabouts.index.records import ClipHits
from whenabouts.search.word_units import Rarity, units_of, words_in_each
from whenabouts.types import Moment, ScoredMoment

if TYPE_CHECKING:
    from whenabouts.search.moments import StreamAnswer

# Words count as said where they are said within so many seconds of what answers best.
_AROUND = 30.0
# Moments whose own words are looked at; those behind are no surer than the last of these.
_LOOKED_AT = 10
_FIFTH = 5
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


_SILENT = Spoken(0.0, 0.0, phrase=False)


@dataclass(frozen=True, slots=True)
class ProbableMoments:
    """Moments of a query, best first, with the probability that each is right as their confidence.

    `features` are those of the first moments, none where nothing was measured and moments have no confidence.
    `in_five` is the probability that one of the first five is right. `is_name`: the query is a name or a
    rare term that is said there. `is_foreign`: the sentence model does not know the language of the first.
    """

    moments: tuple[ScoredMoment, ...] = ()
    features: tuple[Features, ...] = ()
    in_five: float | None = None
    is_name: bool = False
    is_foreign: bool = False


def features_of(
    query: str,
    ranked: Sequence[ScoredMoment],
    spoken: Sequence[Spoken | None],
    languages: Mapping[str, str],
) -> list[Features]:
    """The features of the first of `ranked` (one or more, best first; scored as surprises).

    `spoken` compares the query with each of these; None where it has no words. `languages` are those of the
    videos' words, by id.
    """
    units = units_of(query)
    lead, of_video, crowd, same = _of_list(rivals_of(ranked, languages))
    words = math.log(len(units) + 0.5)
    features = []
    for scored, there in zip(ranked, spoken, strict=False):
        own = there or _SILENT
        length = 0.0 if own.phrase else math.log1p(own.hours)
        of_words = (math.log1p(own.spoken), words, length, math.log1p(own.nearer), float(own.is_name))
        features.append(Features(_root(scored.score), lead, _root(of_video), crowd, same, *of_words))
    return features


def rivals_of(ranked: Sequence[ScoredMoment], languages: Mapping[str, str]) -> list[ScoredMoment]:
    """The first moment and those that compete with it, at most `LISTED`.

    A copy of the recording and its translation also hold the answer, so they make it no less right: moments
    that say the same as an earlier one in another video, and moments in another language, are left out.
    """
    language, kept = languages.get(ranked[0].moment.video_id, ""), list[ScoredMoment]()
    for scored in ranked:
        is_theirs = languages.get(scored.moment.video_id, "") == language
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


def _spoken_near(
    query: str,
    moments: Sequence[ScoredMoment],
    answer: StreamAnswer,
    rarity: Rarity,
    better: Moment | None,
) -> list[Spoken]:
    """How much of a query is said in each moment and around its strongest place."""
    block, ids = answer.block, dict.fromkeys(scored.moment.video_id for scored in moments)
    rows = {name: block.rows(block.video_ids.index(name)) for name in ids if name in block.video_ids}
    hours = {name: float(block.end[own].max(initial=0.0)) / 3600 for name, own in rows.items()}
    texts = [_words_near(answer, scored, rows.get(scored.moment.video_id), better) for scored in moments]
    spoken_in = [rarity.languages.get(scored.moment.video_id, "") for scored in moments]
    compared = words_in_each(query, texts, spoken_in, rarity, parts=answer.parts_of_words)
    rare = min(NAME_RARITY, rarity.of_second)
    return [
        Spoken(
            spoken,
            unspoken,
            phrase,
            hours.get(scored.moment.video_id, 0.0),
            _nearer(answer.nearest, scored),
            phrase and spoken >= rare and not language and is_term(words_of(query)),
        )
        for scored, language, (spoken, unspoken, phrase) in zip(moments, spoken_in, compared, strict=True)
    ]


def _nearer(hits: ClipHits | None, scored: ScoredMoment) -> int:
    """How many of the nearest clips come before the first that shares time with a moment."""
    if hits is None:
        return 0
    own = np.array(hits.video_ids) == scored.moment.video_id
    inside = own & (hits.start < scored.moment.end) & (hits.end > scored.moment.start)
    return int(np.argmax(inside)) if inside.any() else len(hits)


def _words_near(answer: StreamAnswer, scored: ScoredMoment, own: slice | None, better: Moment | None) -> str:
    """The words in a moment and around its strongest place; `own` are the rows of its video's clips."""
    moment, block = scored.moment, answer.block
    if own is None:
        return ""
    piece = scored.evidence.get(answer.stream)
    start = min(moment.start, (piece.start if piece else moment.start) - _AROUND)
    end = max(moment.end, (piece.end if piece else moment.end) + _AROUND)
    is_near = (block.start[own] < end) & (block.end[own] > start)
    if better is not None and better is not moment and better.video_id == moment.video_id:
        is_near &= (block.start[own] >= better.end) | (block.end[own] <= better.start)
    near = own.start + np.flatnonzero(is_near)
    return " ".join(block.text[row] for row in near.tolist())


def spoken_at(
    query: str,
    moments: Sequence[ScoredMoment],
    answers: Iterable[StreamAnswer],
    rarity: Mapping[str, Rarity],
    better: Moment | None = None,
) -> list[dict[str, Spoken]]:
    """How much of a query is said or written in each place, by each stream with words. `rarity` has these.

    What is said in a `better` moment of the video speaks for that one alone; then streams that did not find a
    place are left out.
    """
    by_moment: list[dict[str, Spoken]] = [{} for _ in moments]
    for answer in answers:
        if answer.stream in rarity and any(answer.block.text):
            rows = [
                row
                for row, scored in enumerate(moments)
                if better is None or answer.stream in scored.evidence
            ]
            own = [moments[row] for row in rows]
            spoken = _spoken_near(query, own, answer, rarity[answer.stream], better)
            for row, there in zip(rows, spoken, strict=True):
                by_moment[row][answer.stream] = there
    return by_moment


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
    languages: Mapping[str, str],
    count: int | None = None,
) -> ProbableMoments:
    """`ranked` (one or more, best first, scored as surprises) with the probability that each is right.

    Probabilities never rise from a moment to the next. `rarity` has each stream with words, `languages` the
    language of each video. The first `count` moments are returned, None: all.
    """
    shown = ranked[:count]
    looked_at = shown[:_LOOKED_AT]
    by_stream = spoken_at(query, looked_at, answers, rarity, ranked[0].moment)
    spoken = [*map(most_spoken, by_stream, looked_at)]
    features = features_of(query, ranked, spoken, languages)
    first, has_words = features[0], spoken[0] is not None
    later = [
        replace(features[min(row, len(features) - 1)], surprise=_root(scored.score))
        for row, scored in enumerate(shown)
    ]
    least = probability.of_first(first, has_words=has_words)
    alone = probability.of_later(first, least, later[1:], has_words=has_words)
    moments = []
    for row, scored in enumerate(shown):
        if row and not _is_copy(scored, ranked[0]):
            least = min(least, alone[row - 1])
        there = spoken[row] if row < len(spoken) else None
        says_query = there is not None and there.phrase
        moments.append(replace(scored, confidence=least, says_query=says_query))
    in_five = probability.of_five(first, has_words=has_words)
    is_name = spoken[0] is not None and spoken[0].is_name
    return ProbableMoments(tuple(moments), tuple(features), in_five, is_name)
