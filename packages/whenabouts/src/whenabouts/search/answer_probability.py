"""The probability that each moment of an answer is right: its features, and the learned curve over them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whenabouts.confidence.common_words import is_term
from whenabouts.confidence.probability import MOST_LEAD, NAME_RARITY, Features, Probability
from whenabouts.index.lookup import words_of
from whenabouts.index.records import ClipHits
from whenabouts.search.word_units import Rarity, units_of, words_in_each
from whenabouts.types import Moment, ScoredMoment

if TYPE_CHECKING:
    from whenabouts.search.moments import StreamAnswer

# Words count as said within this many seconds of the strongest place.
_AROUND = 30.0
# Moments whose own words are read; later ones are no surer than the last of these.
_LOOKED_AT = 10
_FIFTH = 5
LISTED = 20
"""Moments of a list from which its features are computed."""
# Two texts about different things share hardly one word pair in fifty; two transcripts of one recording share
# nine in ten.
_FEWEST_PAIRS = 6
_SAME_PAIRS = 0.4
# Lead of the first moment if nothing else scores.
_ALONE = 5.0


@dataclass(frozen=True, slots=True)
class Spoken:
    """How much of a query is said in a place.

    `spoken`, `unspoken`: summed rarity of the query's words that are said, and that are not. `phrase`: they
    are said in the query's order. `hours`: the end of the last words in the video. `nearer`: number of the
    stream's clips nearer in meaning than the first one of the place. `is_name`: the query is a name or a rare
    term, and is said there.
    """

    spoken: float
    unspoken: float
    phrase: bool
    hours: float = 0.0
    nearer: int = 0
    is_name: bool = False

    @property
    def share(self) -> float:
        """The said share of the query's rarity, in [0, 1]."""
        return self.spoken / max(self.spoken + self.unspoken, 1e-9)

    @property
    def unsaid(self) -> float:
        """The share of the query's rarity that is not said, in [0, 1]; 0 if the query is said as a phrase."""
        return 0.0 if self.phrase else self.unspoken / max(self.spoken + self.unspoken, 1e-9)


Unsaid = Mapping[str, Mapping[Moment, float]]
"""Stream with words -> first moment -> share of the query that is not said there."""

_SILENT = Spoken(0.0, 0.0, phrase=False)


@dataclass(frozen=True, slots=True)
class ProbableMoments:
    """Moments of a query, best first; their confidence is the probability that they are right.

    `features` are those of the first moments; empty, and without confidences, if the corpus is uncalibrated.
    `in_five` is the probability that one of the first five is right. `is_name`: the query is a name or a rare
    term that is said there. `is_foreign`: the sentence model does not know the language of the first.
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

    `spoken` compares the query with each of these; None without words. `languages` maps videos' ids to the
    language of their words.
    """
    units = units_of(query)
    lead, of_video, crowd, same = _of_list(rivals_of(ranked, languages))
    words = math.log(len(units) + 0.5)
    features = []
    for scored, place in zip(ranked, spoken, strict=False):
        in_place = place or _SILENT
        length = 0.0 if in_place.phrase else math.log1p(in_place.hours)
        of_words = (
            math.log1p(in_place.spoken),
            words,
            length,
            math.log1p(in_place.nearer),
            float(in_place.is_name),
        )
        features.append(Features(_root(scored.score), lead, _root(of_video), crowd, same, *of_words))
    return features


def rivals_of(ranked: Sequence[ScoredMoment], languages: Mapping[str, str]) -> list[ScoredMoment]:
    """The first moment and those that compete with it, at most `LISTED`.

    A copy of the recording or its translation also has the answer, so it makes the first no less right. Left
    out are moments with the same words as an earlier one in another video, and moments in another language.
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
    """Whether two moments of two videos have the same words."""
    if scored.moment.video_id == other.moment.video_id or not scored.text:
        return False
    return says_the_same(scored.text, other.text)


def _says_as_much(place: Spoken | None, first: Spoken | None) -> bool:
    """Whether a place says as much of the query as the first: parts of a series may differ in that alone."""
    return place is not None and first is not None and place.share >= first.share


def says_the_same(text: str, other: str) -> bool:
    """Whether two texts say the same: exactly if they are short, else mostly."""
    pairs, other_pairs = _pairs_of(text), _pairs_of(other)
    fewest = min(len(pairs), len(other_pairs))
    if fewest < _FEWEST_PAIRS:
        return text == other
    return len(pairs & other_pairs) >= _SAME_PAIRS * fewest


@lru_cache(maxsize=1 << 12)
def _pairs_of(text: str) -> frozenset[tuple[str, str]]:
    """All pairs of neighbouring words of a text."""
    return frozenset(itertools.pairwise(words_of(text)))


def _root(units: float) -> float:
    return math.sqrt(max(0.0, units))


def _of_list(ranked: Sequence[ScoredMoment]) -> tuple[float, float, float, float]:
    """Lead, lead over other videos, crowd, and share of the same video (see `Features`)."""
    first = ranked[0]
    below = np.array([first.score - scored.score for scored in ranked])
    others = [
        gap
        for gap, scored in zip(below.tolist(), ranked, strict=True)
        if scored.moment.video_id != first.moment.video_id
    ]
    # In a corpus of one video, its lead over other videos is the lead inside it.
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
    hours = {name: float(block.end[clips].max(initial=0.0)) / 3600 for name, clips in rows.items()}
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
    """How many of the nearest clips come before the first that overlaps a moment."""
    if hits is None:
        return 0
    inside = hits_inside(hits, scored.moment)
    return int(np.argmax(inside)) if inside.any() else len(hits)


def hits_inside(hits: ClipHits, moment: Moment) -> NDArray[np.bool_]:
    """(n,) which hits overlap a moment."""
    in_video = np.array([video_id == moment.video_id for video_id in hits.video_ids], np.bool_)
    return in_video & (hits.start < moment.end) & (hits.end > moment.start)


def _words_near(
    answer: StreamAnswer, scored: ScoredMoment, clips: slice | None, better: Moment | None
) -> str:
    """The words in a moment and around its strongest place; `clips` are the rows of its video's clips."""
    moment, block = scored.moment, answer.block
    if clips is None:
        return ""
    piece = scored.evidence.get(answer.stream)
    start = min(moment.start, (piece.start if piece else moment.start) - _AROUND)
    end = max(moment.end, (piece.end if piece else moment.end) + _AROUND)
    is_near = (block.start[clips] < end) & (block.end[clips] > start)
    if better is not None and better is not moment and better.video_id == moment.video_id:
        is_near &= (block.start[clips] >= better.end) | (block.end[clips] <= better.start)
    near = clips.start + np.flatnonzero(is_near)
    return " ".join(block.text[row] for row in near.tolist())


def spoken_at(
    query: str,
    moments: Sequence[ScoredMoment],
    answers: Iterable[StreamAnswer],
    rarity: Mapping[str, Rarity],
    better: Moment | None = None,
) -> list[dict[str, Spoken]]:
    """How much of a query is said or written in each place, by each stream with words (the keys of `rarity`).

    Words said in a `better` moment of the same video count only for that moment; streams that did not find a
    place are then left out.
    """
    by_moment: list[dict[str, Spoken]] = [{} for _ in moments]
    for answer in answers:
        if answer.stream in rarity and any(answer.block.text):
            rows = [
                row
                for row, scored in enumerate(moments)
                if better is None or answer.stream in scored.evidence
            ]
            chosen = [moments[row] for row in rows]
            spoken = _spoken_near(query, chosen, answer, rarity[answer.stream], better)
            for row, place in zip(rows, spoken, strict=True):
                by_moment[row][answer.stream] = place
    return by_moment


def unsaid_in(query: str, answers: Iterable[StreamAnswer], rarity: Mapping[str, Rarity]) -> Unsaid:
    """How much of a query is not said in the first moments of each stream with words (see `spoken_at`)."""
    unsaid: dict[str, dict[Moment, float]] = {}
    for answer in answers:
        first = [answer.scored(row) for row in range(min(_LOOKED_AT, len(answer.moments)))]
        for scored, spoken in zip(first, spoken_at(query, first, [answer], rarity), strict=True):
            for stream, place in spoken.items():
                unsaid.setdefault(stream, {})[scored.moment] = place.unsaid
    return unsaid


def most_spoken(by_stream: Mapping[str, Spoken], scored: ScoredMoment) -> Spoken | None:
    """The largest share of a query that one of the streams that found the moment has.

    None if none of them has words, because words beside a sound speak neither for nor against it.
    """
    of_finders = (spoken for stream, spoken in by_stream.items() if stream in scored.evidence)
    return max(of_finders, key=lambda spoken: (spoken.phrase, spoken.share), default=None)


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

    Probabilities never rise from one moment to the next. `rarity` has each stream with words, `languages` the
    language of each video. Returns the first `count` moments (None: all).
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
        place = spoken[row] if row < len(spoken) else None
        if row and not (_says_as_much(place, spoken[0]) and _is_copy(scored, ranked[0])):
            least = min(least, alone[row - 1])
        says_query = place is not None and place.phrase
        moments.append(replace(scored, confidence=least, says_query=says_query))
    in_five = probability.of_five(first, has_words=has_words)
    is_name = spoken[0] is not None and spoken[0].is_name
    return ProbableMoments(tuple(moments), tuple(features), in_five, is_name)
