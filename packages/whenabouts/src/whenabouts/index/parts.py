"""Searches for parts of words: "E16T" finds the number plate "RE16 TGK", "lescop" the telescope.

Full-text search finds whole words. For streams that ask for it (`Stream.parts_of_words`), trigrams of
characters are indexed too. Clips that share trigrams with a query are candidates, and count only if the whole
part occurs in one line. A part that occurs anywhere as a whole word is left to full-text search, so this
search adds clips and never reorders the hits of that one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whenabouts.index.lookup import (
    CLIP_COLUMNS,
    Narrowing,
    has_index,
    hits_of,
    no_hits,
    says,
    summed_hits,
    words_of,
)
from whenabouts.index.records import ClipHits, printable
from whenabouts.index.stemming import LEAST_OF_TWO, LEAST_PART, stemmed

# Characters of an indexed run, and of the longest part.
_GRAM, _LONGEST = 3, 24
# Parts of a query that are tried, and candidate clips of each.
_MOST_PARTS, _LOOKED_AT = 4, 200


def index_parts(table: Any) -> None:
    """Index the trigrams of the clips' texts, unless that is done."""
    if not has_index(table, "text"):
        from lancedb.index import FTS

        config = FTS(
            base_tokenizer="ngram",
            ngram_min_length=_GRAM,
            ngram_max_length=_GRAM,
            stem=False,
            remove_stop_words=False,
            ascii_folding=False,
        )
        table.create_index("text", config=config)


def parts_of(query: str, *, compounds: bool = False) -> dict[str, tuple[str, ...]]:
    """Possible parts of words, each with its words: the query without spaces, and each word with digits.

    With `compounds`, each longer word instead, which may be part of a compound.

    >>> parts_of("van RE16")
    {'vanre16': ('van', 're16'), 're16': ('re16',)}
    """
    words = words_of(query)
    if compounds:
        return {word: (word,) for word in words if LEAST_PART <= len(word) <= _LONGEST}
    codes = [(word,) for word in words if any(letter.isdigit() for letter in word)]
    parts = {"".join(some): tuple(some) for some in [words, *codes]}
    return {part: some for part, some in parts.items() if _GRAM <= len(part) <= _LONGEST}


@dataclass(frozen=True)
class SearchedTable:
    """A table and the clips in it that may answer; `hidden` counts its clips that another table has too."""

    table: Any
    narrowing: Narrowing
    hidden: int = 0


def match_parts(
    tables: Sequence[SearchedTable], query: str, k: int, *, compounding: Collection[str] = ()
) -> ClipHits:
    """The k clips of some tables that contain a part of a query, best first; rarer parts score more.

    With `compounding` (languages that write nouns together), instead the clips in which a word of the query
    begins or ends a longer word, or which contain both halves of a word that occurs nowhere itself.
    """
    tables = [each for each in tables if has_index(each.table, "text") and not each.narrowing.impossible]
    if not tables:
        return no_hits()
    hits = no_hits()
    text = printable(query)
    for part, words in list(parts_of(text, compounds=bool(compounding)).items())[:_MOST_PARTS]:
        if compounding:
            hits = summed_hits(hits, _clips_with_compound(tables, part, compounding), k)
            continue
        # The index has the punctuation between words ("2.10.3"), the parts do not.
        searched = part if len(words) == 1 else f"{text} {part}"
        hits = summed_hits(hits, _clips_with(tables, searched, part, words), k)
    return hits


def _clips_with_compound(tables: Sequence[SearchedTable], part: str, languages: Collection[str]) -> ClipHits:
    """The clips with a word that begins or ends with a part and is longer by more than an ending.

    If there are none, and the part occurs nowhere as a word: the clips with both halves of the part.
    """
    rows = _looked_at(tables, part)
    texts = [words_of(text) for text in rows["text"].to_pylist()]
    has_part = [
        any(
            len(word) >= len(part) + LEAST_PART - 1 and (word.startswith(part) or word.endswith(part))
            for word in words
        )
        for words in texts
    ]
    if not any(has_part):
        has_part = [
            any(contained)
            for contained in zip(*(_says_both(texts, part, name) for name in languages), strict=True)
        ]
    return _scored_by_rarity(tables, rows.filter(np.array(has_part, np.bool_)))


def _says_both(texts: Sequence[Sequence[str]], word: str, language: str) -> list[bool]:
    """Whether each text contains both halves of a compound, at any cut; all false if one has the compound.

    Stems make "bilder" and "Bildern" equal, and drop the "s" that joins "Arbeitsmarkt".
    """
    cuts = range(LEAST_OF_TWO, len(word) - LEAST_OF_TWO + 1)
    pairs = {frozenset({stemmed(word[:at], language), stemmed(word[at:], language)}) for at in cuts}
    stems = [{stemmed(each, language) for each in words} for words in texts]
    if any(stemmed(word, language) in stems_of_text for stems_of_text in stems):
        return [False] * len(texts)
    return [any(len(pair) == 2 and pair <= stems_of_text for pair in pairs) for stems_of_text in stems]


def _clips_with(tables: Sequence[SearchedTable], searched: str, part: str, words: Sequence[str]) -> ClipHits:
    """The clips with a part in one of their lines; none if it occurs anywhere as whole words."""
    rows = _looked_at(tables, searched)
    lines = [text.split("\n") for text in rows["text"].to_pylist()]
    if any(says(line, words) for some in lines for line in some):
        return no_hits()
    has_part = np.array([any(part in "".join(words_of(line)) for line in some) for some in lines], np.bool_)
    return _scored_by_rarity(tables, rows.filter(has_part))


def _looked_at(tables: Sequence[SearchedTable], searched: str) -> Any:
    """The candidate clips of each table as one Arrow table: those that share most trigrams with a text."""
    import pyarrow as pa
    from lancedb.query import MatchQuery

    rows = []
    for each in tables:
        search = each.table.search(MatchQuery(searched, "text"), query_type="fts").limit(_LOOKED_AT)
        if each.narrowing.sql is not None:
            search = search.where(each.narrowing.sql, prefilter=True)
        rows.append(search.select([*CLIP_COLUMNS, "text", "_score"]).to_arrow())
    return rows[0] if len(rows) == 1 else pa.concat_tables(rows)


def _scored_by_rarity(tables: Sequence[SearchedTable], rows: Any) -> ClipHits:
    """The clips as hits, scored like a word that occurs in just these clips."""
    count, total = len(rows), sum(each.table.count_rows() - each.hidden for each in tables)
    score = math.log1p((max(total - count, 0) + 0.5) / (count + 0.5))
    return hits_of(rows, np.full(count, score, np.float32), _LOOKED_AT)
