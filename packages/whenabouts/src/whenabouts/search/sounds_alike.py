"""Other spellings of a query: the words of a corpus that sound like it (`--rewrite sound`).

A recogniser writes "Randall" where somebody says "Rindell", and "Chris Tof" for "Christoph". Words are
compared by their sound (Metaphone, Philips 1990; package jellyfish), without the spaces between them: the
words of the corpus are one string of sounds, in which the stretch is sought that differs least from the
query's (Sellers, Journal of Algorithms 1980). Time grows with the query's length times the corpus's.

One stretch is written, and only for a query with a word that the corpus lacks: both were better than three
stretches, and than any query, on the recordings of `benchmarks/spoken_phrases.py` that choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jellyfish import jaro_winkler_similarity
from numpy.typing import NDArray

from whenabouts.checkers import CheckerError, Rewriter, open_rewriter
from whenabouts.index.lookup import words_of
from whenabouts.index.store import Store
from whenabouts.index.word_statistics import term_of
from whenabouts.search.spelling import MOST_WORDS, sound_of, words_by_video
from whenabouts.streams import stream as stream_named

NAME = "sound"
# Shorter queries sound like many words; one sound in four may differ.
_FEWEST_SOUNDS, _DIFFERENT = 4, 0.25
_MOST_SOUNDS, _MOST_PLACES = 60, 200


def opened_rewriter(name: str, *, send_query: bool) -> Rewriter | str:
    """The rewriter of a name; "sound" stays a name, because each handle of a corpus has its own."""
    return name if name == NAME else open_rewriter(name, send_query=send_query)


@dataclass(frozen=True, eq=False)
class _Spoken:
    """All words of a corpus in order; their sounds (n,) as letters' numbers, and the word of each (n,)."""

    words: Sequence[str]
    terms: frozenset[str]
    sounds: NDArray[np.uint8]
    word: NDArray[np.int32]


class SoundsAlike:
    """A rewriter (`checkers.rewriter`) that writes what a corpus says and sounds like the query."""

    name = NAME

    def __init__(self, store: Store) -> None:
        self._store = store
        self._spoken: tuple[object, _Spoken] | None = None

    def rewritten(self, query: str, seconds: float) -> list[str]:
        """A list with the stretch that sounds most like the query.

        Raises CheckerError if there is none, or if the corpus has all words of the query.
        """
        words, spoken = words_of(query), self._words()
        sounds = _sounds(words)[:_MOST_SOUNDS]
        if words and all(term_of(word) in spoken.terms for word in words):
            raise CheckerError("the corpus has all of its words")
        alike = _alike(sounds, " ".join(words), spoken) if len(sounds) >= _FEWEST_SOUNDS else []
        if not alike:
            raise CheckerError("nothing in the corpus sounds like it")
        return alike

    def _words(self) -> _Spoken:
        """The spoken words, read anew when the corpus has changed."""
        streams = [name for name in self._store.streams if stream_named(name).transcript]
        if not streams:
            raise CheckerError("the corpus has no spoken words")
        state = [self._store.state_of(name) for name in streams]
        if self._spoken is None or self._spoken[0] != state:
            words = list[str]()
            for of_video in words_by_video(self._store, streams):
                words += [*of_video, ""]  # the end of a video, which no stretch may include
                if len(words) > MOST_WORDS:
                    raise CheckerError(f"the corpus has more than {MOST_WORDS:,} spoken words")
            sounds = [sound_of(word).encode() if word else b"\0" for word in words]
            owner = np.repeat(np.arange(len(words), dtype=np.int32), [*map(len, sounds)])
            terms = frozenset(map(term_of, words))
            self._spoken = state, _Spoken(words, terms, _numbers(sounds), owner)
        return self._spoken[1]


def _alike(query: NDArray[np.uint8], spelt: str, spoken: _Spoken) -> list[str]:
    """A list with the words that are nearest to the query in sound, then in spelling; [] for none."""
    edits, most = edits_to_ends(query, spoken.sounds), _DIFFERENT * len(query)
    ends = np.flatnonzero(edits <= most)
    alike: dict[str, tuple[int, float]] = {}
    for end in ends[np.argsort(edits[ends], kind="stable")][:_MOST_PLACES].tolist():
        before = spoken.sounds[max(0, end - 2 * len(query)) : end]
        backwards = edits_to_ends(query[::-1], before[::-1], anywhere=False)
        first, last = spoken.word[end - max(1, int(np.argmin(backwards)))], spoken.word[end - 1]
        words = spoken.words[first : last + 1]
        sounds = _sounds(words)
        different = int(edits_to_ends(query, sounds, anywhere=False)[-1])
        if different <= most and "" not in words:
            text = " ".join(words)
            alike[text] = (different, -jaro_winkler_similarity(spelt, text))
    alike.pop(spelt, None)
    return sorted(alike, key=lambda text: (alike[text], text))[:1]


def edits_to_ends(
    query: NDArray[np.uint8], text: NDArray[np.uint8], *, anywhere: bool = True
) -> NDArray[np.int32]:
    """(n + 1,) for each end in `text` (n,) the fewest edits from `query` (m,) to a stretch that ends there.

    The stretch begins anywhere, or else at the beginning of the text.

    >>> edits_to_ends(np.array([1, 2, 3]), np.array([9, 1, 2, 3, 9])).tolist()
    [3, 3, 2, 1, 0, 1]
    """
    steps = np.arange(len(text) + 1, dtype=np.int32)
    edits = np.zeros_like(steps) if anywhere else steps
    for number, sound in enumerate(query.tolist(), 1):
        changed = edits + 1
        np.minimum(changed[1:], edits[:-1] + (text != sound), out=changed[1:])
        changed[0] = number
        edits = np.minimum.accumulate(changed - steps) + steps
    return edits


def _sounds(words: Iterable[str]) -> NDArray[np.uint8]:
    return _numbers(sound_of(word).encode() for word in words)


def _numbers(sounds: Iterable[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(sounds), np.uint8)
