"""Clips of small streams kept in memory: a corpus that is searched again is not read from its files again.

Of 27,424 clips (227 hours of words) an exact search took 26 ms and reading the candidates' clips 68 ms a
query; most of both is saved. A stream is read whole (0.1 s) when it is searched for the second time
unchanged, so that a single question and an index run pay nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.product.index.lookup import CLIP_COLUMNS, Narrowing, block_of, extra_columns
from whenabouts.product.index.records import ClipBlock, ClipHits
from whenabouts.product.index.upkeep import INDEX_ROWS

MOST_BYTES = 128 << 20
"""Vectors of a stream that takes more stay on disk, as do those with a vector index."""


@dataclass(frozen=True, slots=True, eq=False)
class WholeStream:
    """All clips of one stream, videos in order of their ids; `lengths` (n,) are those of the vectors.

    `rows` (n,) are the clips' numbers in the table, rising, and `clips` (n,) where each is in the block.
    """

    block: ClipBlock
    lengths: NDArray[np.float32]
    places: dict[str, int]
    rows: NDArray[np.uint64]
    clips: NDArray[np.int64]

    @classmethod
    def read(cls, table: Any, dimension: int) -> WholeStream:
        """Read a table of clips."""
        columns = [*CLIP_COLUMNS, "text", "vector", *extra_columns(table)]
        read = table.search().limit(None).with_row_id(True).select(columns).to_arrow()
        in_order = read.sort_by([("video_id", "ascending"), ("index", "ascending")])
        ids = in_order["video_id"].unique().to_pylist()
        block, rows = block_of(in_order, ids, dimension), in_order["_rowid"].to_numpy()
        lengths = np.sqrt(np.einsum("ij,ij->i", block.vectors, block.vectors))
        places, clips = {video_id: place for place, video_id in enumerate(ids)}, np.argsort(rows)
        return cls(block, lengths, places, rows[clips], clips)

    def hits_at(self, rows: NDArray[np.uint64], score: NDArray[np.float32], limit: int) -> ClipHits:
        """Clips by their numbers in the table, as hits."""
        clips = self.clips[np.searchsorted(self.rows, rows)]
        order = np.lexsort((clips, -score))[:limit]
        return self._hits(clips[order], score[order])

    def clips_of(self, video_ids: Sequence[str], *, vectors: bool = True) -> ClipBlock:
        """All clips of some videos, as `lookup.clips_of` gives them."""
        whole, rows = self.block, self._rows(video_ids)
        counts = [part.stop - part.start for part in rows]

        def taken(column: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([column[:0], *(column[part] for part in rows)])

        return ClipBlock(
            list(video_ids),
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            taken(whole.index),
            taken(whole.start),
            taken(whole.end),
            [text for part in rows for text in whole.text[part]],
            taken(whole.vectors if vectors else whole.vectors[:, :0]),
            None if whole.box is None else taken(whole.box),
            None if whole.recognised is None else taken(whole.recognised),
        )

    def cosines(self, video_ids: Sequence[str], query: NDArray[np.float32]) -> NDArray[np.float32]:
        """The products of all clips of some videos with a vector (D,); copies no vectors."""
        vectors = self.block.vectors
        parts = [np.einsum("ij,j->i", vectors[rows], query) for rows in self._rows(video_ids)]
        return np.concatenate([vectors[:0, 0], *parts])

    def _rows(self, video_ids: Sequence[str]) -> list[slice]:
        places = [self.places.get(video_id) for video_id in video_ids]
        return [slice(0, 0) if place is None else self.block.rows(place) for place in places]

    def nearest(self, query: NDArray[np.float32], k: int, narrowing: Narrowing) -> ClipHits:
        """The k clips of the greatest cosine, best first, ties by video id and index; all are compared."""
        block, length = self.block, float(np.linalg.norm(query))
        rows = np.flatnonzero(self._allowed(narrowing) & (self.lengths > 0) & (length > 0))
        # Row by row: a product of matrices may round equal rows differently, and ties must stay ties.
        dots = np.einsum("ij,j->i", block.vectors, query)
        score = dots[rows] / (self.lengths[rows] * np.float32(length))
        if len(rows) > k:  # ties with the last stay in
            best = score >= np.partition(score, len(rows) - k)[len(rows) - k]
            rows, score = rows[best], score[best]
        order = np.argsort(-score, kind="stable")[:k]
        return self._hits(rows[order], score[order].astype(np.float32))

    def _hits(self, clips: NDArray[np.int64], score: NDArray[np.float32]) -> ClipHits:
        block = self.block
        owner = np.searchsorted(block.offsets, clips, side="right") - 1
        names = [block.video_ids[place] for place in owner.tolist()]
        return ClipHits(names, block.index[clips], block.start[clips], block.end[clips], score)

    def _allowed(self, narrowing: Narrowing) -> NDArray[np.bool_]:
        block = self.block
        allowed = np.ones(len(block), np.bool_)
        if narrowing.video_ids is not None:
            allowed[:] = False
            for place in {self.places[name] for name in narrowing.video_ids if name in self.places}:
                allowed[block.rows(place)] = True
        if narrowing.after is not None:
            allowed &= block.end > narrowing.after
        if narrowing.before is not None:
            allowed &= block.start < narrowing.before
        return allowed


class ClipMemory:
    """Streams read whole, each for as long as it does not change; several threads may share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[str, tuple[Hashable, WholeStream | None]] = {}

    def drop(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._streams = {}

    def stream(self, name: str, state: Hashable) -> WholeStream | None:
        """The stream, if it is kept in the state it is in now."""
        kept_state, whole = self._streams.get(name, (None, None))
        return whole if kept_state == state else None

    def searched(
        self, name: str, state: Hashable, read: Callable[[], WholeStream | None]
    ) -> WholeStream | None:
        """The same; read now if this state is searched a second time. `read` gives None for what is large."""
        with self._lock:
            kept_state, whole = self._streams.get(name, (None, None))
            if kept_state != state:
                self._streams[name] = state, None
                return None
            if whole is None:
                whole = read()
                self._streams[name] = state, whole
            return whole


def fits(rows: int, dimension: int) -> bool:
    """Whether a stream of so many clips is small enough to be kept."""
    return rows < INDEX_ROWS and rows * dimension * np.dtype(np.float32).itemsize <= MOST_BYTES
