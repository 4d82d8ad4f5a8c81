"""Words in the form in which query and place are compared: folded, without endings; and their rarity.

Languages are ISO 639-1 codes. If a language has a stemmer, units are stems; in English and unknown languages,
words without common English endings.
"""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from whenabouts.index.lookup import DENSE_SCRIPT, words_of
from whenabouts.index.stemming import LEAST_OF_TWO, LEAST_PART, has_stems, makes_compounds, stemmed
from whenabouts.index.store import Store

# Passages, and videos, in which the rarity of words is counted: enough for one in a few hundred.
_PASSAGES = 600
_VIDEOS = 60
# A language counts if it has at least this share of the passages of the most frequent one.
_LEAST_SAMPLE = 0.2
SPACELESS = re.compile(rf"{DENSE_SCRIPT.pattern[:-1]}\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
"""Scripts without spaces between words: the dense ones, and Thai, Lao, Burmese and Khmer."""
_ENDING = re.compile(r"(?:ings?|edly|ed|ies|es|s|ly|y|e)$")
_STEMMED_FROM = 4
# Least number of characters of a part of a word.
_LEAST_OF_PART = 3
_ACCENT = re.compile("(?<=[a-z])[\u0300-\u036f]+")
# Latin letters that Unicode does not decompose into plain ones.
_PLAIN = str.maketrans({"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i"})


def folded(text: str) -> str:
    """A text without case, and without accents on Latin letters, like the full-text index.

    >>> folded("CAFÉ Straße"), folded("ＡＢＣ"), folded("Йод")
    ('cafe strasse', 'abc', 'йод')
    """
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFKC", _ACCENT.sub("", decomposed).translate(_PLAIN))


@lru_cache(maxsize=50_000)
def _units(word: str, language: str = "") -> tuple[str, ...]:
    """The units of one folded word: the word without its ending, or each two neighbouring characters.

    In a language with a stemmer, the word is lower-case and not yet folded.
    """
    if SPACELESS.search(word):
        return (word,) if len(word) == 1 else tuple(word[i : i + 2] for i in range(len(word) - 1))
    if language:
        return (folded(stemmed(word, language)),)
    if len(word) >= _STEMMED_FROM and word.isascii() and word.isalpha():
        return (_ENDING.sub("", word) or word,)
    return (word,)


@lru_cache(maxsize=1 << 13)
def units_of(text: str, language: str = "") -> tuple[str, ...]:
    """The units by which words are compared, in order. Cached.

    >>> units_of("Mining pools"), units_of("比特币")
    (('min', 'pool'), ('比特', '特币'))
    """
    if language and has_stems(language):
        return tuple(unit for word in words_of(text) for unit in _units(word, language))
    return tuple(itertools.chain.from_iterable(map(_units, words_of(folded(text)))))


def compounded_in(present: Collection[str], units: Iterable[str], language: str) -> set[str]:
    """The units of a query that a text with the units `present` has as parts, or as compounds, of words.

    They begin or end a longer unit of the text, or consist of two of them.

    >>> compounded_in(["donaudampfschifffahrt"], ["schifffahrt", "dampf"], "de")
    {'schifffahrt'}
    >>> compounded_in(units_of("Erkennung von Bildern", "de"), units_of("Bilderkennung", "de"), "de")
    {'bilderkenn'}
    """
    if not makes_compounds(language):
        return set()
    units = list(units)
    parts = [unit for unit in units if len(unit) >= LEAST_PART]
    longer = {unit for unit in present if len(unit) >= 2 * LEAST_PART - 1}
    within = {part for part in parts for unit in longer if unit != part and _begins_or_ends(part, unit)}
    return within | {unit for unit in units if unit not in within and _is_made_of_two(unit, present)}


def _begins_or_ends(part: str, unit: str) -> bool:
    return len(unit) >= len(part) + LEAST_PART - 1 and (unit.startswith(part) or unit.endswith(part))


def _is_made_of_two(unit: str, present: Collection[str]) -> bool:
    """Whether a unit consists of two others, with at most two letters between them ("s", "es")."""
    if len(unit) < 2 * LEAST_OF_TWO:
        return False
    parts = [part for part in present if LEAST_OF_TWO <= len(part) < len(unit)]
    ends = [len(part) for part in parts if unit.endswith(part)]
    begins = [len(part) for part in parts if unit.startswith(part)] if ends else []
    return any(len(unit) - 2 <= first + last <= len(unit) for first in begins for last in ends)


def stand_in_order(units: Sequence[str], of_text: Sequence[str]) -> bool:
    """Whether a text has the units of a query next to each other and in order."""
    return bool(units) and f"\0{chr(0).join(units)}\0" in f"\0{chr(0).join(of_text)}\0"


def words_in_each(
    query: str, texts: Sequence[str], languages: Sequence[str], rarity: Rarity, *, parts: bool = False
) -> list[tuple[float, float, bool]]:
    """Compare a query with each text, in the text's language ("": English or unknown).

    Each result is the rarity of the query's words that the text has, of those that it lacks, and whether it
    has all of them next to each other in order. Two neighbours also count as one word: "clean room" matches
    "cleanroom" and vice versa. `parts`: also find words inside longer ones.
    """
    of_query = {language: units_of(query, language) for language in dict.fromkeys(languages)}
    weights = {language: rarity.of_each(units) for language, units in of_query.items()}
    return [
        _words_in(of_query[language], units_of(text, language), language, weights[language], parts=parts)
        for text, language in zip(texts, languages, strict=True)
    ]


def _words_in(
    units: Sequence[str], of_text: Sequence[str], language: str, weights: Mapping[str, float], *, parts: bool
) -> tuple[float, float, bool]:
    present = {*of_text, *map("".join, itertools.pairwise(of_text))}
    if language:
        present |= compounded_in(of_text, units, language)
    present |= {unit for pair in itertools.pairwise(units) if "".join(pair) in present for unit in pair}
    is_part = False
    if parts:
        characters = "".join(of_text)
        present |= {unit for unit in units if len(unit) >= _LEAST_OF_PART and unit in characters}
        is_part = len(whole := "".join(units)) >= _LEAST_OF_PART and whole in characters
    spoken = sum(weight for unit, weight in weights.items() if unit in present)
    unspoken = sum(weight for unit, weight in weights.items() if unit not in present)
    return spoken, unspoken, is_part or stand_in_order(units, of_text)


@dataclass(frozen=True, slots=True)
class Rarity:
    """How many of a corpus's passages contain each unit.

    A corpus in several languages is counted by language, and a unit gets its highest frequency, because a
    translation makes no word rarer; `counts` are then scaled to `passages`. `languages` maps ids of videos in
    other languages than English to them; units are counted in these too.
    """

    passages: int
    counts: Mapping[str, float]
    languages: Mapping[str, str] = field(default_factory=dict)

    def of(self, unit: str) -> float:
        """The information of a unit in nats: near 0 if it is said everywhere."""
        return max(0.0, math.log((self.passages + 1) / (self.counts.get(unit, 0) + 0.5)))

    def of_each(self, units: Iterable[str]) -> dict[str, float]:
        """`of` each of some units."""
        return {unit: self.of(unit) for unit in units}

    @property
    def of_second(self) -> float:
        """The information of a unit in two passages; in a short recording nothing is much rarer."""
        return math.log((self.passages + 1) / 2.5)

    @classmethod
    def in_texts(cls, texts: Sequence[str], language: str = "") -> Rarity:
        """Counted in some passages of a language, sampled evenly if there are many."""
        rows = np.unique(np.linspace(0, len(texts) - 1, min(_PASSAGES, len(texts))).astype(int)).tolist()
        counts: Counter[str] = Counter()
        for row in rows:
            counts.update({*units_of(texts[row]), *units_of(texts[row], language)})
        return cls(len(rows), counts)

    @classmethod
    def in_stream(cls, store: Store, stream: str) -> Rarity:
        """Counted in a stream, in videos sampled from all of the corpus."""
        videos = [record for record in store.videos() if stream in record.streams]
        by_language: dict[str, list[str]] = {}
        for video in videos:
            by_language.setdefault(video.language, []).append(video.video_id)
        samples = [cls._in_videos(store, stream, *videos_of) for videos_of in by_language.items()]
        languages = {video.video_id: video.language for video in videos if has_stems(video.language)}
        return replace(cls._together(samples), languages=languages)

    @classmethod
    def _in_videos(cls, store: Store, stream: str, language: str, video_ids: Sequence[str]) -> Rarity:
        """Counted in a sample of the videos of one language."""
        chosen = video_ids[:: max(1, math.ceil(len(video_ids) / _VIDEOS))]
        return cls.in_texts(store.clips_of(stream, chosen, vectors=False).text, language)

    @classmethod
    def _together(cls, samples: Sequence[Rarity]) -> Rarity:
        """Combined over languages; those with few passages are left out as unreliable."""
        most = max((sample.passages for sample in samples), default=0)
        counts: dict[str, float] = {}
        for sample in samples:
            if sample.passages >= _LEAST_SAMPLE * most:
                for unit, count in sample.counts.items():
                    counts[unit] = max(counts.get(unit, 0.0), count * most / sample.passages)
        return cls(most, counts)
