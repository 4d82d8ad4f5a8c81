"""BM25 with word counts over several tables, or over some videos of a table.

LanceDB scores the clips of a table by that table's counts alone. So the best clips of each table are read and
scored again by the counts of all, with LanceDB's formula and constants; on a single table the scores equal
LanceDB's to 2e-6. More clips are read until even the largest change of score cannot lift an unread one among
the best.
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

from whenabouts.index.lookup import Narrowing, matching
from whenabouts.index.stemming import as_indexed

_K1, _B = 1.2, 0.75
# The index leaves out longer words.
_LONGEST_WORD = 40
# Factor by which more clips are read if the first were not enough.
_WIDER = 4


@lru_cache(maxsize=1 << 17)
def term_of(word: str) -> str:
    """A word of a clip's context as the index writes it: its English stem, without accents."""
    term = as_indexed(word)
    if term.isascii():
        return term
    decomposed = unicodedata.normalize("NFKD", term)
    bare = "".join(sign for sign in decomposed if not unicodedata.combining(sign))
    return unicodedata.normalize("NFKC", bare)


def terms_of(context: str) -> list[str]:
    """The terms of a clip's context, in order."""
    return [term_of(word) for word in context.split(" ") if 0 < len(word) <= _LONGEST_WORD]


@dataclass(eq=False)
class TableWords:
    """Word counts of one table: clips with words, words, and the number of clips with each word.

    `hidden` are videos that another table has too. `clips` and `words` include theirs, because LanceDB scores
    with them; the counts over several tables do not.
    """

    table: Any
    clips: int
    words: int
    hidden_clips: int = 0
    hidden_words: int = 0
    _hidden_with: Mapping[str, int] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Any, hidden: Collection[str] = ()) -> TableWords:
        """Count the words of all clips in one pass."""
        columns = ["context", "video_id"] if hidden else ["context"]
        contexts = table.search().where("context != ''").limit(None).select(columns).to_arrow()
        texts = contexts["context"].to_pylist()
        lengths = [length for text in texts if (length := _length(text))]
        if not hidden:
            return cls(table, len(lengths), sum(lengths))
        names = contexts["video_id"].to_pylist()
        doubles = [
            terms_of(text)
            for text, name in zip(texts, names, strict=True)
            if name in hidden and _length(text)
        ]
        counts = Counter(term for terms in doubles for term in set(terms))
        return cls(table, len(lengths), sum(lengths), len(doubles), sum(map(len, doubles)), counts)

    def clips_with(self, word: str) -> int:
        """Number of clips with a word, derived from the score of the best of them."""
        if word not in self._counts:
            self._counts[word] = self._solved(word)
        return self._counts[word]

    def shown_with(self, word: str) -> int:
        """The same, without hidden clips."""
        return max(0, self.clips_with(word) - self._hidden_with.get(term_of(word), 0))

    def _solved(self, word: str) -> int:
        rows, score = matching(self.table, [word], 1, Narrowing())
        if not len(rows):
            return 0
        [terms] = self.terms_at(rows)
        weight = _saturated(terms.count(term_of(word)), len(terms), self.words / self.clips)
        if weight == 0:  # the index split the words differently
            return int(self.table.count_rows())
        return max(1, round((self.clips + 1) / math.exp(float(score[0]) / weight) - 0.5))

    def terms_at(self, rows: NDArray[np.uint64]) -> list[list[str]]:
        """The terms of some clips, by their row ids."""
        read = self.table.take_row_ids(rows.tolist()).with_row_id().select(["context"]).to_arrow()
        texts = dict(zip(read["_rowid"].to_pylist(), read["context"].to_pylist(), strict=True))
        return [terms_of(texts[row]) for row in rows.tolist()]


@dataclass(frozen=True)
class UnitedWords:
    """Several tables searched as one."""

    tables: Sequence[TableWords]

    def best(
        self, words: Sequence[str], k: int, narrowings: Sequence[Narrowing]
    ) -> list[tuple[NDArray[np.uint64], NDArray[np.float32]]]:
        """For each table the row ids and scores of its clips among the best `k` of all."""
        counts = {word: sum(table.shown_with(word) for table in self.tables) for word in words}
        scored = [
            self._of_table(table, counts, k, narrowing)
            for table, narrowing in zip(self.tables, narrowings, strict=True)
        ]
        every = np.concatenate([score for _, score in scored])
        least = np.partition(every, len(every) - k)[len(every) - k] if len(every) > k else -math.inf
        return [(rows[score >= least], score[score >= least]) for rows, score in scored]

    def _of_table(
        self, searched: TableWords, counts: dict[str, int], k: int, narrowing: Narrowing
    ) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
        """Clips of one table with their overall scores, at least those that may be among the best `k`."""
        if narrowing.impossible:
            return _nothing()
        clips = sum(table.clips - table.hidden_clips for table in self.tables)
        mean = sum(table.words - table.hidden_words for table in self.tables) / max(clips, 1)
        weights = {word: _rarity(clips, count) for word, count in counts.items()}
        widest = max(1.0, mean * searched.clips / max(searched.words, 1))
        change = max(
            (
                widest * weights[word] / _rarity(searched.clips, having)
                for word in counts
                if (having := searched.clips_with(word))
            ),
            default=0.0,
        )
        deep = k
        while True:
            rows, local = matching(searched.table, list(counts), deep, narrowing) if change else _nothing()
            score = _scores(searched.terms_at(rows), weights, mean) if len(rows) else local
            if len(rows) < deep:
                return rows, score
            if np.partition(score, len(score) - k)[len(score) - k] >= change * local.min():
                return rows, score
            deep *= _WIDER


@dataclass(frozen=True, eq=False)
class WordsByLanguage:
    """The clips of a table, scored as if each language had a table to itself.

    A word's rarity is that in the videos of a language, so other languages change no score. Columns (N,) are
    in the order of `rows`, the row ids: number of words, position of the video in `videos`, position of the
    language in `languages`.
    """

    table: Any
    languages: Sequence[str]
    videos: NDArray[np.str_]
    rows: NDArray[np.uint64]
    length: NDArray[np.float64]
    video: NDArray[np.int64]
    language: NDArray[np.int64]

    @classmethod
    def of(cls, table: Any, language_of: Mapping[str, str]) -> WordsByLanguage:
        """Count the words of all clips; `language_of` has each video's language by id."""
        import pyarrow.compute as pc

        query = table.search().where("context != ''").limit(None).select(["video_id", "context"])
        clips = query.with_row_id(True).to_arrow().sort_by("_rowid")
        longer = pc.count_substring_regex(clips["context"], f"[^ ]{{{_LONGEST_WORD + 1},}}")
        length = pc.subtract(pc.add(pc.count_substring(clips["context"], " "), 1), longer)
        videos, video = np.unique(np.array(clips["video_id"].to_pylist(), np.str_), return_inverse=True)
        spoken = [language_of.get(name, "") for name in videos.tolist()]
        languages, language = np.unique(np.array(spoken, np.str_), return_inverse=True)
        return cls(
            table,
            languages.tolist(),
            videos,
            clips["_rowid"].to_numpy(),
            length.to_numpy().astype(np.float64),
            video,
            language[video],
        )

    def best(
        self,
        lists: Mapping[str, Sequence[tuple[Sequence[str], float]]],
        k: int,
        video_ids: Sequence[str] | None = None,
    ) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
        """The best `k` clips of each language by BM25, with their scores; of some videos (None: all).

        `lists` has, for each language, lists of the query's words with a weight.
        """
        allowed = np.ones(len(self.videos), bool) if video_ids is None else np.isin(self.videos, video_ids)
        occurrences: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        score = np.zeros(len(self.rows))
        for number, language in enumerate(self.languages):
            spoken = self.language == number
            clips, mean = int(spoken.sum()), float(self.length[spoken].mean())
            for words, weight in lists[language]:
                for word in words:
                    if word not in occurrences:
                        occurrences[word] = self._times(word)
                    places, times = occurrences[word]
                    inside = spoken[places]
                    places, times = places[inside], times[inside]
                    worth = weight * _rarity(clips, len(places))
                    score[places] += worth * _saturated(times, self.length[places], mean)
        score[~allowed[self.video]] = 0.0
        best = np.concatenate([self._first(score, self.language == n, k) for n in range(len(self.languages))])
        return self.rows[best], score[best].astype(np.float32)

    def _first(self, score: NDArray[np.float64], spoken: NDArray[np.bool_], k: int) -> NDArray[np.int64]:
        """Positions of the best `k` matching clips, with ties of the last."""
        places = np.flatnonzero(spoken & (score > 0))
        if len(places) <= k:
            return places
        least = np.partition(score[places], len(places) - k)[len(places) - k]
        kept: NDArray[np.int64] = places[score[places] >= least]
        return kept

    def _times(self, word: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Positions of the clips with a word, and how often each has it, derived from their scores."""
        rows, score = matching(self.table, [word], len(self.rows), Narrowing())
        places = np.searchsorted(self.rows, rows)
        share = score / _rarity(len(self.rows), len(rows)) / (_K1 + 1)
        slowed = _K1 * (1 - _B + _B * self.length[places] / self.length.mean())
        return places, np.rint(np.clip(share * slowed / np.maximum(1 - share, 1e-9), 1, None))


def _nothing() -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    return np.zeros(0, np.uint64), np.zeros(0, np.float32)


def _length(context: str) -> int:
    return sum(0 < len(word) <= _LONGEST_WORD for word in context.split(" "))


def _rarity(clips: int, having: int) -> float:
    """BM25's weight of a word that `having` of `clips` clips contain."""
    return math.log1p((max(clips - having, 0) + 0.5) / (having + 0.5))


def _saturated(times: Any, length: Any, mean: float) -> Any:
    """BM25's weight of a word that occurs `times` in a clip of `length` words; numbers or arrays."""
    return (_K1 + 1) * times / (times + _K1 * (1 - _B + _B * length / mean))


def _scores(clips: Sequence[Sequence[str]], weights: dict[str, float], mean: float) -> NDArray[np.float32]:
    """BM25 of clips by their terms."""
    by_term: dict[str, float] = defaultdict(float)
    for word, weight in weights.items():
        by_term[term_of(word)] += weight
    scores = []
    for terms in clips:
        times = Counter(term for term in terms if term in by_term)
        scores.append(
            sum(by_term[term] * _saturated(count, len(terms), mean) for term, count in times.items())
        )
    return np.array(scores, np.float32)
