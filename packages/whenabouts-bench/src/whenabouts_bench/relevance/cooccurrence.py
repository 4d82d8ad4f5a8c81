"""Co-occurrence of nouns and verbs in queries, and which queries are typical (SQuiDNet).

SQuiDNet's program calls a query typical if it has one of the first ten nouns of a table together with that
noun's first verb. The table is a JSON file, {noun: [[verb, count], ...]}, in order. Ours counts training
queries: nouns by the number of queries, verbs by the number of queries with both, ties alphabetically.

The authors do not say how they extract nouns and verbs. We use HanTa's tagger, which needs no download (as
`phrases/chunks.py`): common nouns and full verbs as lemmas, without names, "be", "have", "do" and modal
verbs. Queries match by lemma or surface form, so both kinds of tables work.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from whenabouts.intake.files import read_json, write_atomically
from whenabouts_bench.formats.json_records import Origin
from whenabouts_bench.relevance.phrases.chunks import open_phrases

FIRST_NOUNS = 10
"""The number of nouns considered, as in the program."""
_ACCEPTED = "{noun: [[verb, count], ...]}, nouns and their verbs in order of rank"
_Verb = Annotated[tuple[str, int | float], Meta(title="[verb, count]")]


class Words(NamedTuple):
    """Nouns and verbs of a sentence in lower case: (surface form, lemma)."""

    nouns: frozenset[tuple[str, str]]
    verbs: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Cooccurrence:
    """The table: noun -> its verbs with counts, both in order."""

    verbs: Mapping[str, Sequence[tuple[str, float]]]

    @classmethod
    def of(cls, sentences: Iterable[Words]) -> Cooccurrence:
        """Count sentences; a noun counts once per sentence, a verb once per noun and sentence."""
        nouns: Counter[str] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        for words in sentences:
            named, actions = ({stem for _, stem in forms} for forms in words)
            nouns.update(named)
            pairs.update(product(named, actions))
        verbs: dict[str, list[tuple[str, float]]] = {noun: [] for noun in _in_order(nouns)}
        for noun, verb in _in_order(pairs):
            verbs[noun].append((verb, pairs[noun, verb]))
        return cls(verbs)

    @classmethod
    def read(cls, path: Path) -> Cooccurrence:
        """Read a table, the authors' or ours. Raises FormatError."""
        content, origin = read_json(path), Origin(path)
        if not isinstance(content, dict) or not content:
            raise origin.error("is not a table of nouns and verbs", accepted=_ACCEPTED)
        return cls({n: origin.at(n).convert(verbs, list[_Verb], _ACCEPTED) for n, verbs in content.items()})

    def write(self, path: Path) -> None:
        """Write the table for `read`."""
        with write_atomically(path) as stream:
            stream.write((json.dumps(dict(self.verbs), ensure_ascii=False) + "\n").encode())

    def is_usual(self, words: Words) -> bool:
        """Whether a query has one of the first nouns together with that noun's first verb."""
        nouns, verbs = ({form for forms in some for form in forms} for some in words)
        first = [noun for noun, _ in zip(self.verbs, range(FIRST_NOUNS), strict=False)]
        return any(self.verbs[noun] and self.verbs[noun][0][0] in verbs for noun in first if noun in nouns)


def words_of(sentences: Iterable[str]) -> dict[str, Words]:
    """Nouns and verbs of each distinct English sentence. Raises PhrasesUnavailable without HanTa."""
    extractor = open_phrases("")
    return {sentence: _words(extractor.tagged(sentence)) for sentence in dict.fromkeys(sentences)}


def _words(tagged: Sequence[tuple[str, str, str]]) -> Words:
    return Words(
        frozenset((word, stem) for word, stem, tag in tagged if tag in ("NN0", "NN1", "NN2")),
        frozenset((word, stem) for word, stem, tag in tagged if tag.startswith("VV")),
    )


def _in_order(counts: Counter[Any]) -> list[Any]:
    """Keys by descending count, then alphabetically."""
    return sorted(counts, key=lambda key: (-counts[key], key))
