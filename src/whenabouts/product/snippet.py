"""The line that answers: which clip of a moment holds most of a query's words, and where in it they begin.

A moment is found by the words of about a minute and by meaning; its strongest clip may stand beside the line
that a person looks for. What is shown is therefore chosen anew, among the moment's own clips.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from whenabouts.product.index.lookup import DENSE_SCRIPT, JOINED_WEIGHT, query_words
from whenabouts.product.streams._passages import sentences_of

# Words that begin alike count as one, so that "problem" is there where "problems" are.
_STEM = 6
# A sentence with this share of the best one's words is where the snippet begins.
_GOOD_START = 0.5
# What a clip's score counts beside its share of the words: it decides where both hold about as much.
_SCORE_WEIGHT = 0.25

Weights = Mapping[str, float]


def terms_of(text: str) -> list[str]:
    """The words of a text as they are compared: their first letters; without spaces each two signs.

    >>> terms_of("Problems, Houston?")
    ['proble', 'housto']
    """
    terms: list[str] = []
    for word in query_words(text)[0]:
        if DENSE_SCRIPT.search(word) and len(word) > 1:
            terms += [word[at : at + 2] for at in range(len(word) - 1)]
        else:
            terms.append(word[:_STEM])
    return terms


def weights_of(query: str, texts: Sequence[str]) -> dict[str, float]:
    """What each word of a query, and each two neighbours, weigh by rarity in some texts; 1 together.

    Two neighbours weigh `JOINED_WEIGHT` of what they weigh by themselves on average. Empty where the query
    has no words.
    """
    terms, lowered = terms_of(query), [text.lower() for text in texts]
    counts = {term: sum(term in text for text in lowered) for term in terms}
    weights = {
        term: math.log1p((len(lowered) - count + 0.5) / (count + 0.5)) for term, count in counts.items()
    }
    pairs = {
        f"{first} {second}": JOINED_WEIGHT * (weights[first] + weights[second]) / 2
        for first, second in itertools.pairwise(terms)
    }
    total = sum(weights.values()) + sum(pairs.values())
    return {term: weight / total for term, weight in (weights | pairs).items()}


def share_held(text: str, weights: Weights) -> float:
    """How much of a query's words a text holds, 0 to 1."""
    terms = terms_of(text)
    there = {*terms, *(f"{first} {second}" for first, second in itertools.pairwise(terms))}
    return sum(weight for term, weight in weights.items() if term in there)


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
