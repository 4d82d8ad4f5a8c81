"""Rank passages by BM25 and by sentence vectors, and fuse both ranks.

Reciprocal rank fusion: a passage scores the sum of 1 / (60 + rank) over both lists (Cormack, Clarke and
Büttcher, SIGIR 2009).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from whenabouts_bench.harness.system import BenchQuery, BenchVideo
from whenabouts_bench.systems import bm25, sentences
from whenabouts_bench.systems._passages import PASSAGE_SECONDS, PassageRows

NAME = "fusion"
SUMMARY = "BM25 and sentence vectors, fused by rank; settings of both"

_CONSTANT = 60


class Fusion:
    """Ranks passages by their ranks in two lists."""

    name = NAME

    def __init__(self, lexical: bm25.Bm25, dense: sentences.Sentences) -> None:
        self._parts = (lexical, dense)
        self.revision = f"rrf-{_CONSTANT}-{dense.revision}"

    def index(self, videos: Sequence[BenchVideo]) -> None:
        """Index for both parts."""
        for part in self._parts:
            part.index(videos)

    def search(self, queries: Sequence[BenchQuery], k: int) -> list[PassageRows]:
        lists = [part.search(queries, k) for part in self._parts]
        return [_fused(rows, k) for rows in zip(*lists, strict=True)]

    def index_bytes(self) -> int:
        """Bytes of both parts."""
        return sum(part.index_bytes() for part in self._parts)


def _fused(lists: Sequence[PassageRows], k: int) -> PassageRows:
    scores: dict[tuple[str, float, float], float] = defaultdict(float)
    for rows in lists:
        for rank, (video, start, end, _) in enumerate(rows, 1):
            scores[video, start, end] += 1 / (_CONSTANT + rank)
    best = sorted(scores.items(), key=lambda row: (-row[1], row[0]))[:k]
    return [(*moment, score) for moment, score in best]


def make(encoder: str | None = None, seconds: str | float = PASSAGE_SECONDS) -> Fusion:
    """The system. Raises EncoderUnavailable."""
    return Fusion(bm25.make(seconds), sentences.make(encoder, seconds))
