"""Make ranked sets: for each query the moments with the most similar captions (paper 004, section 3.3).

Nobody judged these moments: their relevance is the cosine of two sentence vectors, clipped at 0; bands of
cosines give grades 0 to 4. A set names its encoder, because systems that use the same one have an advantage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders.protocol import TextEncoder
from whenabouts.intake.files import write_atomically
from whenabouts.types import UsageError
from whenabouts_bench.formats import jsonl
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.json_writing import ListWriter, id_as_number, write_json_value
from whenabouts_bench.relevance.units import comparable, distinct_captions, encoded

BANDS = (0.5, 0.65, 0.8, 0.92)
"""Lower bounds of grades 1 to 4 with the default encoder, chosen by reading; see `docs/relevance.md`."""
_CAPTIONS = 256
_TIED = 1e-6

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class RankedSet:
    """A ranked set: for each query some moments, most similar first.

    Row i pairs the query `query[i]` with the moment of judgement `moment[i]`, whose caption has the
    similarity `similarity[i]`; both index `annotations`. `removed` counts the queries that are not ranked,
    `made_by` is the encoder's fingerprint. Pseudo grades 1 to 4 begin at the encoder-specific `bands`.
    """

    annotations: Annotations
    query: Indices
    moment: Indices
    similarity: Floats
    made_by: str
    removed: int = 0
    bands: tuple[float, ...] = BANDS

    def __len__(self) -> int:
        return len(self.query)

    def grades(self) -> NDArray[np.int64]:
        """(N,) pseudo grades 0 to 4."""
        return np.searchsorted(np.array(self.bands) - _TIED, self.similarity, side="right")

    def judgements(self, about: Mapping[str, Any], *, graded: bool = False) -> Annotations:
        """The pairs as judgements with similarity and caption; the first query's metadata has `about`.

        Relevance is 1, or with `graded` the pseudo grade. All videos of the source are included.
        """
        numbers, query = np.unique(self.query, return_inverse=True)
        queries = [self.annotations.queries[number] for number in numbers.tolist()]
        queries[0] = replace(queries[0], metadata={**queries[0].metadata, "about": dict(about)})
        texts = [query.text for query in self.annotations.queries]
        source, rows = self.annotations, self.moment
        return Annotations(
            name=f"{source.name} ranked",
            videos=source.videos,
            queries=tuple(queries),
            query=query,
            video=source.video[rows],
            start=source.start[rows],
            end=source.end[rows],
            relevance=self.grades().astype(np.float64) if graded else np.ones(len(rows)),
            similarity=np.array([round(value, 6) for value in self.similarity.tolist()]),
            captions=tuple(texts[number] for number in source.query[rows].tolist()),
        )

    def first(self, top: int) -> RankedSet:
        """The set with the `top` first moments of each query."""
        rank = np.arange(len(self)) - np.searchsorted(self.query, self.query)
        kept = rank < top
        columns = {name: getattr(self, name)[kept] for name in ("query", "moment", "similarity")}
        return replace(self, **columns)

    def summary(self, *, graded: bool = False) -> dict[str, Any]:
        """Counts, and the mean similarity or, with `graded`, the pairs of each pseudo grade."""
        queries = len(np.unique(self.query))
        details = {"mean similarity": round(float(self.similarity.mean()), 4)}
        if graded:
            counts = np.bincount(self.grades(), minlength=len(self.bands) + 1)
            details = {f"pairs of pseudo grade {grade}": int(count) for grade, count in enumerate(counts)}
        return {
            "pairs": len(self),
            "queries": queries,
            "queries left out": self.removed,
            "moments": len(np.unique(self.moment)),
            "encoder": self.made_by,
            **details,
        }


def rank_moments(
    annotations: Annotations,
    encoder: TextEncoder,
    top: int,
    *,
    asked_elsewhere: Sequence[str] = (),
    asked_in: Sequence[str] | None = None,
    bands: Sequence[float] = BANDS,
) -> RankedSet:
    """The `top` moments of each query, by the cosine of query and caption, clipped at 0.

    A moment's captions are the queries that it was judged for; the most similar one counts. A query's own
    moments come first; ties have a fixed order. Queries whose text is in `asked_elsewhere` (validation and
    test; ignoring case, blanks and full stops) are left out and counted; their moments stay, as in paper 004.
    `asked_in` ranks only queries with these texts: with the same file for both, training and test sets share
    moments but no query. Raises UsageError if there is nothing to rank.
    """
    if top < 1:
        raise UsageError(f"top {top}: a ranked set needs at least 1 moment a query")
    if len(bands) != len(BANDS) or not all(low < high for low, high in pairwise((0.0, *bands, 1.0))):
        raise UsageError(
            f"bands {', '.join(f'{band:g}' for band in bands)}: expected the {len(BANDS)} similarities "
            "between 0 and 1 at which grades 1, 2, 3 and 4 begin, each higher than the one before"
        )
    usable = np.flatnonzero((annotations.start < annotations.end) & (annotations.relevance > 0))
    captions, caption_of = distinct_captions(annotations.queries)
    left_out = {comparable(text) for text in asked_elsewhere}
    allowed = None if asked_in is None else {comparable(text) for text in asked_in} - left_out
    texts = [comparable(query.text) for query in annotations.queries]
    kept = [
        row
        for row, text in enumerate(texts)
        if (text in allowed if allowed is not None else text not in left_out)
    ]
    if not len(usable) or not kept:
        raise UsageError(f"{annotations.name}: there are no moments, or no queries left, to rank")
    vectors = encoded(captions, encoder)
    ranking = _Ranking.of(annotations, usable, caption_of, vectors, top)
    blocks = list(ranking.blocks(np.array(kept, np.int64)))
    query, moment, similarity = (np.concatenate(column) for column in zip(*blocks, strict=True))
    order = np.argsort(query, kind="stable")
    return RankedSet(
        annotations,
        query=query[order],
        moment=moment[order],
        similarity=similarity[order],
        made_by=encoder.fingerprint,
        removed=len(annotations.queries) - len(kept),
        bands=tuple(bands),
    )


@dataclass(frozen=True)
class _Ranking:
    """R judgements in a total order of their M moments (video id, start, end).

    `rows` (R,) are their indices in the annotations, `first` (M + 1,) each moment's first judgement.
    `caption_of` (Q,) is each query's caption, `caption` (R,) each judgement's, `vectors` (C, D) the
    captions'.
    """

    query: Indices
    rows: Indices
    first: Indices
    caption_of: NDArray[np.int32]
    caption: NDArray[np.int32]
    vectors: Floats
    top: int

    @classmethod
    def of(
        cls, all_: Annotations, usable: Indices, caption_of: NDArray[np.int32], vectors: Floats, top: int
    ) -> Self:
        """The usable judgements of annotations, ordered."""
        names = [video.id for video in all_.videos]
        rank = np.empty(len(names), np.int64)
        rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        moments = (all_.end[usable], all_.start[usable], rank[all_.video[usable]])
        order = np.lexsort(moments)
        new = np.ones(len(order), np.bool_)
        new[1:] = np.any([column[order][1:] != column[order][:-1] for column in moments], axis=0)
        rows = usable[order]
        first = np.append(np.flatnonzero(new), len(rows))
        return cls(all_.query, rows, first, caption_of, caption_of[all_.query[rows]], vectors, top)

    def blocks(self, queries: Indices) -> Iterator[tuple[Indices, Indices, Floats]]:
        """(query, judgement, similarity) of the chosen pairs, best first per query, in blocks of captions."""
        queries = queries[np.argsort(self.caption_of[queries], kind="stable")]
        captions, begins = np.unique(self.caption_of[queries], return_index=True)
        begins = np.append(begins, len(queries))
        for begin in range(0, len(captions), _CAPTIONS):
            rows = captions[begin : begin + _CAPTIONS]
            of_block = queries[begins[begin] : begins[begin + len(rows)]]
            # Distinct captions first, so that equal captions have bitwise equal cosines.
            cosines = np.clip(self.vectors[rows] @ self.vectors.T, 0, 1)[:, self.caption]
            yield self._chosen(of_block, np.searchsorted(rows, self.caption_of[of_block]), cosines)

    def _chosen(self, queries: Indices, row: Indices, cosines: Floats) -> tuple[Indices, Indices, Floats]:
        """The pairs of n queries with captions `row` in `cosines` (B, R): own moments, then the best."""
        best = self._best(cosines)[row]
        own_query, own_place = self._own(queries)
        own_moment = np.searchsorted(self.first, own_place, side="right") - 1
        count, moments = len(self.first) - 1, np.arange(len(queries))[:, None]
        is_own = np.isin(moments * count + best, own_query * count + own_moment)
        other_query, rank = np.nonzero(~is_own)
        other_place = self._nearest(row[other_query], best[other_query, rank], cosines)
        query, place = np.concatenate([own_query, other_query]), np.concatenate([own_place, other_place])
        # The stable sort keeps own moments first.
        order = np.argsort(query, kind="stable")
        query, place = query[order], place[order]
        kept = np.arange(len(query)) - np.searchsorted(query, query) < self.top
        query, place = query[kept], place[kept]
        return queries[query], self.rows[place], cosines[row[query], place]

    def _best(self, cosines: Floats) -> Indices:
        """(B, K) the most similar moments of each caption, best first; ties in order."""
        single = len(self.rows) == len(self.first) - 1
        peaks = cosines if single else np.maximum.reduceat(cosines, self.first[:-1], axis=1)
        count = min(self.top, peaks.shape[1])
        least = np.partition(peaks, -count, axis=1)[:, -count]
        row, moment = np.nonzero(peaks >= least[:, None] - _TIED)
        # Rounded, because cosines of equal texts may differ in the last digit.
        order = np.lexsort((moment, -np.round(peaks[row, moment], 6), row))
        row, moment = row[order], moment[order]
        kept = np.arange(len(row)) - np.searchsorted(row, row) < count
        best: Indices = moment[kept].reshape(len(cosines), count)
        return best

    def _own(self, queries: Indices) -> tuple[Indices, Indices]:
        """(index in `queries`, place) of each query's own distinct moments, in order."""
        number = np.full(len(self.caption_of), -1)
        number[queries] = np.arange(len(queries))
        query = number[self.query[self.rows]]
        place = np.flatnonzero(query >= 0)
        moment = np.searchsorted(self.first, place, side="right") - 1
        _, once = np.unique(query[place] * len(self.first) + moment, return_index=True)
        return query[place[once]], place[once]

    def _nearest(self, row: Indices, moment: Indices, cosines: Floats) -> Indices:
        """(n,) place of each moment's caption most similar to that of a row; the first of ties."""
        begin, captions = self.first[moment], self.first[moment + 1] - self.first[moment]
        if (captions == 1).all():
            return begin
        starts = np.cumsum(captions) - captions
        place = np.repeat(begin - starts, captions) + np.arange(captions.sum())
        values = cosines[np.repeat(row, captions), place]
        highest = np.repeat(np.maximum.reduceat(values, starts), captions)
        return np.minimum.reduceat(np.where(values >= highest - _TIED, place, len(self.rows)), starts)


def write_ranked(ranked: RankedSet, path: Path, *, graded: bool = False) -> None:
    """Write a ranked set in TVR-Ranking's released format or, into a folder, as our JSON lines.

    A file ending in .json is a list of queries with their `relevant_moment`s, as the released program trains
    on; other files have one pair per line. Pairs have `caption` and `similarity`, with `graded` also the
    pseudo grade as `relevance`. The first entry (in a folder, the first query) has `about`: that nobody
    judged the pairs, and how they were made.
    """
    source = Path(ranked.annotations.name).name
    about: dict[str, Any] = {"pseudo": True, "made_by": ranked.made_by, "from": source}
    if graded:
        about["grades begin at a similarity of"] = list(ranked.bands)
    if path.is_dir():
        jsonl.write_annotations(ranked.judgements(about, graded=graded), path)
        return
    nested = path.name.lower().removesuffix(".gz").endswith(".json")
    with write_atomically(path) as stream:
        entries = ListWriter(stream) if nested else None
        stream.write(b"[" if nested else b"")
        for number, (query, pairs) in enumerate(_by_query(ranked, graded)):
            if entries is not None:
                made_by = {"about": about} if number == 0 else {}
                entries.add({**query, "relevant_moment": pairs, **made_by})
                continue
            for pair in pairs:
                made_by = {"about": about} if pair["pair_id"] == 0 else {}
                write_json_value(stream, {"pair_id": pair.pop("pair_id"), **query, **pair, **made_by})
                stream.write(b"\n")
        stream.write(b"]\n" if nested else b"")


def _by_query(ranked: RankedSet, graded: bool) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each query with its pairs, in TVR-Ranking's field names."""
    all_ = ranked.annotations
    begins = np.append(np.flatnonzero(np.diff(ranked.query, prepend=-1)), len(ranked))
    grades = ranked.grades()
    for begin, end in pairwise(begins.tolist()):
        query = all_.queries[int(ranked.query[begin])]
        pairs = []
        for place in range(begin, end):
            row = int(ranked.moment[place])
            video, caption = all_.videos[int(all_.video[row])], all_.queries[int(all_.query[row])].text
            pairs.append(
                {
                    "pair_id": place,
                    "video_name": video.id,
                    "timestamp": [float(all_.start[row]), float(all_.end[row])],
                    **({} if video.duration is None else {"duration": video.duration}),
                    "caption": caption,
                    "similarity": round(float(ranked.similarity[place]), 6),
                    **({"relevance": int(grades[place])} if graded else {}),
                }
            )
        yield {"query_id": id_as_number(query.id), "query": query.text}, pairs
