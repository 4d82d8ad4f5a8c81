"""BM25 scores over several tables as if they were one, and by language as if each had a table of its own.

LanceDB scores the clips of a table by the word counts of that table alone. So the best clips of each table by
these scores are read, and scored again by the counts over all tables, with LanceDB's formula and constants
(for a single table the scores equal LanceDB's to 2e-6). More clips are read until no unread clip can be among
the best, even if its score changed by the largest possible factor.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.lookup import JOINED_WEIGHT, Narrowing, best_places, matching, words_searched
from whenabouts.index.stemming import as_indexed, has_stems

_K1, _B = 1.2, 0.75
# The index leaves out words of so many bytes in UTF-8, in which a letter may take two or three.
_TOO_LONG = 40
# Factor by which more clips are read of a table, if those read may not include all of the best.
_WIDER = 4
# Most clips of a table whose terms stay in memory, about 1 kB each.
_MOST_KEPT = 50_000


@lru_cache(maxsize=1 << 17)
def term_of(word: str) -> str:
    """The term that the index stores for a word: its English stem, without accents."""
    term = as_indexed(word)
    if term.isascii():
        return term
    signs = unicodedata.normalize("NFKD", term)
    return unicodedata.normalize("NFKC", "".join(sign for sign in signs if not unicodedata.combining(sign)))


def _number_of(word: str) -> int:
    """A number for a word's term: of 64 bits, so two terms share one with negligible probability."""
    return hash(term_of(word))


def _words(context: str) -> list[str]:
    """The words of a clip's context that the index stores, in order."""
    return [word for word in context.split(" ") if 0 < len(word.encode()) < _TOO_LONG]


@dataclass(eq=False)
class TableWords:
    """Word counts of one table in one state: `clips` with words, `words` in these, and clips by word.

    Videos that another table has too are hidden. Their clips are in `clips` and `words`, because LanceDB's
    scores include them; counts over several tables leave out `hidden_clips` and `hidden_words`.
    """

    table: Any
    clips: int
    words: int
    hidden_clips: int = 0
    hidden_words: int = 0
    _hidden_with: Mapping[str, int] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _terms: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Any, hidden: Collection[str] = ()) -> TableWords:
        """Count the words of all clips in one pass; `hidden` are ids of videos."""
        columns = ["context", "video_id"] if hidden else ["context"]
        contexts = table.search().where("context != ''").limit(None).select(columns).to_arrow()
        texts = contexts["context"].to_pylist()
        lengths = [length for text in texts if (length := len(_words(text)))]
        names = contexts["video_id"].to_pylist() if hidden else [""] * len(texts)
        doubles = [
            [*map(term_of, words)]
            for text, name in zip(texts, names, strict=True)
            if name in hidden and (words := _words(text))
        ]
        counts = Counter(term for terms in doubles for term in set(terms))
        return cls(table, len(lengths), sum(lengths), len(doubles), sum(map(len, doubles)), counts)

    def clips_with(self, word: str) -> int:
        """The number of clips with a word, computed from the BM25 score of the best clip for it alone."""
        if word not in self._counts:
            self._counts[word] = self._solved(word)
        return self._counts[word]

    def shown_with(self, word: str) -> int:
        """The number of clips with a word, without hidden ones."""
        return max(0, self.clips_with(word) - self._hidden_with.get(term_of(word), 0))

    def _solved(self, word: str) -> int:
        rows, score = matching(self.table, [word], 1, Narrowing())
        if not len(rows):
            return 0
        [terms] = self.terms_at(rows)
        weight = _saturated(int((terms == _number_of(word)).sum()), len(terms), self.words / self.clips)
        if weight == 0:  # the index splits this word in another way than `term_of`
            return int(self.table.count_rows())
        return max(1, round((self.clips + 1) / math.exp(float(score[0]) / weight) - 0.5))

    def terms_at(self, rows: NDArray[np.uint64]) -> list[NDArray[np.int64]]:
        """The terms of some clips, given by row id, as numbers (`_number_of`). Each clip is read once."""
        numbers, terms = rows.tolist(), self._terms
        if missing := [row for row in numbers if row not in terms]:
            if len(terms) + len(missing) > _MOST_KEPT:  # another thread may still use the dictionary
                self._terms = terms = {}
                missing = numbers
            read = self.table.take_row_ids(missing).with_row_id().select(["context"]).to_arrow()
            for row, text in zip(read["_rowid"].to_pylist(), read["context"].to_pylist(), strict=True):
                terms[row] = np.array([*map(_number_of, _words(text))], np.int64)
        return [terms[row] for row in numbers]


@dataclass(frozen=True)
class UnitedWords:
    """Several tables, searched as if they were one."""

    tables: Sequence[TableWords]

    def best(
        self, words: Sequence[str], k: int, narrowings: Sequence[Narrowing]
    ) -> list[tuple[NDArray[np.uint64], NDArray[np.float32]]]:
        """For each table its clips among the best `k` of all (ties included): row ids and scores."""
        counts = {word: sum(table.shown_with(word) for table in self.tables) for word in words}
        scored = [
            self._of_table(table, counts, k, narrowing)
            for table, narrowing in zip(self.tables, narrowings, strict=True)
        ]
        every = np.concatenate([score for _, score in scored])
        least = np.partition(every, -k)[-k] if len(every) > k else -math.inf
        return [(rows[score >= least], score[score >= least]) for rows, score in scored]

    def _of_table(
        self, table_words: TableWords, counts: dict[str, int], k: int, narrowing: Narrowing
    ) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
        """Row ids and overall scores of clips of one table, including all that may be among the best `k`."""
        if narrowing.impossible:
            return _nothing()
        clips = sum(table.clips - table.hidden_clips for table in self.tables)
        mean = sum(table.words - table.hidden_words for table in self.tables) / max(clips, 1)
        weights = {word: _rarity(clips, count) for word, count in counts.items()}
        widest = max(1.0, mean * table_words.clips / max(table_words.words, 1))
        change = max(
            (
                widest * weights[word] / _rarity(table_words.clips, having)
                for word in counts
                if (having := table_words.clips_with(word))
            ),
            default=0.0,
        )
        deep = k
        while True:
            rows, local = matching(table_words.table, list(counts), deep, narrowing) if change else _nothing()
            score = _scores(table_words.terms_at(rows), weights, mean) if len(rows) else local
            if len(rows) < deep or np.partition(score, -k)[-k] >= change * local.min():
                return rows, score
            deep *= _WIDER


@dataclass(frozen=True, eq=False)
class WordsByLanguage:
    """The clips of tables in one state, scored by language as if each language had a table of its own.

    The rarity of a word is that in the videos of one language, so that other languages change no score.
    The columns (N,) hold the clips of table after table; those of `tables[i]` are at `offsets[i]` up to
    `offsets[i + 1]`, in order of their row ids `rows`. `length` is the number of words of a clip, `video` its
    index in `videos`, `language` its index in `languages`, -1 for videos that an earlier table has too.
    """

    tables: Sequence[Any]
    offsets: NDArray[np.int64]
    languages: Sequence[str]
    videos: NDArray[np.str_]
    rows: NDArray[np.uint64]
    length: NDArray[np.float64]
    video: NDArray[np.int64]
    language: NDArray[np.int64]

    @classmethod
    def of(
        cls, tables: Sequence[Any], language_of: Mapping[str, str], hidden: Sequence[Collection[str]]
    ) -> WordsByLanguage:
        """Count the words of all clips of tables (one or more).

        `language_of` gives the language of a video by its id; `hidden` has, for each table, the ids of videos
        that an earlier table has too.
        """
        having = (table.search().where("context != ''").limit(None) for table in tables)
        columns = ["video_id", "context"]
        clips = [query.select(columns).with_row_id(True).to_arrow().sort_by("_rowid") for query in having]
        names = [np.array(own["video_id"].to_pylist(), np.str_) for own in clips]
        is_hidden = [np.isin(own, list(some)) for own, some in zip(names, hidden, strict=True)]
        videos, video = np.unique(np.concatenate(names), return_inverse=True)
        spoken = [language_of.get(name, "") for name in videos.tolist()]
        languages, language = np.unique(np.array(spoken, np.str_), return_inverse=True)
        return cls(
            tables,
            np.cumsum([0, *map(len, clips)]),
            languages.tolist(),
            videos,
            np.concatenate([own["_rowid"].to_numpy() for own in clips]),
            np.concatenate([_lengths(own) for own in clips]),
            video,
            np.where(np.concatenate(is_hidden), -1, language[video]),
        )

    def best(
        self,
        lists: Mapping[str, Sequence[tuple[Sequence[str], float]]],
        k: int,
        video_ids: Sequence[str] | None = None,
    ) -> list[tuple[NDArray[np.uint64], NDArray[np.float32]]]:
        """For each table its clips among the best `k` of a language by BM25: row ids and scores.

        `lists` has, for each language, lists of the query's words with their weight (`by_language`). Only
        clips of the videos `video_ids` count (None: all).
        """
        allowed = np.ones(len(self.videos), bool) if video_ids is None else np.isin(self.videos, video_ids)
        occurrences: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        score = np.zeros(len(self.rows))
        best = [np.zeros(0, np.int64)]
        for number, language in enumerate(self.languages):
            own = self.language == number
            if not own.any():
                continue
            clips, mean = int(own.sum()), float(self.length[own].mean())
            for words, weight in lists[language]:
                for word in words:
                    if word not in occurrences:
                        occurrences[word] = self._times(word)
                    places, times = occurrences[word]
                    inside = own[places]
                    places, times = places[inside], times[inside]
                    worth = weight * _rarity(clips, len(places))
                    score[places] += worth * _saturated(times, self.length[places], mean)
            places = np.flatnonzero(own & allowed[self.video] & (score > 0))
            best.append(places[best_places(score[places], k)])
        every = np.concatenate(best)
        table = np.searchsorted(self.offsets, every, side="right") - 1
        of_each = [every[table == number] for number in range(len(self.tables))]
        return [(self.rows[own], score[own].astype(np.float32)) for own in of_each]

    def _times(self, word: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The places of the clips with a word, and how often it occurs in each, computed from BM25 scores."""
        of_tables = [self._times_in(number, word) for number in range(len(self.tables))]
        places, times = zip(*of_tables, strict=True)
        return np.concatenate(places), np.concatenate(times)

    def _times_in(self, number: int, word: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        own = slice(int(self.offsets[number]), int(self.offsets[number + 1]))
        of_table, lengths = self.rows[own], self.length[own]
        rows, score = matching(self.tables[number], [word], len(of_table), Narrowing())
        places = np.searchsorted(of_table, rows)
        share = score / _rarity(len(of_table), len(rows)) / (_K1 + 1)
        mean = lengths.sum() / max(len(lengths), 1)  # a table may have lost all its clips with words
        slowed = _K1 * (1 - _B + _B * lengths[places] / mean)
        times = np.rint(np.clip(share * slowed / np.maximum(1 - share, 1e-9), 1, None))
        return places + own.start, times


def by_language(query: str, languages: Sequence[str]) -> dict[str, list[tuple[Sequence[str], float]]]:
    """For each language two lists of the query's words, single and joined ones, each with its weight."""
    lists: dict[str, list[tuple[Sequence[str], float]]] = {}
    for language in languages:
        alone, joined = words_searched(query, [language] if has_stems(language) else [])
        lists[language] = [(alone, 1.0), (joined, JOINED_WEIGHT)]
    return lists


def _lengths(clips: Any) -> NDArray[np.float64]:
    """The number of words of each clip (n,), without words that are too long for the index."""
    import pyarrow.compute as pc

    contexts = clips["context"].cast("binary")  # to count bytes
    longer = pc.count_substring_regex(contexts, f"[^ ]{{{_TOO_LONG},}}")
    length = pc.subtract(pc.add(pc.count_substring(contexts, " "), 1), longer)
    counts: NDArray[np.float64] = length.to_numpy().astype(np.float64)
    return counts


def _nothing() -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    return np.zeros(0, np.uint64), np.zeros(0, np.float32)


def _rarity(clips: int, having: int) -> float:
    """BM25's weight of a word that `having` of `clips` clips contain."""
    return math.log1p((max(clips - having, 0) + 0.5) / (having + 0.5))


def _saturated(times: Any, length: Any, mean: float) -> Any:
    """BM25's weight of a word that occurs `times` in a clip of `length` words; numbers or arrays."""
    return (_K1 + 1) * times / (times + _K1 * (1 - _B + _B * length / mean))


def _scores(
    clips: Sequence[NDArray[np.int64]], weights: dict[str, float], mean: float
) -> NDArray[np.float32]:
    """The BM25 score of each clip (n,), given its terms; `weights` are by word, `mean` is the mean length."""
    by_term: dict[int, float] = defaultdict(float)
    for word, weight in weights.items():
        by_term[_number_of(word)] += weight
    lengths, terms = np.array([*map(len, clips)]), np.concatenate(clips)
    clip_of = np.repeat(np.arange(len(clips)), lengths)
    scores = np.zeros(len(clips))
    for term, weight in by_term.items():
        times = np.bincount(clip_of[terms == term], minlength=len(clips))
        scores += weight * _saturated(times, lengths, mean)
    return scores.astype(np.float32)
