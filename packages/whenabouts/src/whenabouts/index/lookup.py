"""Searches a table of clips: nearest vectors, matching words, all clips of some videos."""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.budget import check_budget
from whenabouts.index.lance import rows_of_queries
from whenabouts.index.records import EXTRA_COLUMNS, ClipBlock, ClipHits, StoreError, printable
from whenabouts.index.stemming import as_indexed, stemmed
from whenabouts.index.vector_index import Effort

if TYPE_CHECKING:
    from whenabouts.index.vector_index import Distance, VectorIndex

CLIP_COLUMNS = ["video_id", "index", "start", "end"]
HitsAt = Callable[[NDArray[np.uint64], NDArray[np.float32], int], ClipHits]
"""(row ids, scores, k) -> the best k hits."""
HitsAmong = Callable[[NDArray[np.uint64], NDArray[np.float32], int], ClipHits]
"""(row ids, query, k) -> the k nearest of these rows."""

JOINED_WEIGHT = 0.5
"""Weight of a match of two joined neighbours beside one of a single word. At 0, 0.25, 0.5, 0.75 and 1, 52.1,
53.4, 54.6, 53.0 and 51.8 % are found first: in long questions joined words must not lead."""

# Nobody writes longer compounds.
_LONGEST_JOINED = 40
# Combining marks, which `\w` leaves out.
MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u0711\u0730-\u074a"
    "\u0900-\u0963\u0966-\u0df3\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ebc\u0ec8-\u0ece\u0f18-\u0f39\u0f71-\u0fbc\u102b-\u103e"
    "\u1056-\u109d\u135d-\u135f\u1712-\u1734\u17b4-\u17d3\u1a17-\u1aff\u1b00-\u1be7\u1dc0-\u1dff\u200c\u200d\u20d0-\u20f0"
    "\u3099\u309a\ufe20-\ufe2f"
)
WORD = re.compile(rf"[^\W_](?:[^\W_]|[{MARKS}])*")
# ASCII letters in lower case and digits; all other signs are spaces.
_ASCII_WORDS = bytes(ord(chr(code).lower()) if chr(code).isalnum() else 32 for code in range(128)) + bytes(
    128
)
# Scripts that write a word in one or two characters: one weighs as much as three letters.
DENSE_SCRIPT = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")

EXACT_ROWS = 20_000
"""If a filter leaves at most this many clips, they are searched exactly: about 1 ms per thousand."""

PROBED_SHARE = 0.1
"""Share of an index's partitions that are probed if none was measured (`effort.py`): for queries close to a
clip, recall@200 of 0.99 at 1 M clips."""

LEAST_PROBES = 60
"""Partitions that are probed at least. Over 60,000 to 200,000 clips recall@200 is 0.99 to 1; with 20 it was
0.93, for 1 to 2.5 ms of processor time less."""
# A filter also breaks up the neighbourhoods that partitions are made of, so half as many more are probed.
_FILTER_MARGIN = 1.5
# A filter given as a long list of ids costs 5 us an id. If it leaves most videos, it is cheaper to apply it
# to the answers of a search `_WIDER` times as deep, which nearly always holds enough.
_LONG_LIST = 1_000
_MOST_VIDEOS = 0.4
_WIDER = 4
_MOST_QUERY_WORDS = 200
# Passages up to this length are cached as words: many queries have the same candidates.
_LONGEST_KEPT = 1_000


CLIPS_EFFORT = Effort(PROBED_SHARE, 200, 2)
KEYS_EFFORT = Effort(0.4, 800, None)
"""Keys choose videos, which are then scored exactly. Scoring keys with their stored vectors found no more
videos and took three times as long (1 M keys of XML). Of its ten best moments, 0.5 and 0.3 of the partitions
found all, 0.2 found 99.5 %, 0.12 found 99.1 %."""


def literal(value: str) -> str:
    """A string as an SQL literal; quotes cannot end it.

    >>> print(literal("Bob's"))
    'Bob''s'
    """
    return "'" + value.replace("'", "''") + "'"


def among(column: str, values: Iterable[str]) -> str:
    """The SQL condition that a text column is one of `values` (at least one)."""
    return f"{column} IN ({', '.join(literal(value) for value in values)})"


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The clips that may answer: those of `video_ids`; None: no limit.

    `kind`: only keys with that number in the column of the same name.
    """

    video_ids: Sequence[str] | None = None
    kind: int | None = None

    @property
    def impossible(self) -> bool:
        return self.video_ids is not None and len(self.video_ids) == 0

    @property
    def sql(self) -> str | None:
        """The condition as SQL, None without one."""
        parts = [] if self.video_ids is None else [among("video_id", self.video_ids)]
        parts += [] if self.kind is None else [f"kind = {int(self.kind)}"]
        return " AND ".join(parts) or None

    def leaves_most_of(self, videos: int) -> bool:
        """Whether this is a long list of ids that leaves a good part of all `videos`."""
        listed = 0 if self.video_ids is None else len(self.video_ids)
        return listed > _LONG_LIST and listed >= _MOST_VIDEOS * videos


def nearest(
    table: Any,
    query: NDArray[np.float32],
    k: int,
    *,
    narrowing: Narrowing,
    index: VectorIndex | None,
    videos: Callable[[], int],
    distance: Distance = "cosine",
    effort: Effort | None = None,
    choose: HitsAmong | None = None,
    like_clips: bool = False,
) -> ClipHits:
    """The k clips nearest to `query` (D,); exact if `index` is None. `videos` counts the corpus's videos.

    The score is the cosine or, for "dot" and for "l2" of unit vectors, the dot product. `choose` re-scores an
    index's candidates; None: with their vectors on disk, by `effort` (None: that of the index). `like_clips`:
    the query is made of clips or pictures, which takes less effort.
    """
    if narrowing.impossible:
        return no_hits()
    effort = effort or effort_of(index, like_clips=like_clips)
    search = _VectorQuery(table, query, distance, effort.refine, choose)
    if index is not None and narrowing.video_ids is not None and narrowing.leaves_most_of(videos()):
        others = replace(narrowing, video_ids=None)
        probes = _probes(table, index, _WIDER * k, others, effort)
        wider = search.nearest(_WIDER * k, others.sql, probes)
        allowed = set(narrowing.video_ids)
        hits = rows_of(wider, np.array([name in allowed for name in wider.video_ids], np.bool_))
        if len(hits) >= k:
            return rows_of(hits, np.arange(len(hits)) < k)
    return search.nearest(
        k, narrowing.sql, None if index is None else _probes(table, index, k, narrowing, effort)
    )


def nearest_of_each(
    table: Any, queries: Sequence[NDArray[np.float32]], k: int, *, index: VectorIndex, choose: HitsAmong
) -> list[ClipHits]:
    """The results of `nearest` for each query over all clips, with one call of the index.

    Over a million clips 16 queries take 3 ms of processor time each, one alone takes 9.
    """
    effort = effort_of(index)
    search = _VectorQuery(table, queries, "cosine", effort.refine, choose)
    probes = _probes(table, index, k, Narrowing(), effort)
    rows = search.rows(k * (effort.refine or 1), None, probes, ["_distance"])
    numbers, owner = rows["_rowid"].to_numpy(), rows["query_index"].to_numpy()
    return [choose(numbers[owner == row], query, k) for row, query in enumerate(queries)]


def effort_of(index: VectorIndex | None, *, like_clips: bool = False) -> Effort:
    """The index's measured effort, else `CLIPS_EFFORT`, which suffices for queries that are `like_clips`."""
    if index is None or index.effort is None or (like_clips and not index.by_clips):
        return CLIPS_EFFORT
    return index.effort


@dataclass(frozen=True, slots=True, eq=False)
class _VectorQuery:
    """One or more query vectors for a table; `refine` and `choose` as in `nearest`."""

    table: Any
    query: Any
    distance: Distance
    refine: int | None
    choose: HitsAmong | None

    def nearest(self, k: int, condition: str | None, probes: int | None) -> ClipHits:
        """The k nearest under an SQL condition; `probes` is the number of partitions, None: compare all."""
        if self.choose is not None and probes is not None:
            rows = self.rows(k * (self.refine or 1), condition, probes, ["_distance"])
            return self.choose(rows["_rowid"].to_numpy(), self.query, k)
        rows = self.rows(k, condition, probes, [*CLIP_COLUMNS, "_distance"], self.refine)
        return hits_of(rows, _score(rows["_distance"].to_numpy(), self.query, self.distance), k)

    def rows(
        self,
        count: int,
        condition: str | None,
        probes: int | None,
        columns: list[str],
        refine: int | None = None,
    ) -> Any:
        def query(table: Any) -> Any:
            search = table.query().nearest_to(self.query).column("vector").distance_type(self.distance)
            search = search.limit(count).with_row_id().select(columns)
            search = search if condition is None else search.where(condition)
            if probes is None:
                return search.bypass_vector_index()
            search = search.nprobes(probes)
            return search if refine is None else search.refine_factor(refine)

        return rows_of_queries(self.table, [query])[0]


def _score(
    distances: NDArray[np.float32], query: NDArray[np.float32], distance: Distance
) -> NDArray[np.float32]:
    """Distances (N,) as scores; greater is nearer."""
    score = 1.0 - distances if distance != "l2" else (1.0 + query @ query - distances) / 2
    return np.asarray(score, np.float32)


def _probes(table: Any, index: VectorIndex, k: int, narrowing: Narrowing, effort: Effort) -> int | None:
    """How many partitions of the index to probe; None for an exact search."""
    share = effort.share * max(1.0, math.sqrt(k / effort.answers))
    if narrowing.sql is not None:
        matching = int(table.count_rows(narrowing.sql))
        if matching <= EXACT_ROWS:
            return None
        share *= _FILTER_MARGIN * table.count_rows() / matching
    return min(index.partitions, max(LEAST_PROBES, math.ceil(share * index.partitions)))


def rows_of(hits: ClipHits, kept: NDArray[np.bool_]) -> ClipHits:
    """The hits at `kept`, in their order."""
    names = [video_id for video_id, keep in zip(hits.video_ids, kept, strict=True) if keep]
    return ClipHits(names, hits.index[kept], hits.start[kept], hits.end[kept], hits.score[kept])


def match(
    table: Any, query: str, k: int, narrowing: Narrowing, languages: Sequence[str], read: HitsAt
) -> ClipHits:
    """The k clips whose words match best by BM25; no hits for a query without words.

    `languages` are those of the clips: words are also searched as their stems in each. `read` reads rows of
    the table.

    Words and their joined neighbours are two searches whose scores are added, because LanceDB prunes clips
    that cannot reach the best k only within one list of words. Over 200,000 clips that takes 7 ms, one query
    made of both 89. A clip among the best k of only one list gets only that score.
    """
    words, joined = words_searched(query, languages)
    if not words or narrowing.impossible:
        return no_hits()
    (rows, score), *of_joined = matching_each(table, [words, joined] if joined else [words], k, narrowing)
    for others, weight in of_joined:
        rows, place = np.unique(np.concatenate([rows, others]), return_inverse=True)
        score = np.bincount(place, np.concatenate([score, JOINED_WEIGHT * weight])).astype(np.float32)
    best = best_places(score, k)
    return read(rows[best], score[best], k)


def best_places(score: NDArray[np.floating[Any]], k: int) -> NDArray[np.int64]:
    """The places of the `k` greatest scores, with ties of the last."""
    if len(score) <= k:
        return np.arange(len(score))
    return np.flatnonzero(score >= np.partition(score, -k)[-k])


def words_searched(query: str, languages: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """The words of a query and its joined neighbours as they are searched, with their stems in `languages`.

    At most `_MOST_QUERY_WORDS` distinct ones of each.
    """
    ways = [query_words(printable(query), language) for language in ("", *languages)]
    words, joined = (
        _each_once([word for way in ways for word in way[part]], len(ways) > 1)[:_MOST_QUERY_WORDS]
        for part in (0, 1)
    )
    return words, joined


def _each_once(words: Sequence[str], several: bool) -> list[str]:
    """Distinct words; with `several`, words that the index stores alike (`as_indexed`) count as one."""
    return list({as_indexed(word) if several else word: word for word in reversed(words)}.values())[::-1]


def matching(
    table: Any, words: Sequence[str], k: int, narrowing: Narrowing
) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    """The ids and the BM25 scores of the best k rows for a list of words."""
    return matching_each(table, [words], k, narrowing)[0]


def matching_each(
    table: Any, lists: Sequence[Sequence[str]], k: int, narrowing: Narrowing
) -> list[tuple[NDArray[np.uint64], NDArray[np.float32]]]:
    """The results of `matching` for each list of words."""
    from lancedb.query import MatchQuery

    def query(words: Sequence[str], table: Any) -> Any:
        search = table.query().nearest_to_text(MatchQuery(" ".join(words), "context")).limit(k)
        search = search if narrowing.sql is None else search.where(narrowing.sql)
        return search.with_row_id().select(["_score"])

    matches = rows_of_queries(table, [partial(query, words) for words in lists])
    return [(rows["_rowid"].to_numpy(), rows["_score"].to_numpy().astype(np.float32)) for rows in matches]


def hits_at(table: Any, rows: NDArray[np.uint64], score: NDArray[np.float32], limit: int) -> ClipHits:
    """The best `limit` of some rows of a table, given by row id, as hits; read from disk."""
    if not len(rows):
        return no_hits()
    columns = table.take_row_ids(rows.tolist()).with_row_id().select(CLIP_COLUMNS).to_arrow()
    order = np.argsort(rows)
    place = order[np.searchsorted(rows, columns["_rowid"].to_numpy(), sorter=order)]
    return hits_of(columns, score[place], limit)


def summed_hits(first: ClipHits, second: ClipHits, k: int) -> ClipHits:
    """The best k of two lists of hits; a clip in both gets the sum of its scores."""
    import pyarrow as pa

    if not (len(first) and len(second)):
        return first if len(first) else second
    columns = ("index", "start", "end", "score")
    numbers = {name: np.concatenate([getattr(hits, name) for hits in (first, second)]) for name in columns}
    both = pa.table({"video_id": first.video_ids + second.video_ids, **numbers})
    summed = both.group_by(CLIP_COLUMNS, use_threads=False).aggregate([("score", "sum")])
    return hits_of(summed, summed["score_sum"].to_numpy().astype(np.float32), k)


def best_hits(lists: Sequence[ClipHits], k: int) -> ClipHits:
    """The best k of several lists, in total order: score, video id, index."""
    ids = np.array([name for hits in lists for name in hits.video_ids], dtype=np.str_)
    index, start, end, score = (
        np.concatenate([getattr(hits, name) for hits in lists]) for name in ("index", "start", "end", "score")
    )
    order = np.lexsort((index, ids, -score))[:k]
    return ClipHits(ids[order].tolist(), index[order], start[order], end[order], score[order])


def doubled(table: Any) -> list[str]:
    """Ids of videos with a duplicate row: in a table of clips, with two rows of one index."""
    key = [name for name in ("video_id", "index") if name in table.schema.names]
    rows = table.search().limit(None).select(key).to_arrow()
    counts = rows.group_by(key, use_threads=False).aggregate([([], "count_all")])
    twice = counts.filter(counts["count_all"].to_numpy() > 1)
    return sorted(set(twice["video_id"].to_pylist()))


def has_index(table: Any, column: str) -> bool:
    """Whether a column is indexed."""
    return any(index.columns == [column] for index in table.list_indices())


def clips_of(table: Any, video_ids: Sequence[str], dimension: int) -> ClipBlock:
    """All clips of some videos (each named once), with vectors of width `dimension` (0: without)."""
    condition = among("video_id", video_ids) if video_ids else "false"
    columns = [*CLIP_COLUMNS, "text", *(["vector"] if dimension else []), *extra_columns(table)]
    rows = table.search().where(condition).limit(None).select(columns).to_arrow()
    return block_of(rows, video_ids, dimension)


def clips_at(table: Any, seconds: Sequence[float], video_ids: Sequence[str], dimension: int) -> ClipBlock:
    """The clips of some videos (each named once) that contain one of `seconds` (one or more)."""
    if not video_ids:
        return clips_of(table, video_ids, dimension)
    times = " OR ".join(f'("start" <= {float(second)!r} AND "end" > {float(second)!r})' for second in seconds)
    # A long list of ids costs more than the clips of all videos at these times.
    few = f"{among('video_id', video_ids)} AND " if len(video_ids) <= _LONG_LIST else ""
    columns = [*CLIP_COLUMNS, "text", *(["vector"] if dimension else [])]
    rows = table.search().where(f"{few}({times})").limit(None).select(columns).to_arrow()
    if not few:
        import pyarrow.compute as pc

        rows = rows.filter(pc.field("video_id").isin(list(video_ids)))
    return block_of(rows, video_ids, dimension)


def search_words(text: str, language: str = "") -> str:
    """A text as the full-text index stores it: its words, and each pair of neighbours joined.

    If `language` has a stemmer (`stemming.py`), words are replaced by their stems.

    Because of the joined pairs, "blockspace" finds "block space", "op vault" finds "OP_VAULT", "onchain"
    finds "on-chain", and neighbours in the question count more where they are neighbours in the text. There
    is no list of stop words: every language would need one.

    >>> search_words("On-chain fees")
    'on chain fees onchain chainfees'
    """
    words, joined = query_words(text, language)
    return " ".join(words + joined)


def query_words(text: str, language: str = "") -> tuple[list[str], list[str]]:
    """The words of a text, and its pairs of neighbours joined, which weigh `JOINED_WEIGHT` in a search.

    >>> query_words("On-chain fees")
    (['on', 'chain', 'fees'], ['onchain', 'chainfees'])
    """
    words = [stemmed(word, language) for word in words_of(text)] if language else words_of(text)
    pairs = [first + second for first, second in itertools.pairwise(words)]
    return words, [pair for pair in pairs if len(pair) <= _LONGEST_JOINED]


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, in order."""
    check_budget()  # every loop over passages calls this
    return list(_words_of_passage(text)) if len(text) <= _LONGEST_KEPT else _words_in(text)


def _words_in(text: str) -> list[str]:
    return spaced(text).split() if text.isascii() else WORD.findall(text.lower())


def spaced(text: str) -> str:
    """An ASCII text in lower case with a space for each other sign; ten times as fast as `WORD`."""
    return text.encode().translate(_ASCII_WORDS).decode()


@lru_cache(maxsize=1 << 14)
def _words_of_passage(text: str) -> tuple[str, ...]:
    # Interned: the distinct words of a corpus are few, the cached passages many.
    return tuple(map(sys.intern, _words_in(text)))


def drop_words() -> None:
    """Empty the cache of passages split into words."""
    _words_of_passage.cache_clear()


def says(text: str, words: Collection[str]) -> bool:
    """Whether a text contains each of some lower-case words, also inside a run of Chinese characters.

    >>> says("On-chain fees rise.", ["fees", "chain"]), says("On-chain fees rise.", ["fee"])
    (True, False)
    """
    lowered = text.lower()
    if not all(word in lowered for word in words):
        return False
    spoken = set(_words_in(lowered))
    return all(word in spoken or DENSE_SCRIPT.search(word) for word in words)


def hits_of(table: Any, score: NDArray[np.float32], limit: int) -> ClipHits:
    """Rows with their scores as hits, in total order: score, video id, index."""
    index, start, end = _places(table)
    hits = ClipHits(table["video_id"].to_pylist(), index.astype(np.int32), start, end, score)
    return best_hits([hits], limit)


def no_hits() -> ClipHits:
    """An empty answer."""
    none = np.zeros(0)
    return ClipHits([], none.astype(np.int32), none, none, none.astype(np.float32))


def block_of(table: Any, video_ids: Sequence[str], dimension: int) -> ClipBlock:
    """Rows of some videos, in the order of `video_ids` and of the clips' index."""
    place = {video_id: position for position, video_id in enumerate(video_ids)}
    column = table["video_id"].combine_chunks().dictionary_encode()
    names = np.array([place[name] for name in column.dictionary.to_pylist()], dtype=np.int64)
    owner = names[column.indices.to_numpy()] if len(names) else np.zeros(0, np.int64)
    index, starts, ends = _places(table)
    order = np.lexsort((index, owner))
    counts = np.bincount(owner, minlength=len(video_ids))
    return ClipBlock(
        video_ids=list(video_ids),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        index=index[order].astype(np.int32),
        start=starts[order],
        end=ends[order],
        text=table["text"].combine_chunks().take(order).to_pylist(),
        vectors=matrix_of(table, "vector", dimension)[order],
        box=matrix_of(table, "box", 4, np.nan)[order] if "box" in table.schema.names else None,
        recognised=_numbers(table, "recognised")[order] if "recognised" in table.schema.names else None,
    )


def _places(table: Any) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """Index, start and end of each row. Raises StoreError for missing values and invalid times."""
    for name in ("video_id", "index", "start", "end"):
        if table[name].null_count:
            raise _no_clip(f"lacks its {name}")
    index, starts, ends = (table[name].to_numpy() for name in ("index", "start", "end"))
    right = (starts >= 0) & (starts < ends) & np.isfinite(ends)
    if not right.all():
        wrong = int(np.argmin(right))
        raise _no_clip(f"is from {float(starts[wrong])} to {float(ends[wrong])} s")
    return index, starts, ends


def _no_clip(problem: str) -> StoreError:
    return StoreError(
        f"the table of clips is damaged: a row {problem}; restore the corpus from a copy, or index into a "
        "new folder"
    )


def extra_columns(table: Any) -> list[str]:
    """The EXTRA_COLUMNS that a table of clips has."""
    return [name for name in table.schema.names if name in EXTRA_COLUMNS]


def _numbers(table: Any, name: str) -> NDArray[np.float32]:
    """A column of numbers as (n,) float32, NaN for null."""
    import pyarrow.compute as pc

    filled = pc.fill_null(table[name], float("nan")).combine_chunks()
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.float32)


def matrix_of(table: Any, name: str, width: int, absent: float = 0.0) -> NDArray[np.float32]:
    """A column of lists as (n, width) float32; null rows are `absent`."""
    matrix = np.full((len(table), width), absent, np.float32)
    if width == 0:
        return matrix
    column = table[name].combine_chunks()
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    matrix[valid] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    return matrix
