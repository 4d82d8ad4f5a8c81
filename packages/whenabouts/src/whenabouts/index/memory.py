"""Keeps clips in memory, so that repeated searches do not read a corpus from its files each time.

With 27,424 clips (227 hours of words) an exact search took 26 ms and reading the candidates' clips 68 ms a
query; most of both is saved. A small stream is read whole (0.1 s) when it is searched for the second time
unchanged, so that a single question and an index run pay nothing. A large stream is read once its searches
have cost as much as reading it, if there is room: its index on disk then gives the candidates' row ids only,
and memory has their clips. Vectors are in half precision, as on disk; a small stream's may be in single.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.lookup import (
    CLIP_COLUMNS,
    EXACT_ROWS,
    Narrowing,
    best_places,
    block_of,
    extra_columns,
    matrix_of,
)
from whenabouts.index.records import ClipBlock, ClipHits, StoreError
from whenabouts.index.upkeep import INDEX_ROWS
from whenabouts.resident import machine_bytes, release

MOST_BYTES = 64 << 20
"""A stream is small with fewer than `INDEX_ROWS` clips and at most this many bytes of vectors."""

SHARE_OF_MEMORY = 1 / 8
"""Share of the machine's memory for large streams, in each process, unless `keep_at_most` sets a limit."""

ROWS_A_SEARCH = 10_000
"""A large stream is read after one search per this many clips: reading a million clips took 4 s, and saves
40 ms a search."""

# Text, times and numbers of a clip, roughly: passages have some 150 letters.
_BYTES_BESIDE_VECTOR = 300
# Vectors converted to full precision at a time.
_PIECE = 4096
_NONE = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class StreamSize:
    """Number of clips of a stream, and width of their vectors."""

    rows: int
    dimension: int

    @property
    def is_small(self) -> bool:
        return self.rows < INDEX_ROWS and 2 * self.rows * self.dimension <= MOST_BYTES

    @property
    def is_in_full(self) -> bool:
        """Whether vectors are kept as float32: conversion takes half of the time of an exact search."""
        return self.rows < INDEX_ROWS and 4 * self.rows * self.dimension <= MOST_BYTES

    @property
    def bytes(self) -> int:
        """About how many bytes of memory the stream takes."""
        return self.rows * ((4 if self.is_in_full else 2) * self.dimension + _BYTES_BESIDE_VECTOR)

    @property
    def searches(self) -> int:
        """The number of searches after which it pays to read the stream."""
        return 1 if self.is_small else max(1, self.rows // ROWS_A_SEARCH)


@dataclass(frozen=True, slots=True, eq=False)
class WholeStream:
    """All clips of one stream, videos in order of their ids; `vectors` (n, D) are kept beside the block.

    `lengths` (n,) are the vectors' norms. `clips` (n,) has the position of each clip in the block, in rising
    order of row ids. These come in a few `runs` without a gap: the first id of each and its place in `clips`.
    """

    block: ClipBlock
    vectors: NDArray[np.float16] | NDArray[np.float32]
    lengths: NDArray[np.float32]
    places: dict[str, int]
    runs: tuple[NDArray[np.uint64], NDArray[np.int64]]
    clips: NDArray[np.int64]
    _compared: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = field(default_factory=list)
    """The last query (D,) that all clips were compared with, and the products (n,)."""

    @classmethod
    def read(cls, table: Any, size: StreamSize) -> WholeStream:
        """Read a table of clips whole. Vectors are read in batches, so that only one copy exists."""
        import pyarrow as pa

        columns = [*CLIP_COLUMNS, "text", *extra_columns(table)]
        read = table.search().limit(None).with_row_id(True).select(columns).to_arrow()
        in_order = read.sort_by([("video_id", "ascending"), ("index", "ascending")])
        ids = in_order["video_id"].unique().to_pylist()
        block, rows = block_of(in_order, ids, 0), in_order["_rowid"].to_numpy()
        clips = np.argsort(rows)
        rising = rows[clips]
        vectors = np.zeros((len(rows), size.dimension), np.float16)
        lengths = np.zeros(len(rows), np.float32)
        for batch in table.search().limit(None).with_row_id(True).select(["vector"]).to_batches():
            part = matrix_of(pa.Table.from_batches([batch]), "vector", size.dimension)
            places = clips[np.searchsorted(rising, batch["_rowid"].to_numpy())]
            vectors[places], lengths[places] = part, np.sqrt(np.einsum("ij,ij->i", part, part))
        places_of = {video_id: place for place, video_id in enumerate(ids)}
        if not size.is_small:
            release()
        kept = in_full(vectors) if size.is_in_full else vectors
        runs = np.append(0, np.flatnonzero(np.diff(rising) != 1) + 1)[: len(rising)]
        return cls(block, kept, lengths, places_of, (rising[runs], runs), clips)

    def hits_at(self, rows: NDArray[np.uint64], score: NDArray[np.float32], limit: int) -> ClipHits:
        """The best `limit` of some clips, given by row id and score, as hits. Raises StoreError."""
        return self._best(self._clips_at(rows), score, limit)

    def nearest_among(self, rows: NDArray[np.uint64], query: NDArray[np.float32], k: int) -> ClipHits:
        """The k clips among these row ids with the greatest cosine. Raises StoreError for unknown ids."""
        clips = self._clips_at(rows)
        clips = clips[(self.lengths[clips] > 0) & bool(query.any())]
        return self._best(clips, self._cosines(clips, query), k)

    def _clips_at(self, rows: NDArray[np.uint64]) -> NDArray[np.int64]:
        first, place = self.runs
        run = np.searchsorted(first, rows, side="right") - 1
        lengths = np.diff(np.append(place, len(self.clips))).astype(np.uint64)
        if (run < 0).any() or (rows - first[run] >= lengths[run]).any():
            raise StoreError(
                "an index of the corpus is damaged, it names clips that are not there: restore the corpus "
                "from a copy, or index into a new folder"
            )
        return self.clips[place[run] + (rows - first[run]).astype(np.int64)]

    def _best(self, clips: NDArray[np.int64], score: NDArray[np.float32], k: int) -> ClipHits:
        order = np.lexsort((clips, -score))[:k]
        clips, block = clips[order], self.block
        owner = np.searchsorted(block.offsets, clips, side="right") - 1
        names = [*map(block.video_ids.__getitem__, owner.tolist())]
        return ClipHits(names, block.index[clips], block.start[clips], block.end[clips], score[order])

    def clips_of(self, video_ids: Sequence[str], *, vectors: bool = True) -> ClipBlock:
        """All clips of some videos, as `lookup.clips_of`."""
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
            in_full(taken(self.vectors if vectors else self.vectors[:, :0])),
            None if whole.box is None else taken(whole.box),
            None if whole.recognised is None else taken(whole.recognised),
        )

    def cosines(self, video_ids: Sequence[str], query: NDArray[np.float32]) -> NDArray[np.float32]:
        """The dot products of all clips of some videos with a vector (D,)."""
        rows = [np.arange(part.start, part.stop) for part in self._rows(video_ids)]
        return self._products(np.concatenate([self.clips[:0], *rows]), query)

    def _rows(self, video_ids: Sequence[str]) -> list[slice]:
        places = [self.places.get(video_id) for video_id in video_ids]
        return [slice(0, 0) if place is None else self.block.rows(place) for place in places]

    def nearest(self, query: NDArray[np.float32], k: int, narrowing: Narrowing) -> ClipHits:
        """The k clips of the greatest cosine, by exhaustive search; ties by video id and index."""
        clips = np.flatnonzero(self._allowed(narrowing) & (self.lengths > 0) & bool(query.any()))
        score = self._cosines(clips, query)
        best = best_places(score, k)
        return self._best(clips[best], score[best], k)

    def leaves_few(self, narrowing: Narrowing) -> bool:
        """Whether a filter leaves so few clips that comparing them all is faster than the index."""
        return narrowing.sql is not None and int(self._allowed(narrowing).sum()) <= EXACT_ROWS

    def _cosines(self, clips: NDArray[np.int64], query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Cosines of some clips, each named once, with a query."""
        return self._products(clips, query) / (self.lengths[clips] * np.float32(np.linalg.norm(query)))

    def _products(self, clips: NDArray[np.int64], query: NDArray[np.float32]) -> NDArray[np.float32]:
        """The dot products of some clips with a query; those of all clips are cached for the last query."""
        for compared, dots in self._compared[:]:
            if np.array_equal(compared, query):
                return dots[clips]
        if len(clips) == len(self.vectors):
            dots = _products(self.vectors, query)
            self._compared[:] = [(query.copy(), dots)]
            return dots[clips]
        pieces = (self.vectors[clips[at : at + _PIECE]] for at in range(0, len(clips), _PIECE))
        return np.concatenate([_NONE, *(_products(piece, query) for piece in pieces)])

    def _allowed(self, narrowing: Narrowing) -> NDArray[np.bool_]:
        block = self.block
        allowed = np.ones(len(block), np.bool_)
        if narrowing.video_ids is not None:
            allowed[:] = False
            for place in {self.places[name] for name in narrowing.video_ids if name in self.places}:
                allowed[block.rows(place)] = True
        return allowed


def _products(vectors: NDArray[Any], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """The dot product of each vector with a query; a matrix product could round equal rows differently."""
    pieces = (in_full(vectors[at : at + _PIECE]) for at in range(0, len(vectors), _PIECE))
    return np.concatenate([_NONE, *(np.einsum("ij,j->i", piece, query) for piece in pieces)])


def in_full(halves: NDArray[Any]) -> NDArray[np.float32]:
    """Finite float16 numbers as float32, exact, in a sixth of the time of `astype`; float32 stays as it is.

    The bits of a half are moved to their place in a float32; the exponent is then too small by 112.
    """
    if halves.dtype == np.float32:
        return halves
    bits = halves.view(np.int16).astype(np.int32)
    np.left_shift(bits, 13, out=bits)
    np.bitwise_and(bits, np.int32(-0x70000001), out=bits)
    numbers: NDArray[np.float32] = bits.view(np.float32)
    return np.multiply(numbers, np.float32(2.0**112), out=numbers)


@dataclass(slots=True, eq=False)
class _Kept:
    """A stream in one state: searches left until it is read (-1: no room for it), and the stream if read."""

    state: Hashable
    size: StreamSize
    searches: int
    whole: WholeStream | None = None


class ClipMemory:
    """A cache of whole streams, each until it changes, for all threads.

    All large streams together take at most `most_bytes`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[str, _Kept] = {}
        self.most_bytes = int(SHARE_OF_MEMORY * machine_bytes())

    def drop(self) -> None:
        with self._lock:
            self._streams = {}

    def keep_at_most(self, count: int) -> None:
        """Limit the bytes of large streams from now on; streams already read stay."""
        with self._lock:
            self.most_bytes = count
            self._streams = {name: kept for name, kept in self._streams.items() if kept.whole is not None}

    def stream(self, name: str, state: Hashable) -> WholeStream | None:
        """The stream, if it is cached in this state; does not count as a search."""
        kept = self._streams.get(name)
        return kept.whole if kept is not None and kept.state == state else None

    def searched(
        self,
        name: str,
        state: Hashable,
        size: Callable[[], StreamSize],
        read: Callable[[StreamSize], WholeStream],
    ) -> WholeStream | None:
        """Count a search and return the stream, or None; reads it if this state was searched often enough.

        Other threads do not wait for the reading.
        """
        with self._lock:
            kept = self._streams.get(name)
            if kept is None or kept.state != state:
                self._streams.pop(name, None)
                now = size()
                self._streams[name] = _Kept(state, now, now.searches if self._has_room(now) else -1)
                return None
            if kept.searches < 1:
                return kept.whole
            kept.searches -= 1
            if kept.searches > 0:
                return None
        try:
            kept.whole = read(kept.size)
        except BaseException:
            kept.searches = kept.size.searches  # try again later
            raise
        return kept.whole

    def _has_room(self, size: StreamSize) -> bool:
        if size.is_small:
            return True
        others = (kept.size for kept in self._streams.values() if kept.searches >= 0)
        return size.bytes + sum(other.bytes for other in others if not other.is_small) <= self.most_bytes
