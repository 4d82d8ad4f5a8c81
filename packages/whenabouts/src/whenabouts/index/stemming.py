"""Stems words in the language of their video, by Snowball's stemmers.

The full-text index stems every word as English. So English words are indexed as they are, and words of other
languages as their stems, which English stemming hardly changes. One index thus serves all languages. A query
is searched as it stands and as stems in each language of the corpus.
"""

from __future__ import annotations

import threading
from functools import cache, lru_cache
from typing import Any

_NAMES = (
    "ar arabic, ca catalan, cs czech, da danish, de german, el greek, eo esperanto, es spanish, et estonian, "
    "eu basque, fa persian, fi finnish, fr french, ga irish, hi hindi, hu hungarian, hy armenian, "
    "id indonesian, it italian, lt lithuanian, nb norwegian, ne nepali, nl dutch, nn norwegian, "
    "no norwegian, pl polish, pt portuguese, ro romanian, ru russian, sr serbian, sv swedish, ta tamil, "
    "tr turkish, yi yiddish"
)
_ALGORITHMS = dict(pair.split() for pair in _NAMES.split(", "))
_COMPOUNDING = frozenset({"da", "de", "et", "fi", "hu", "is", "nb", "nl", "nn", "no", "sv"})
LEAST_PART = 5
"""Least letters of a word that is searched at both ends of longer words: shorter ones match too many."""

LEAST_OF_TWO = 4
"""Least letters of each half of a compound whose halves are searched separately."""

_LONGEST = 40
# Stemmers are stateful.
_one_at_a_time = threading.Lock()


def has_stems(language: str) -> bool:
    """Whether words of a language (ISO 639-1) are stemmed here; the index stems English."""
    return language in _ALGORITHMS


def makes_compounds(language: str) -> bool:
    """Whether a language writes nouns together ("Donaudampfschifffahrt"), so that parts are searched too."""
    return language in _COMPOUNDING


@lru_cache(maxsize=1 << 17)
def stemmed(word: str, language: str) -> str:
    """The stem of a lower-case word; the word itself in languages that are not stemmed here.

    >>> stemmed("réseaux", "fr"), stemmed("häuser", "de"), stemmed("mining", "en")
    ('réseau', 'haus', 'mining')
    """
    if len(word) > _LONGEST or not has_stems(language):
        return word
    with _one_at_a_time:
        return str(_stemmer(language).stemWord(word)) or word


@lru_cache(maxsize=1 << 15)
def as_indexed(word: str) -> str:
    """A word stemmed as English, about as the index stores it; equal results count once in a query."""
    with _one_at_a_time:
        return str(_stemmer("").stemWord(word[:_LONGEST]))


@cache
def _stemmer(language: str) -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer(_ALGORITHMS.get(language, "english"))
