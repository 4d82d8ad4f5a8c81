"""Chooses how much of a vector index is searched (`Effort`), by the recall of sample queries.

The partitions nearest to a sentence need not hold its nearest pictures: sentences lie outside the cone of the
pictures, where all partitions are about equally far. A fixed share of the partitions that finds nearly all
neighbours of a clip therefore misses many of a sentence, and more in a larger corpus. So once an index is
trained, its stream is searched exactly with sample queries of the stream's kind, and the least effort that
finds `AIM` of their nearest clips is stored with the index.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.index import lookup
from whenabouts.index.lookup import CLIPS_EFFORT, Narrowing, matrix_of
from whenabouts.index.memory import in_full
from whenabouts.index.vector_index import MOST_REFINE, Effort, VectorIndex

AIM = 0.95
"""Share of the `NEAREST` clips of a query that an index should find, on average."""
NEAREST = 20
QUERIES = 64
"""Greatest number of sample queries. The mean recall of 64 has a standard error of about 0.01."""

_SHARES = tuple(round(CLIPS_EFFORT.share + 0.05 * step, 2) for step in range(19))
# Two ways to compute one cosine differ by less.
_ROUNDING = 1e-5


def with_effort(table: Any, index: VectorIndex, queries: NDArray[np.float32] | None = None) -> VectorIndex:
    """`index`, with the least effort that finds `AIM` of the nearest clips, and the recall of that effort.

    At most `QUERIES` of `queries` (N, D) are searched; None: clips of the table. If no effort is enough, the
    greatest is taken. Without a query other than zero, `index` is returned as it is.
    """
    samples = _clips(table) if queries is None else queries
    samples = _spread(samples[np.linalg.norm(samples, axis=1) > 0])
    if not len(samples):
        return index
    last = _last_scores(table, samples)

    @cache
    def recall(effort: Effort) -> float:
        near = 0
        for query, score in zip(samples, last.tolist(), strict=True):
            hits = lookup.nearest(
                table, query, effort.answers, narrowing=Narrowing(), index=index, videos=int, effort=effort
            )
            near += int((hits.score[:NEAREST] >= score - _ROUNDING).sum())
        return near / (NEAREST * len(samples))

    efforts = [replace(CLIPS_EFFORT, share=1.0, refine=refine) for refine in (2, 4, MOST_REFINE)]
    best = next((effort for effort in efforts if recall(effort) >= AIM), efforts[-1])
    if recall(best) >= AIM:
        efforts = [replace(best, share=share) for share in _SHARES]
        best = efforts[bisect_left(efforts, AIM, hi=len(efforts) - 1, key=recall)]
    return replace(index, effort=best, recall=recall(best), by_clips=queries is None)


def _spread(rows: NDArray[Any]) -> NDArray[Any]:
    """At most `QUERIES` of some rows, evenly spread."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, QUERIES).astype(int))] if len(rows) else rows


def _clips(table: Any) -> NDArray[np.float32]:
    """Vectors of clips, evenly spread over a table."""
    offsets = _spread(np.arange(table.count_rows()))
    rows = table.take_offsets(offsets.tolist()).select(["vector"]).to_arrow()
    return matrix_of(rows, "vector", table.schema.field("vector").type.list_size)


def _last_scores(table: Any, queries: NDArray[np.float32]) -> NDArray[np.float32]:
    """The cosine (N,) of each query's clip number `NEAREST`, by comparing all clips."""
    units = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    best = np.full((len(units), NEAREST), -1.0, np.float32)
    for batch in table.search().limit(None).select(["vector"]).to_batches():
        halves = batch.drop_null()["vector"].flatten().to_numpy(zero_copy_only=False)
        vectors = in_full(halves.reshape(-1, units.shape[1]))
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        cosines = (units @ vectors.T)[:, lengths > 0] / lengths[lengths > 0]
        best = np.partition(np.hstack([best, cosines]), -NEAREST, axis=1)[:, -NEAREST:]
    least: NDArray[np.float32] = best.min(axis=1)
    return least
