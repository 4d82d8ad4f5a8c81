"""Ranked sets of captions: for each query the moments whose captions are most like it (paper 004, 3.3).

Nobody judged these moments: their relevance is the cosine of two sentence vectors, cut at 0. As grades from
0 to 4 the cosines fall into bands. A set says by which encoder it was made, for a system that reads queries
with the same one has an advantage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders.protocol import TextEncoder
from whenabouts.formats.annotations import Annotations
from whenabouts.formats.files import write_atomically
from whenabouts.research.relevance.units import distinct_captions, encoded
from whenabouts.types import UsageError

BANDS = (0.5, 0.65, 0.8, 0.92)
"""Where grades 1, 2, 3 and 4 begin with the default encoder: chosen by reading, see `docs/relevance.md`."""
_CAPTIONS = 256
_TIED = 1e-6

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class RankedSet:
    """For each query some moments, the most similar first.

    `annotations` are what moments and queries are taken from; row i says that the moment of its judgement
    `moment[i]` has a caption of `similarity[i]` to query `query[i]`. `removed` counts queries that were left
    out because they are asked elsewhere, `made_by` is the encoder's fingerprint.
    """

    annotations: Annotations
    query: Indices
    moment: Indices
    similarity: Floats
    made_by: str
    removed: int = 0

    def __len__(self) -> int:
        return len(self.query)

    def grades(self, bands: Sequence[float] = BANDS) -> NDArray[np.int64]:
        """(N,) pseudo grades 0 to 4: how many of the bands a similarity reaches."""
        return np.searchsorted(np.array(bands) - _TIED, self.similarity, side="right")

    def summary(self, *, graded: bool = False) -> dict[str, Any]:
        """Counts for people and programs."""
        queries = len(np.unique(self.query))
        held = {"mean similarity": round(float(self.similarity.mean()), 4)}
        if graded:
            counts = np.bincount(self.grades(), minlength=len(BANDS) + 1)
            held = {f"pairs of pseudo grade {grade}": int(count) for grade, count in enumerate(counts)}
        return {
            "pairs": len(self),
            "queries": queries,
            "queries left out": self.removed,
            "moments": len(np.unique(self.moment)),
            "encoder": self.made_by,
            **held,
        }


def rank_moments(
    annotations: Annotations,
    encoder: TextEncoder,
    top: int,
    *,
    asked_elsewhere: Sequence[str] = (),
    asked_in: Sequence[str] | None = None,
) -> RankedSet:
    """The `top` moments of each query, by the cosine of query and caption, below 0 cut to 0.

    A moment's caption is the query that it was judged for; of several captions the most similar counts, and
    the moment comes once. A query's own moments come first, then those of
    equal captions; the order is total. Queries whose text is among `asked_elsewhere` (those of validation and
    test; case, blanks and a full stop do not count) are left out and counted; their moments stay, as in
    paper 004. `asked_in` ranks no query but those whose text is among these, compared likewise: with the same
    file for both, the sets to train on and to test on know the same moments and share no query, as those of
    paper 004. Raises UsageError where there is nothing to rank.
    """
    if top < 1:
        raise UsageError(f"top {top}: a ranked set needs at least 1 moment a query")
    usable = np.flatnonzero((annotations.start < annotations.end) & (annotations.relevance > 0))
    captions, caption_of = distinct_captions(annotations.queries)
    left_out = {_same(text) for text in asked_elsewhere}
    allowed = None if asked_in is None else {_same(text) for text in asked_in} - left_out
    texts = [_same(query.text) for query in annotations.queries]
    kept = [
        row
        for row, text in enumerate(texts)
        if (text in allowed if allowed is not None else text not in left_out)
    ]
    if not len(usable) or not kept:
        raise UsageError(f"{annotations.name}: there are no moments, or no queries left, to rank")
    vectors = encoded(captions, encoder)
    ranking = _Ranking(annotations, usable, caption_of[annotations.query[usable]], vectors, top)
    rows = sorted(ranking.of(np.array(kept, np.int64), caption_of), key=lambda row: row[0])
    return RankedSet(
        annotations,
        query=np.concatenate([np.full(len(moments), query) for query, moments, _ in rows]),
        moment=np.concatenate([moments for _, moments, _ in rows]),
        similarity=np.concatenate([values for _, _, values in rows]),
        made_by=encoder.fingerprint,
        removed=len(annotations.queries) - len(kept),
    )


@dataclass(frozen=True)
class _Ranking:
    """`usable` (M,) judgements with a moment, `caption` (M,) of each, `vectors` (C, D) of captions."""

    annotations: Annotations
    usable: Indices
    caption: NDArray[np.int32]
    vectors: Floats
    top: int

    def of(self, queries: Indices, caption_of: NDArray[np.int32]) -> Iterator[tuple[int, Indices, Floats]]:
        """(query, judgements, similarities) of each query, captions compared in blocks."""
        order = self._total_order()
        place = np.argsort(order)
        first = self._first_of_each_moment(order)
        moment_of = np.cumsum(np.isin(np.arange(len(order)), first)) - 1
        own_of = _grouped(self.annotations.query[self.usable], len(self.annotations.queries))
        captions, caption = np.unique(caption_of[queries], return_inverse=True)
        queries_of = _grouped(caption, len(captions))
        for begin in range(0, len(captions), _CAPTIONS):
            rows = captions[begin : begin + _CAPTIONS]
            cosines = np.clip(self.vectors[rows] @ self.vectors.T, 0, 1)[:, self.caption[order]]
            peaks = np.maximum.reduceat(cosines, first, axis=1)
            for number, values in enumerate(cosines):
                best = self._best(peaks[number])
                for query in queries[queries_of[begin + number]].tolist():
                    own = np.sort(place[own_of[query]])
                    others = best[~np.isin(best, moment_of[own])]
                    nearest = [_nearest(values, first, moment) for moment in others.tolist()]
                    chosen = np.array([*own.tolist(), *nearest], np.int64)[: self.top]
                    yield query, self.usable[order[chosen]], values[chosen].astype(np.float32)

    def _first_of_each_moment(self, order: Indices) -> Indices:
        """Where in the total order each moment begins: one moment may have several captions."""
        all_, rows = self.annotations, self.usable[order]
        same = np.ones(len(rows), np.bool_)
        for column in (all_.video[rows], all_.start[rows], all_.end[rows]):
            same[1:] &= column[1:] == column[:-1]
        same[0] = False
        return np.flatnonzero(~same)

    def _total_order(self) -> Indices:
        """Moments by video id, start and end: what comes first where similarities are equal."""
        all_, rows = self.annotations, self.usable
        names = [all_.videos[video].id for video in all_.video[rows].tolist()]
        rank = {name: number for number, name in enumerate(sorted(set(names)))}
        ranks = np.array([rank[name] for name in names])
        return np.lexsort((all_.end[rows], all_.start[rows], ranks))

    def _best(self, values: Floats) -> Indices:
        """Enough of the highest places, highest first; equal ones in their order."""
        count = min(self.top, len(values))
        least = -np.partition(-values, count - 1)[count - 1]
        rows = np.flatnonzero(values >= least - _TIED)
        # Cosines of equal texts differ in their last digit; they are one similarity.
        return rows[np.argsort(-np.round(values[rows], 6), kind="stable")][: self.top]


def write_ranked(ranked: RankedSet, path: Path, *, graded: bool = False) -> None:
    """Write one pair a line, in the layout of TVR-Ranking, so that every reader of it reads this.

    `relevance` is the similarity, or with `graded` the pseudo grade. The first line has besides `about`,
    which says that nobody judged the pairs and what they were made by.
    """
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    with write_atomically(path) as stream:
        for line in _lines(ranked, graded):
            stream.write(encode(line).encode() + b"\n")


def _lines(ranked: RankedSet, graded: bool) -> Iterator[dict[str, Any]]:
    from_ = ranked.annotations
    about: dict[str, Any] = {"pseudo": True, "made_by": ranked.made_by, "from": from_.name}
    if graded:
        about["grades begin at a similarity of"] = list(BANDS)
    columns = (ranked.query, ranked.moment, ranked.similarity, ranked.grades())
    for number, (query, moment, similarity, grade) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        video = from_.videos[int(from_.video[moment])]
        similarity = round(similarity, 6)
        yield {
            "pair_id": number,
            "query_id": from_.queries[query].id,
            "query": from_.queries[query].text,
            "video_name": video.id,
            "timestamp": [float(from_.start[moment]), float(from_.end[moment])],
            **({} if video.duration is None else {"duration": video.duration}),
            "caption": from_.queries[int(from_.query[moment])].text,
            "similarity": similarity,
            "relevance": grade if graded else similarity,
            **({"about": about} if number == 0 else {}),
        }


def _nearest(values: Floats, first: Indices, moment: int) -> int:
    """The place of the caption of a moment that is most like the query."""
    begin = int(first[moment])
    end = int(first[moment + 1]) if moment + 1 < len(first) else len(values)
    return begin + int(np.argmax(values[begin:end]))


def _same(text: str) -> str:
    """What two equal queries have in common."""
    return " ".join(text.lower().split()).rstrip(" .")


def _grouped(keys: NDArray[np.integer[Any]], count: int) -> list[Indices]:
    """The rows of each key 0 .. count - 1, rising."""
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.searchsorted(keys[order], np.arange(1, count)))
