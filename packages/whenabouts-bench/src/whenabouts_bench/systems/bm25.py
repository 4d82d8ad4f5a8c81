"""Rank passages of transcripts by BM25: a baseline without stemming or stop words.

Robertson and Zaragoza, Foundations and Trends in Information Retrieval 3, 2009; k1 = 1.2, b = 0.75.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from whenabouts_bench.harness.system import BenchQuery, BenchVideo
from whenabouts_bench.systems._passages import (
    PASSAGE_SECONDS,
    PassageRanking,
    PassageRows,
    number_setting,
    passages_of,
    with_seconds,
)

NAME = "bm25"
SUMMARY = "BM25 over transcripts; --set seconds=15 is the length of a passage"

_K1, _B = 1.2, 0.75
_WORD = re.compile(r"\w+")


class Bm25:
    """Ranks passages by the words that they share with a query."""

    name = NAME

    def __init__(self, seconds: float) -> None:
        self.revision, self._seconds = with_seconds(f"k1-{_K1}-b-{_B}", seconds), seconds

    def index(self, videos: Sequence[BenchVideo]) -> None:
        """Count the words of passages. Raises UsageError without transcripts."""
        passages = passages_of(videos, self._seconds)
        self._ranking = PassageRanking(passages)
        counts = [Counter(_WORD.findall(passage.text.lower())) for passage in passages]
        lengths = np.array([sum(count.values()) for count in counts], np.float64)
        norm = _K1 * (1 - _B + _B * lengths / max(1.0, float(lengths.mean())))
        postings: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for number, count in enumerate(counts):
            for word, times in count.items():
                rows, often = postings[word]
                rows.append(number)
                often.append(times)
        self._weights = {}
        for word, (rows, often) in postings.items():
            rarity = np.log1p((len(passages) - len(rows) + 0.5) / (len(rows) + 0.5))
            times_, at = np.array(often, np.float64), np.array(rows, np.int64)
            self._weights[word] = (at, rarity * times_ * (_K1 + 1) / (times_ + norm[at]))

    def search(self, queries: Sequence[BenchQuery], k: int) -> list[PassageRows]:
        return [self._search(query, k) for query in queries]

    def _search(self, query: BenchQuery, k: int) -> PassageRows:
        scores = np.zeros(len(self._ranking.passages))
        for word in _WORD.findall(query.text.lower()):
            if word in self._weights:
                rows, weights = self._weights[word]
                scores[rows] += weights
        return self._ranking.best(query, scores, k, least=0.0)

    def texts(self) -> dict[tuple[str, float, float], str]:
        """(video id, start, end) -> words of each passage."""
        return {(p.video_id, p.start, p.end): p.text for p in self._ranking.passages}

    def index_bytes(self) -> int:
        """Bytes of postings and weights."""
        return sum(rows.nbytes + weights.nbytes for rows, weights in self._weights.values())


def make(seconds: str | float = PASSAGE_SECONDS) -> Bm25:
    """The system BM25, with passages of about `seconds` seconds."""
    return Bm25(number_setting("seconds", seconds))
