"""Words without their endings, in the language of the file: Snowball's stemmers.

The full-text index stems every word as English. So English words are left to it, and words of other
languages are written into it as their stems, which it hardly changes: one index serves all languages, and
corpora of English are as they were. A query is looked for as it stands and as its stems in each language of
the corpus.
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
"""Letters of a word that is looked for at the ends of longer ones: shorter ones end too many."""

LEAST_OF_TWO = 4
"""Letters of each part of a compound whose parts are looked for: both must be said in one place."""

_LONGEST = 40
# A stemmer holds the word that it works on.
_one_at_a_time = threading.Lock()


def has_stems(language: str) -> bool:
    """Whether words of a language (ISO 639-1) are stemmed here; English is left to the index."""
    return language in _ALGORITHMS


def makes_compounds(language: str) -> bool:
    """Whether a language writes nouns together ("Donaudampfschifffahrt"): their parts are looked for."""
    return language in _COMPOUNDING


@lru_cache(maxsize=1 << 17)
def stemmed(word: str, language: str) -> str:
    """A lower-case word without its endings; as it is in languages that are not stemmed here.

    >>> stemmed("réseaux", "fr"), stemmed("häuser", "de"), stemmed("mining", "en")
    ('réseau', 'haus', 'mining')
    """
    if len(word) > _LONGEST or not has_stems(language):
        return word
    with _one_at_a_time:
        return str(_stemmer(language).stemWord(word)) or word


@lru_cache(maxsize=1 << 15)
def as_indexed(word: str) -> str:
    """A word about as the index writes it: two words that are alike here count once in a query."""
    with _one_at_a_time:
        return str(_stemmer("").stemWord(word[:_LONGEST]))


@cache
def _stemmer(language: str) -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer(_ALGORITHMS.get(language, "english"))
