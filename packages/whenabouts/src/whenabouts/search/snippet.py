"""The line that answers: which clip of a moment holds most of a query's words, and where in it they begin.

A moment is found by the words of about a minute and by meaning; its strongest clip may stand beside the line
that a person looks for. What is shown is therefore chosen anew, among the moment's own clips.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.lookup import JOINED_WEIGHT
from whenabouts.search.word_units import Rarity, units_of
from whenabouts.streams._passages import sentences_of

# A sentence with this share of the best one's words is where the snippet begins.
_GOOD_START = 0.5
# What a clip's score counts beside its share of the words: it decides where both hold about as much.
_SCORE_WEIGHT = 0.25

Weights = Mapping[str, float]


def weights_of(query: str, rarity: Rarity) -> dict[str, float]:
    """What each unit of a query, and each two neighbours, weigh by rarity; 1 together.

    Two neighbours weigh `JOINED_WEIGHT` of what they weigh by themselves on average. Empty where the query
    has no words, or none that says anything.
    """
    units = units_of(query)
    weights = {unit: rarity.of(unit) for unit in units}
    pairs = {
        f"{first} {second}": JOINED_WEIGHT * (weights[first] + weights[second]) / 2
        for first, second in itertools.pairwise(units)
    }
    total = sum(weights.values()) + sum(pairs.values())
    return {unit: weight / total for unit, weight in (weights | pairs).items()} if total else {}


def share_held(text: str, weights: Weights) -> float:
    """How much of a query's words a text holds, 0 to 1."""
    units = units_of(text)
    there = {*units, *(f"{first} {second}" for first, second in itertools.pairwise(units))}
    return sum(weight for unit, weight in weights.items() if unit in there)


def best_clip(texts: Sequence[str], scores: NDArray[np.float64], weights: Weights) -> int:
    """Which of a moment's clips to show: the one with most of the query's words, and scored high.

    Scores count as shares of the greatest, so that among clips that hold little of the query the strongest
    is shown.
    """
    highest = float(scores.max())
    if not weights or highest <= 0:
        return int(np.argmax(scores))
    return int(np.argmax([share_held(text, weights) for text in texts] + _SCORE_WEIGHT * scores / highest))


def from_answer(text: str, weights: Weights) -> str:
    """A text from the first sentence on that holds much of what any of them holds of the query."""
    sentences = sentences_of(text)
    if len(sentences) < 2 or not weights:
        return text
    shares = [share_held(sentence, weights) for sentence in sentences]
    first = next(at for at, share in enumerate(shares) if share >= _GOOD_START * max(shares))
    return text if first == 0 else f"… {''.join(sentences[first:]).strip()}"


_MOST_TEXT = 600


def shortened(words: str) -> str:
    """Words to show, cut off where they become many."""
    return words if len(words) <= _MOST_TEXT else words[: _MOST_TEXT - 1].rstrip() + "…"
