"""Parts of words: "E16T" finds the plate "RE16 TGK", "lescop" the telescope.

Full-text search knows whole words. Of streams that ask for it (`Stream.parts_of_words`) each three signs that
stand together are indexed as well; what shares some with a query is looked at, and counts only if the whole
part stands in one line. A part that stands anywhere as a whole word is left to the search of words, so that
this one adds clips to a search of words and never changes the order among its hits.
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

# Signs that are indexed together, and as long as a part may be.
_GRAM, _LONGEST = 3, 24
# Parts of a query that are tried, and clips that are looked at for each.
_MOST_PARTS, _LOOKED_AT = 4, 200


def index_parts(table: Any) -> None:
    """Index each three signs of the clips' own texts, if they are not."""
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
    """What may be a part of a word: the query without its spaces, and its words that hold digits.

    With `compounds` each longer word instead: it may be written together with others.

    Each with the words that it is made of.

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
    """A table and which of its clips may answer; `hidden` counts those that another table has too."""

    table: Any
    narrowing: Narrowing
    hidden: int = 0


def match_parts(
    tables: Sequence[SearchedTable], query: str, k: int, *, compounding: Collection[str] = ()
) -> ClipHits:
    """The k clips of some tables in which a part of a query stands, best first; rarer parts score more.

    With languages that write nouns together (`compounding`), those in which a word of the query begins or
    ends a longer word, or which say the two parts of a word that stands nowhere itself.
    """
    tables = [own for own in tables if has_index(own.table, "text") and not own.narrowing.impossible]
    if not tables:
        return no_hits()
    hits = no_hits()
    text = printable(query)
    for part, words in list(parts_of(text, compounds=bool(compounding)).items())[:_MOST_PARTS]:
        if compounding:
            hits = summed_hits(hits, _clips_with_compound(tables, part, compounding), k)
            continue
        # Signs between the words ("2.10.3") are in the index, and between the words of a part they are not.
        searched = part if len(words) == 1 else f"{text} {part}"
        hits = summed_hits(hits, _clips_with(tables, searched, part, words), k)
    return hits


def _clips_with_compound(tables: Sequence[SearchedTable], part: str, languages: Collection[str]) -> ClipHits:
    """The clips that have a word which begins or ends with a part, and is more than an ending longer.

    Where there are none, and the part stands nowhere as it is, those that say both words it is made of.
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
            any(own) for own in zip(*(_says_both(texts, part, name) for name in languages), strict=True)
        ]
    return _scored_by_rarity(tables, rows.filter(np.array(has_part, np.bool_)))


def _says_both(texts: Sequence[Sequence[str]], word: str, language: str) -> list[bool]:
    """Which texts say both parts of a compound, wherever it may be cut; none where one has it as it is.

    Stems make "bilder" and "Bildern" one, and drop the "s" that joins "Arbeitsmarkt".
    """
    cuts = range(LEAST_OF_TWO, len(word) - LEAST_OF_TWO + 1)
    pairs = {frozenset({stemmed(word[:at], language), stemmed(word[at:], language)}) for at in cuts}
    stems = [{stemmed(own, language) for own in words} for words in texts]
    if any(stemmed(word, language) in own for own in stems):
        return [False] * len(texts)
    return [any(len(pair) == 2 and pair <= own for pair in pairs) for own in stems]


def _clips_with(tables: Sequence[SearchedTable], searched: str, part: str, words: Sequence[str]) -> ClipHits:
    """The clips that have a part in one of their lines; none where it stands somewhere as whole words."""
    rows = _looked_at(tables, searched)
    lines = [text.split("\n") for text in rows["text"].to_pylist()]
    if any(says(line, words) for some in lines for line in some):
        return no_hits()
    has_part = np.array([any(part in "".join(words_of(line)) for line in some) for some in lines], np.bool_)
    return _scored_by_rarity(tables, rows.filter(has_part))


def _looked_at(tables: Sequence[SearchedTable], searched: str) -> Any:
    """The clips that share most runs of signs with a text, so many of each table."""
    import pyarrow as pa
    from lancedb.query import MatchQuery

    rows = []
    for own in tables:
        search = own.table.search(MatchQuery(searched, "text"), query_type="fts").limit(_LOOKED_AT)
        if own.narrowing.sql is not None:
            search = search.where(own.narrowing.sql, prefilter=True)
        rows.append(search.select([*CLIP_COLUMNS, "text", "_score"]).to_arrow())
    return rows[0] if len(rows) == 1 else pa.concat_tables(rows)


def _scored_by_rarity(tables: Sequence[SearchedTable], rows: Any) -> ClipHits:
    """Clips that score as a word which stands in so many clips."""
    count, total = len(rows), sum(own.table.count_rows() - own.hidden for own in tables)
    score = math.log1p((max(total - count, 0) + 0.5) / (count + 0.5))
    return hits_of(rows, np.full(count, score, np.float32), _LOOKED_AT)
