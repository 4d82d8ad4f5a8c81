"""Which verbs usually come with which nouns in a set of queries, and which queries say the usual (SQuiDNet).

"A person opens a door" says what is usually said of a door; a retriever finds it by what doors usually do. In
SQuiDNet's program a query is usual where one of its nouns is among the first ten of a table, and one of its
verbs is the first of that noun. The table is a JSON file, {noun: [[verb, count], ...]}, in order. Ours is of
the training queries: nouns in the order of how many queries have them, verbs of how many have both; equal
ones by the alphabet.

Readings. Little is told of what the authors' extraction takes for nouns and verbs. Ours is HanTa's tagger,
which needs no download (as `phrases/chunks.py`): common nouns and full verbs, without names, "be", "have",
"do" and modal verbs, in their dictionary forms. A query is compared by these and by its words as they stand,
so that a table of either kind fits.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from whenabouts.intake.files import FormatError, read_json, write_atomically
from whenabouts_bench.relevance.phrases.chunks import ChunkExtractor, open_phrases

FIRST_NOUNS = 10
"""Nouns of the table that make a query usual, as in the program."""
_ACCEPTED = "{noun: [[verb, count], ...]}, nouns and their verbs in the order that counts"


class Words(NamedTuple):
    """Nouns and verbs of a sentence, in lower case: of each its form there, and that in a dictionary."""

    nouns: frozenset[tuple[str, str]]
    verbs: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Cooccurrence:
    """The table: noun -> its verbs with counts, nouns and verbs in order."""

    verbs: Mapping[str, Sequence[tuple[str, float]]]

    @classmethod
    def of(cls, sentences: Iterable[Words]) -> Cooccurrence:
        """What some sentences say; a noun counts once a sentence, a verb once with each noun."""
        nouns: Counter[str] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        for words in sentences:
            own, done = ({stem for _, stem in some} for some in words)
            nouns.update(own)
            pairs.update(product(own, done))
        verbs: dict[str, list[tuple[str, float]]] = {noun: [] for noun in _in_order(nouns)}
        for noun, verb in _in_order(pairs):
            verbs[noun].append((verb, pairs[noun, verb]))
        return cls(verbs)

    @classmethod
    def read(cls, path: Path) -> Cooccurrence:
        """The table of a file, the authors' or one that was written here. Raises FormatError."""
        content = read_json(path)
        if not isinstance(content, dict) or not content:
            raise FormatError(path, "is no table of nouns and verbs", accepted=_ACCEPTED)
        return cls({noun: _verbs(path, noun, entries) for noun, entries in content.items()})

    def write(self, path: Path) -> None:
        """The table as a file that `read` takes."""
        with write_atomically(path) as stream:
            stream.write((json.dumps(dict(self.verbs), ensure_ascii=False) + "\n").encode())

    def is_usual(self, words: Words) -> bool:
        """Whether a query says what is usually said of a frequent noun."""
        nouns, verbs = ({form for forms in some for form in forms} for some in words)
        first = [noun for noun, _ in zip(self.verbs, range(FIRST_NOUNS), strict=False)]
        return any(self.verbs[noun] and self.verbs[noun][0][0] in verbs for noun in first if noun in nouns)


def words_of(sentences: Iterable[str]) -> dict[str, Words]:
    """Nouns and verbs of each different sentence, in English.

    Raises PhrasesUnavailable where the package HanTa is missing.
    """
    extractor = open_phrases("")
    assert isinstance(extractor, ChunkExtractor)
    return {sentence: _words(extractor.tagged(sentence)) for sentence in dict.fromkeys(sentences)}


def _words(tagged: Sequence[tuple[str, str, str]]) -> Words:
    return Words(
        frozenset((word, stem) for word, stem, tag in tagged if tag in ("NN0", "NN1", "NN2")),
        frozenset((word, stem) for word, stem, tag in tagged if tag.startswith("VV")),
    )


def _in_order(counts: Counter[Any]) -> list[Any]:
    """What was counted, most often first; equal counts by the alphabet."""
    return sorted(counts, key=lambda key: (-counts[key], key))


def _verbs(path: Path, noun: str, entries: Any) -> list[tuple[str, float]]:
    if not isinstance(entries, list) or not all(_is_verb(entry) for entry in entries):
        raise FormatError(path, "has no verbs with counts:", field=noun, value=entries, accepted=_ACCEPTED)
    return [(verb, count) for verb, count in entries]


def _is_verb(entry: Any) -> bool:
    pair = isinstance(entry, list) and len(entry) == 2
    return pair and isinstance(entry[0], str) and type(entry[1]) in (int, float)
