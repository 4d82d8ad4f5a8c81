"""Another spelling of a query: words that a corpus lacks are replaced by like words that it has.

People mistype words, and recognisers of speech mishear names. A word is like another if few letters differ
(Damerau, Communications of the ACM 1964), or if both sound alike (Metaphone, Philips 1990); the package
jellyfish computes both. `benchmarks/misspelt.py` has how often the other spelling is right.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from jellyfish import damerau_levenshtein_distance, metaphone

from whenabouts.confidence.background import language_of
from whenabouts.confidence.common_words import common_words
from whenabouts.index.lookup import WORD, words_of
from whenabouts.index.store import Store
from whenabouts.search.word_units import SPACELESS, folded, units_of
from whenabouts.streams import stream as stream_named

# Common English words are spelt right, and short ones are not what was meant: "while" for "whale". Words that
# are shorter still are like many. Of a query, some words are looked up.
_SHORTEST, _SHORTEST_COMMON, _MOST_LOOKED_UP = 4, 6, 6
# From so many letters on, one and two of them may differ; one more if the words sound alike.
_LETTERS_OF_EDITS = (5, 8)
_VIDEOS_AT_ONCE = 200

MISHEARD = (
    "these words were recognised by a program, which often mishears names; search for a part of the name, as "
    "it sounds, or with --rewrite sound"
)
"""Note on a name that is not found among recognised words."""

MOST_WORDS = 5_000_000
"""Words of some 500 hours of speech; reading them takes some seconds."""


@dataclass(frozen=True, eq=False)
class _Vocabulary:
    """The words of a corpus with their numbers, and those of each sound."""

    counts: Mapping[str, int]
    by_sound: Mapping[str, Sequence[str]]

    def nearest(self, word: str) -> str:
        """Of the words that are most like a word one that sounds alike, or the most frequent; "" for none."""
        most = sum(len(word) >= letters for letters in _LETTERS_OF_EDITS)
        same = frozenset(self.by_sound.get(sound_of(word), ()))
        near = [other for other in self.counts if abs(len(other) - len(word)) <= most]
        edits = {other: damerau_levenshtein_distance(word, other) for other in {*near, *same}}
        alike = (other for other, number in edits.items() if number <= most + (other in same))
        order = {other: (edits[other], other not in same, -self.counts[other], other) for other in alike}
        return min(order, key=order.__getitem__, default="")


class Spelling:
    """Spells queries for the handles of one corpus, whose words are read when one is missing."""

    def __init__(self) -> None:
        self._read: tuple[object, _Vocabulary] | None = None

    def drop(self) -> None:
        """Forget the words."""
        self._read = None

    def of(
        self,
        store: Store,
        streams: Iterable[str],
        query: str,
        words: str,
        texts: Iterable[str],
        is_known: Callable[[str], bool],
    ) -> str:
        """The query as the streams spell it; "" if they have all words, or none like those they lack.

        `words` are those of the query that are searched. Words of `texts`, those of the answer, need not be
        looked up. Words that are known are spelt right, and so are those of sentences in other languages than
        English, which no list tells from mistakes.
        """
        present = {unit for text in texts for unit in units_of(text)}
        unseen = [word for word in dict.fromkeys(words_of(words)) if _may_be_misspelt(word)]
        unseen = [word for word in unseen if not present.issuperset(units_of(word))][:_MOST_LOOKED_UP]
        streams = [name for name in streams if stream_named(name).has_words is not False]
        absent = [word for word in unseen if not any(_has(store, name, word) for name in streams)]
        absent = [word for word in absent if not is_known(word)]
        language = language_of([words]) if absent else None
        if not absent or (language is not None and language.code != "en"):
            return ""
        vocabulary = self._vocabulary(store)
        near = {word: vocabulary.nearest(word) for word in absent}
        spelt = WORD.sub(lambda match: _in_case_of(match[0], near.get(match[0].lower())), query)
        return spelt if spelt != query else ""

    def _vocabulary(self, store: Store) -> _Vocabulary:
        streams = [name for name in store.streams if stream_named(name).has_words is not False]
        state = [(name, store.state_of(name)) for name in streams]
        if self._read is None or self._read[0] != state:
            counts, by_sound, left = Counter[str](), defaultdict[str, list[str]](list), MOST_WORDS
            for words in words_by_video(store, streams):
                counts.update(words)
                if (left := left - len(words)) < 0:
                    break
            kept = {word: count for word, count in counts.items() if _may_be_meant(word)}
            for word in kept:
                by_sound[sound_of(word)].append(word)
            by_sound.pop("", None)
            self._read = state, _Vocabulary(kept, by_sound)
        return self._read[1]


def words_by_video(store: Store, streams: Sequence[str]) -> Iterator[list[str]]:
    """The words of each video of each stream, in order."""
    ids = [record.video_id for record in store.ledger().records]
    for name in streams:
        for first in range(0, len(ids), _VIDEOS_AT_ONCE):
            block = store.clips_of(name, ids[first : first + _VIDEOS_AT_ONCE], vectors=False)
            for number in range(len(block.video_ids)):
                yield [word for text in block.text[block.rows(number)] for word in words_of(text)]


@lru_cache(maxsize=1 << 16)
def sound_of(word: str) -> str:
    """How a word sounds in English, in letters; "" for words of other scripts.

    >>> sound_of("Rindell"), sound_of("Müller"), sound_of("Йод")
    ('RNTL', 'MLR', '')
    """
    plain = folded(word)
    return metaphone(plain).replace(" ", "") if plain.isascii() else ""


def _in_case_of(word: str, other: str | None) -> str:
    return (other.title() if word.istitle() else other) if other else word


def _may_be_misspelt(word: str) -> bool:
    is_long = len(word) >= _SHORTEST and word.isalpha() and not SPACELESS.search(word)
    return is_long and folded(word) not in common_words()


def _may_be_meant(word: str) -> bool:
    return word.isalpha() and len(word) >= (_SHORTEST_COMMON if word in common_words() else _SHORTEST)


def _has(store: Store, stream: str, word: str) -> bool:
    """Whether a stream has a word, which a match alone does not say: parts of compounds match, too."""
    videos = store.match_text(stream, word, 1).video_ids
    language = store.ledger().by_id[videos[0]].language if videos else ""
    texts = store.clips_of(stream, videos, vectors=False).text
    return any(unit in folded(text) for text in texts for unit in units_of(word, language))
