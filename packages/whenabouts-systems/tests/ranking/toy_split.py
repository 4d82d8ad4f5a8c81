"""A split of a toy corpus: queries with words, judgements, and pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import Query, Video
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch

Indices = NDArray[np.int64]
Judged = Sequence[tuple[str, float, float]]


@dataclass
class ToySplit:
    """A `ranking.split.Split` over a `conftest.Toy`."""

    toy: Any
    annotations: Annotations
    name: str = "test"
    asked: list[int] = field(default_factory=list)

    @property
    def queries(self) -> tuple[Query, ...]:
        return self.annotations.queries

    @property
    def videos(self) -> tuple[Video, ...]:
        return tuple(Video(name, None) for name in self.toy.video_ids)

    @property
    def clips(self) -> Indices:
        found: Indices = self.toy.clips
        return found

    @property
    def clip_seconds(self) -> NDArray[np.float64]:
        return np.full(len(self.toy.clips), self.toy.clip_seconds)

    @property
    def durations(self) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.toy.durations
        return found

    def query_batch(self, rows: Indices) -> QueryBatch:
        self.asked += [int(row) for row in rows]
        found: QueryBatch = self.toy.queries(rows)
        return found

    def video_batch(self, rows: Indices) -> ClipBatch:
        found: ClipBatch = self.toy.clips_of(rows)
        return found


def judgements(
    judged: Mapping[str, Judged],
    words: Mapping[str, str] | None = None,
    pools: Mapping[str, Sequence[str]] | None = None,
    name: str = "test",
) -> Annotations:
    """Annotations; a query's words are those given, else its id."""
    collector = AnnotationBuilder(name, cut=False)
    for query, rows in judged.items():
        collector.add_query(query, (words or {}).get(query, f"words of {query}"))
        for video, start, end in rows:
            collector.judge(query, video, start, end)
    for query, pool in (pools or {}).items():
        collector.set_pool(query, pool)
    return collector.annotations()
