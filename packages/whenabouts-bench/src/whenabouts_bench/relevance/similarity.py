"""Textual similarity of queries and videos: the maximum over the sentences that describe a video.

MVMR (paper 001, section 4.1): s_te(q, v) is the largest cosine of q and any sentence of v. Cosines of all
queries and sentences are computed block by block. One bit per query and video is kept, whether the video is
certainly not an answer, and a short list of near sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders.protocol import TextEncoder
from whenabouts.types import Query, UsageError
from whenabouts_bench.relevance.pairs import ROUNDING
from whenabouts_bench.relevance.units import distinct_captions, encoded

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
Progress = Callable[[float], None]

_QUERIES_AT_ONCE = 1024


class SentenceSimilarity(Protocol):
    """Similarities of Q queries with one another; each query is a sentence that describes a video."""

    @property
    def made_by(self) -> str:
        """The sentence encoder's fingerprint."""

    def between(self, queries: Indices, sentences: Indices) -> Floats:
        """(n, S) similarity of queries and sentences, both query indices."""


@dataclass(frozen=True)
class VectorSimilarity:
    """Cosines: `vectors` (C, D) unit, of distinct texts; `caption_of` (Q,) is each query's text."""

    vectors: Floats
    caption_of: NDArray[np.int32]
    made_by: str

    @classmethod
    def of(cls, queries: Sequence[Query], encoder: TextEncoder) -> VectorSimilarity:
        """Encode the distinct texts of queries. Raises UsageError for a query without text."""
        captions, caption_of = distinct_captions(queries)
        return cls(encoded(captions, encoder), caption_of, encoder.fingerprint)

    def between(self, queries: Indices, sentences: Indices) -> Floats:
        rows, columns = self.caption_of[queries], self.caption_of[sentences]
        return np.asarray(self.vectors[rows] @ self.vectors[columns].T, np.float32)


@dataclass(frozen=True)
class Described:
    """S sentences sorted by the video that they describe.

    `sentence` (S,) are query indices, `video` (S,) video indices, `row` (S,) judgement indices; `usable` (S,)
    is whether the judgement has a moment. `videos` is the number of videos; some may have no sentence.
    """

    sentence: Indices
    video: Indices
    row: Indices
    usable: NDArray[np.bool_]
    videos: int


@dataclass(frozen=True)
class Thresholds:
    """The least similarity of a positive video, and the largest of a negative one.

    The paper excludes similarities below t+ and above t-, so an equal one is allowed.
    """

    positive: float = 0.9
    negative: float = 0.5

    def __post_init__(self) -> None:
        if not -1 <= self.negative < self.positive <= 1:
            raise UsageError(
                f"thresholds {self.positive:g} and {self.negative:g}: the positive one must lie above the "
                "negative one, both are cosines in [-1, 1]"
            )

    def reached(self, similarity: Floats) -> NDArray[np.bool_]:
        """Whether each similarity allows a positive. Equal texts reach a threshold of 1."""
        return similarity >= np.float32(self.positive - ROUNDING)

    def avoided(self, similarity: Floats) -> NDArray[np.bool_]:
        """Whether each similarity allows a negative; NaN (undescribed video) does not."""
        return similarity <= np.float32(self.negative + ROUNDING)


@dataclass(frozen=True)
class QueryDistance:
    """Result of the query check for Q queries and V videos.

    `far` (Q, ceil(V / 8)) packed bits: the videos that may be negatives. Query q is near the sentences
    `column[starts[q]:starts[q + 1]]` (ascending places in `Described`) with `similarity`. `histogram` counts
    similarities of every 16th query and all sentences in bins of equal width from -1 to 1.
    """

    far: NDArray[np.uint8]
    starts: Indices
    column: Indices
    similarity: Floats
    histogram: Indices

    def near(self, query: int) -> tuple[Indices, Floats]:
        """(places, similarities) of the sentences near a query."""
        part = slice(int(self.starts[query]), int(self.starts[query + 1]))
        return self.column[part], self.similarity[part]

    def negatives(self, query: int, videos: int) -> Indices:
        """Ascending indices of the videos far from a query."""
        return np.flatnonzero(np.unpackbits(self.far[query], count=videos))


def query_distance(
    similarity: SentenceSimilarity,
    described: Described,
    queries: int,
    thresholds: Thresholds,
    *,
    progress: Progress = lambda share: None,
) -> QueryDistance:
    """The query check of all queries, in blocks.

    Memory: Q * V / 8 bytes of bits (10 MB for ActivityNet Captions), 12 bytes per near sentence, and a block.
    """
    far = np.zeros((queries, -(-described.videos // 8)), np.uint8)
    near: list[tuple[Indices, Indices, Floats]] = []
    histogram = np.zeros(BINS, np.int64)
    for begin in range(0, queries, _QUERIES_AT_ONCE):
        rows = np.arange(begin, min(begin + _QUERIES_AT_ONCE, queries))
        cosines = similarity.between(rows, described.sentence)
        nearest = _of_videos(cosines, described)
        far[rows] = np.packbits(thresholds.avoided(nearest), axis=1)
        row, column = np.nonzero(thresholds.reached(cosines) & described.usable)
        near.append((row + begin, column, cosines[row, column]))
        places = ((cosines[:: max(1, _QUERIES_AT_ONCE // 64)].ravel() + 1) * (BINS / 2)).astype(np.int64)
        histogram += np.bincount(np.clip(places, 0, BINS - 1), minlength=BINS)
        progress(float(rows[-1] + 1) / queries)
    query, column, values = (np.concatenate(part) for part in zip(*near, strict=True))
    starts = np.searchsorted(query, np.arange(queries + 1))
    return QueryDistance(far, starts, column, values, histogram)


BINS = 80
"""The number of histogram bins from -1 to 1."""


def _of_videos(cosines: Floats, described: Described) -> Floats:
    """(n, V) the largest similarity with any sentence of each video; NaN without a sentence."""
    begins = np.flatnonzero(np.diff(described.video, prepend=-1))
    nearest = np.full((len(cosines), described.videos), np.nan, np.float32)
    nearest[:, described.video[begins]] = np.maximum.reduceat(cosines, begins, axis=1)
    return nearest


def most_similar_per_video(
    column: Indices, similarity: Floats, described: Described
) -> tuple[Indices, Floats]:
    """(places, similarities) of the most similar near sentence of each video, the first of equals."""
    video = described.video[column]
    order = np.lexsort((column, -similarity, video))
    first = order[np.flatnonzero(np.diff(video[order], prepend=-1))]
    return column[first], similarity[first]


def nearest_of(
    similarity: SentenceSimilarity, described: Described, queries: Indices
) -> Iterator[tuple[Indices, Floats]]:
    """(queries, (n, V) s_te) in blocks; NaN for undescribed videos."""
    for begin in range(0, len(queries), _QUERIES_AT_ONCE):
        rows = queries[begin : begin + _QUERIES_AT_ONCE]
        yield rows, _of_videos(similarity.between(rows, described.sentence), described)
