"""A second look at the best moments of a stream with words, by the words in and around each.

The curve that moments are found on counts a minute's words and its meaning. The second look adds what the
curve cannot see: which part of the query is said nearby, whether literally, and how much the surrounding
minutes are about it. Their weighted sum is added to a moment's score, in points of the curve
(`moments/fusion.py`).

The weights (`reranking.json`) were fitted by `benchmarks/learned_ranking.py` to titles with known answers,
and measured there on recordings and sets they were not fitted on. Only the stream's moments are looked at, so
the cost does not grow with the corpus.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from whenabouts.index.lookup import DENSE_SCRIPT, spaced, words_of
from whenabouts.index.records import ClipBlock
from whenabouts.moments.segments import Flags
from whenabouts.moments.zero_shot import Moments
from whenabouts.overlap import Floats, Indices
from whenabouts.search.word_units import Rarity, compounded_in, folded, stand_in_order, units_of
from whenabouts.types import WhenaboutsError

FEATURES = ("near", "around", "phrase", "topic")
"""Features of a moment besides its score.

`near`, `around`: share of the query's words, weighted by rarity, that are said within `NEAR_SECONDS` and
`AROUND_SECONDS` of the moment. `phrase`: 1 if they are said nearby in the query's order, in one passage.
`topic`: mean score of the clips within `TOPIC_SECONDS`, with negative scores as 0.
"""

NEAR_SECONDS, AROUND_SECONDS, TOPIC_SECONDS = 30.0, 120.0, 300.0
_MOST_UNITS = 40
# Least rarity (nats) that distinguishes moments; words in a third of all passages are below it.
_LEAST_RARITY = 1.0
_FILE = "reranking.json"
# Folding accents is slower than finding words, and the same passages are near many moments.
_folded = lru_cache(maxsize=20_000)(folded)


class BrokenWeights(WhenaboutsError):
    """The bundled weights cannot be used."""


@dataclass(frozen=True, slots=True)
class Reranking:
    """The points each feature adds to a score: weight * (feature - usual).

    `usual` is the feature's value for the best moment of an unrelated sentence, so that unrelated queries
    keep their scores.
    """

    weights: Mapping[str, float]
    usual: Mapping[str, float]

    def added(self, features: Floats) -> Floats:
        """(M, F) points that each feature adds, for features (M, F) in the order of `FEATURES`."""
        weights = np.array([self.weights[name] for name in FEATURES])
        usual = np.array([self.usual[name] for name in FEATURES])
        points: Floats = (features - usual) * weights
        return points

    @classmethod
    def from_json(cls, value: Any) -> Reranking:
        """Parse `reranking.json`. Raises BrokenWeights for invalid content."""
        parts = []
        for part in ("weights", "usual"):
            numbers = value.get(part) if isinstance(value, dict) else None
            if not isinstance(numbers, dict) or set(numbers) != set(FEATURES):
                raise BrokenWeights(f"{_FILE}: {part} must have a number for each of {', '.join(FEATURES)}")
            for name, number in numbers.items():
                if type(number) not in (int, float) or not math.isfinite(number):  # True is no number
                    raise BrokenWeights(
                        f"{_FILE}: {part} of {name} is {number!r}; give a finite number, or install again"
                    )
            parts.append({name: float(number) for name, number in numbers.items()})
        return cls(*parts)


@cache
def learned_reranking() -> Reranking:
    """The bundled weights. Raises BrokenWeights if the file is damaged."""
    try:
        value = json.loads(files("whenabouts.search").joinpath(_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BrokenWeights(f"{_FILE} cannot be read ({error}); install whenabouts again") from error
    return Reranking.from_json(value)


def reranked(query: str, block: ClipBlock, scores: Floats, moments: Moments, rarity: Rarity) -> Moments:
    """The moments, ordered by their scores plus the points of their features; ties keep their order.

    `scores` (n,) is the curve over the clips of `block` on which the moments were found.
    """
    if not len(moments):
        return moments
    features = features_of(query, block, scores, moments, rarity)
    raised = replace(moments, score=moments.score + learned_reranking().added(features).sum(axis=1))
    return raised.take(np.argsort(-raised.score, kind="stable"))


def features_of(query: str, block: ClipBlock, scores: Floats, moments: Moments, rarity: Rarity) -> Floats:
    """(M, F) features of each moment in the order of `FEATURES`; word features are 0 without words."""
    spans = _Spans.of(block)
    near, around, about = (
        spans.within(moments, seconds) for seconds in (NEAR_SECONDS, AROUND_SECONDS, TOPIC_SECONDS)
    )
    values = np.zeros((len(moments), len(FEATURES)))
    values[:, 3] = _mean(np.maximum(scores, 0.0), about)
    spoken = [rarity.languages.get(block.video_ids[video], "") for video in moments.video.tolist()]
    for language in dict.fromkeys(spoken):
        rows = np.flatnonzero([other == language for other in spoken])
        values[rows, :3] = _of_words(query, language, block, near[rows], around[rows], rarity)
    return values


def _of_words(
    query: str, language: str, block: ClipBlock, near: Indices, around: Indices, rarity: Rarity
) -> Floats:
    """(M, 3) word features of moments in videos of one language."""
    values = np.zeros((len(near), 3))
    units = units_of(query, language)[:_MOST_UNITS]
    weights = _weights(units, rarity)
    if not weights:
        return values
    rows = _union(around)
    texts = [block.text[row] for row in rows.tolist()]
    spoken, in_order = _spoken_in(units, list(weights), texts, language)
    parts = np.array(list(weights.values())) / sum(weights.values())
    is_near, is_around = (_any(spoken, np.searchsorted(rows, part)) for part in (near, around))
    values[:, 0] = is_near @ parts
    values[:, 1] = is_around @ parts
    values[:, 2] = _any(in_order[:, None], np.searchsorted(rows, near))[:, 0]
    return values


def _weights(units: Sequence[str], rarity: Rarity) -> dict[str, float]:
    """The weight of each unit of a query: its rarity. Units said everywhere count only without others."""
    weights = {unit: rarity.of(unit) for unit in dict.fromkeys(units)}
    counted = {unit: weight for unit, weight in weights.items() if weight >= _LEAST_RARITY}
    return counted or dict.fromkeys(weights, 1.0)


@dataclass(frozen=True, slots=True)
class _Spans:
    """Start and end of clips on one axis, on which each video has its own section.

    `end` is the latest end so far, because lines may overlap and a binary search needs a rising axis.
    """

    start: Floats
    end: Floats
    stretch: float

    @classmethod
    def of(cls, block: ClipBlock) -> _Spans:
        stretch = float(block.end.max()) + 4 * TOPIC_SECONDS
        shift = np.repeat(np.arange(len(block.video_ids)), np.diff(block.offsets)) * stretch
        return cls(block.start + shift, np.maximum.accumulate(block.end + shift), stretch)

    def within(self, moments: Moments, seconds: float) -> Indices:
        """(M, 2) first row, and one past the last row, of the clips near each moment."""
        shift = moments.video * self.stretch
        first = np.searchsorted(self.end, moments.start - seconds + shift, side="right")
        behind = np.searchsorted(self.start, moments.end + seconds + shift, side="left")
        return np.stack([first, behind], axis=1)


def _mean(values: Floats, spans: Indices) -> Floats:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    mean: Floats = (sums[spans[:, 1]] - sums[spans[:, 0]]) / np.maximum(1, spans[:, 1] - spans[:, 0])
    return mean


def _union(spans: Indices) -> Indices:
    """Rows of all spans, each once, ascending."""
    size = int(spans.max(initial=0)) + 1
    opened, closed = (np.bincount(edge, minlength=size) for edge in spans.T)
    return np.flatnonzero(np.cumsum(opened - closed) > 0)


def _any(flags: Flags, spans: Indices) -> Flags:
    """(M, U) whether any row of each span has each flag (n, U)."""
    sums = np.concatenate([np.zeros((1, flags.shape[1]), np.int64), np.cumsum(flags, axis=0)])
    return sums[spans[:, 1]] > sums[spans[:, 0]]


def _spoken_in(
    units: Sequence[str], counted: Sequence[str], texts: Sequence[str], language: str
) -> tuple[Flags, Flags]:
    """(n, U) which counted units of a query each text has; (n,) whether it has the query's words in order."""
    words, in_order = _Words(units, counted, language), np.zeros(len(texts), np.bool_)
    spoken = words.spoken_in(texts)
    for row in np.flatnonzero(spoken.all(axis=1)).tolist():
        in_order[row] = words.in_order(texts[row])
    return spoken, in_order


class _Words:
    """Finds the words of a query in texts, faster than splitting every text."""

    def __init__(self, units: Sequence[str], counted: Sequence[str], language: str) -> None:
        self._units, self._counted, self._language = units, tuple(counted), language
        self._joined = {a + b: (a, b) for a, b in itertools.pairwise(units)}
        self._columns_of: dict[str, list[int]] = {}

    @cached_property
    def _phrase(self) -> re.Pattern[str]:
        """A pattern of all units, one after the other."""
        words = [re.escape(unit) + "[a-z0-9]*" for unit in self._units]
        return re.compile(r"(?<![a-z0-9])" + "[^a-z0-9]+".join(words))

    def spoken_in(self, texts: Sequence[str]) -> Flags:
        """(n, U) which counted units each text has."""
        spoken = np.zeros((len(texts), len(self._counted)), np.bool_)
        if self._language:  # a stem need not begin its words
            for row, text in enumerate(texts):
                of_text = units_of(text, self._language)
                present = {*of_text} | compounded_in(of_text, self._counted, self._language)
                spoken[row, self._columns(present)] = True
            return spoken
        is_plain = [text.isascii() for text in texts]
        plain, accented = np.flatnonzero(is_plain), np.flatnonzero(np.logical_not(is_plain))
        rows, columns = self._in_plain([texts[row] for row in plain.tolist()])
        spoken[plain[rows], columns] = True
        for row in accented.tolist():
            spoken[row, self._columns(self._in_folded(_folded(texts[row])))] = True
        return spoken

    def _in_plain(self, texts: Sequence[str]) -> tuple[Indices, list[int]]:
        """Text and column of each counted unit in ASCII texts, which are searched as one."""
        whole, places, columns = f" {spaced(' '.join(texts))} ", list[int](), list[int]()
        for unit in filter(str.isascii, self._counted):
            at = whole.find(f" {unit}")
            while at >= 0:
                for column in self._columns_of_word(whole[at + 1 : whole.index(" ", at + 1)]):
                    places.append(at)
                    columns.append(column)
                at = whole.find(f" {unit}", at + 1)
        ends = np.cumsum([len(text) + 1 for text in texts])
        return np.searchsorted(ends, places, side="right"), columns

    def _in_folded(self, text: str) -> Iterable[str]:
        """The units of a folded text, if it may have a counted one."""
        # A unit begins its words, so a text that lacks all units need not be split.
        present = [unit for unit in self._counted if unit in text]
        if not present or DENSE_SCRIPT.search(present[0]):
            return present
        words = (word for word in words_of(text) if word.startswith(self._counted))
        return itertools.chain.from_iterable(map(units_of, words))

    def _columns_of_word(self, word: str) -> list[int]:
        if word not in self._columns_of:
            self._columns_of[word] = self._columns(units_of(word))
        return self._columns_of[word]

    def _columns(self, units: Iterable[str]) -> list[int]:
        """The columns of the counted ones among some units; "blockspace" counts as "block space"."""
        present = {*units}
        for both in self._joined.keys() & present:
            present.update(self._joined[both])
        return [column for column, unit in enumerate(self._counted) if unit in present]

    def in_order(self, text: str) -> bool:
        """Whether a text has all units, one after the other."""
        if self._language:
            return stand_in_order(self._units, units_of(text, self._language))
        text = _folded(text)
        if text.isascii() and not self._phrase.search(text):
            return False
        return stand_in_order(self._units, units_of(text))
