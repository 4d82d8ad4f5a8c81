"""Searches several corpora as one, for example one per year or per folder, on different disks or stores.

Results are merged exactly: nearest clips, words by counts over all tables (`word_statistics.py`), ledgers and
facts. Each corpus is written by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts.index.handle import SideTable
from whenabouts.index.ledger import Ledger
from whenabouts.index.lock import Holder
from whenabouts.index.lookup import (
    JOINED_WEIGHT,
    Narrowing,
    among,
    best_hits,
    no_hits,
    summed_hits,
    words_searched,
)
from whenabouts.index.parts import SearchedTable
from whenabouts.index.records import (
    ClipBlock,
    ClipHits,
    EncoderMismatch,
    StreamInfo,
    StreamStats,
    VideoRecord,
)
from whenabouts.index.store import Store
from whenabouts.index.word_statistics import TableWords, UnitedWords, by_language
from whenabouts.types import UsageError

_ScoredRows = list[tuple[NDArray[np.uint64], NDArray[np.float32]]]


class SideBySide(Store):
    """Several stores, read as one. `kept` are facts about all of them together, in memory only.

    A video that is in several stores, by id or by content, is taken from the first. Raises EncoderMismatch if
    two stores made a stream with different encoders.
    """

    def __init__(self, stores: Sequence[Store], kept: dict[str, Mapping[str, Any]] | None = None) -> None:
        self.stores = tuple(stores)
        self.place = ", ".join(store.place for store in stores)
        self._kept = {} if kept is None else kept
        self._merged: tuple[tuple[int, ...], Ledger, tuple[frozenset[str], ...]] | None = None
        self._words: dict[tuple[str, int], tuple[Any, TableWords]] = {}
        self._words_by_language = {}
        self._check()

    def _check(self) -> None:
        for name in self.streams:
            infos = {store.streams[name].fingerprint: store for store in self._having(name)}
            if len(infos) > 1:
                first, other = list(infos.values())[:2]
                made = " and with ".join(
                    f"{store.streams[name].encoder} ({store.streams[name].fingerprint}) in {store.place}"
                    for store in (first, other)
                )
                raise EncoderMismatch(
                    f"stream {name} was made with {made}; index one of them again with the encoder of the "
                    "other, or search each by itself"
                )

    def _having(self, stream: str) -> list[Store]:
        return [store for store in self.stores if stream in store.streams]

    def beside(self) -> SideBySide:
        return SideBySide([store.beside() for store in self.stores], self._kept)

    def drop_kept(self) -> None:
        for store in self.stores:
            store.drop_kept()
        self._merged, self._words = None, {}

    def keep_at_most(self, count: int) -> None:
        """Limit the bytes of large streams of all stores together."""
        for store in self.stores:
            store.keep_at_most(count // len(self.stores))

    def refresh(self) -> None:
        before = self.description_version
        for store in self.stores:
            store.refresh()
        if self.description_version != before:
            self._check()

    # All versions only grow, so their sum changes with any of them.

    @property
    def moves(self) -> int:  # type: ignore[override]
        return sum(store.moves for store in self.stores)

    @property
    def version(self) -> int:
        return sum(store.version for store in self.stores)

    @property
    def description_version(self) -> int:  # type: ignore[override]
        return sum(store.description_version for store in self.stores) + len(self._kept)

    def state_of(self, stream: str) -> tuple[int, int]:
        states = [store.state_of(stream) for store in self._having(stream)]
        return sum(first for first, _ in states), sum(second for _, second in states)

    @property
    def streams(self) -> Mapping[str, StreamInfo]:
        return {name: info for store in reversed(self.stores) for name, info in store.streams.items()}

    def stream(self, name: str) -> StreamInfo:
        if name not in self.streams:
            existing = ", ".join(sorted(self.streams)) or "none"
            raise UsageError(f"{self.place} have no stream {name!r}; they have {existing}")
        return self.streams[name]

    @property
    def sides(self) -> Mapping[str, SideTable]:
        """Empty: tables of trained systems are searched in each corpus by itself."""
        return {}

    def fact(self, key: str) -> Mapping[str, Any] | None:
        """The fact about all corpora together, else the facts of each, merged."""
        if key in self._kept or key.startswith("calibration:"):
            return self._kept.get(key)
        return reduce(_merged, (store.fact(key) for store in self.stores))

    def facts(self, prefix: str) -> dict[str, Mapping[str, Any]]:
        keys = dict.fromkeys(key for store in self.stores for key in store.facts(prefix))
        return {key: fact for key in keys if (fact := self.fact(key)) is not None}

    def keep_fact(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep a measurement of all corpora together, in memory only."""
        self._kept[key] = dict(value)

    @property
    def kept(self) -> Mapping[str, Mapping[str, Any]]:
        """The measurements of all corpora together, by key."""
        return self._kept

    def writing(  # type: ignore[override]
        self, *, wait: float = 0.0, on_wait: Callable[[Holder | None], None] | None = None
    ) -> AbstractContextManager[None]:
        """Raise UsageError: corpora are written one by one."""
        raise UsageError(f"{self.place} are searched side by side; change each of them by itself")

    def ledger(self) -> Ledger:
        """The rows of all corpora, in order of their id, each video once."""
        return self._together()[0]

    @property
    def doubles(self) -> dict[str, int]:
        """The number of videos of each place that are hidden, because an earlier corpus has them too."""
        hidden = self._together()[1]
        return {store.place: len(ids) for store, ids in zip(self.stores, hidden, strict=True) if ids}

    def _together(self) -> tuple[Ledger, tuple[frozenset[str], ...]]:
        """The merged ledger, and for each store the ids of videos that an earlier one has too."""
        ledgers = [store.ledger() for store in self.stores]
        versions = tuple(store.version for store in self.stores)
        if self._merged is None or self._merged[0] != versions:
            rows: dict[str, VideoRecord] = {}
            contents = set[str]()
            hidden = []
            for ledger in ledgers:
                repeated = [
                    row for row in ledger.records if row.video_id in rows or row.content_hash in contents
                ]
                hidden.append(frozenset(row.video_id for row in repeated))
                rows |= {row.video_id: row for row in ledger.records if row.video_id not in hidden[-1]}
                contents |= {row.content_hash for row in ledger.records if row.content_hash}
            in_order = sorted(rows.values(), key=lambda row: row.video_id)
            self._merged = versions, Ledger(tuple(in_order)), tuple(hidden)
        return self._merged[1:]

    def _hidden(self, store: Store) -> frozenset[str]:
        return self._together()[1][self.stores.index(store)]

    def _own(self, store: Store, video_ids: Sequence[str] | None) -> Sequence[str] | None:
        """The videos among `video_ids` (None: all) that a store may answer with; None: all it has."""
        hidden = self._hidden(store)
        if not hidden:
            return video_ids
        names = store.ledger().by_id if video_ids is None else video_ids
        return [name for name in names if name not in hidden]

    def videos(self, video_ids: Sequence[str] | None = None) -> list[VideoRecord]:
        ledger = self.ledger()
        return list(ledger.records) if video_ids is None else ledger.of(video_ids)

    def holding(self, video_id: str) -> Store:
        return next(
            store
            for store in self.stores
            if video_id in store.ledger().by_id and video_id not in self._hidden(store)
        )

    def ledger_columns(self, names: Sequence[str]) -> list[tuple[str, Any]]:
        return [
            (place, self._shown(store, table))
            for store in self.stores
            for place, table in store.ledger_columns(names)
        ]

    def _shown(self, store: Store, table: Any) -> Any:
        """The rows of an Arrow table of one store that do not belong to hidden videos."""
        import pyarrow.compute as pc

        hidden = list(self._hidden(store))
        return table.filter(~pc.field("video_id").isin(hidden)) if hidden else table

    def _stream_stats(self, stream: str) -> StreamStats:
        stores = self._having(stream)
        every = [store._stream_stats(stream) for store in stores]
        return StreamStats(
            sum(stats.clips for stats in every) - sum(self._hidden_clips(store, stream) for store in stores),
            sum(stats.fragments for stats in every),
            sum(stats.unindexed for stats in every),
            any(stats.vector_index for stats in every),
            min((stats.recall for stats in every if stats.recall is not None), default=None),
        )

    def _bytes(self) -> int | None:
        sizes = [store._bytes() for store in self.stores]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def _hidden_clips(self, store: Store, stream: str) -> int:
        hidden = self._hidden(store)
        return int(store._clips(stream).count_rows(among("video_id", hidden))) if hidden else 0

    def nearest(
        self,
        stream: str,
        vector: ArrayLike,
        k: int,
        *,
        video_ids: Sequence[str] | None = None,
        exact: bool = False,
        like_clips: bool = False,
    ) -> ClipHits:
        self.stream(stream)
        near = [
            store.nearest(
                stream,
                vector,
                k,
                video_ids=self._own(store, video_ids),
                exact=exact,
                like_clips=like_clips,
            )
            for store in self._having(stream)
        ]
        return best_hits(near, k)

    def nearest_of_each(self, stream: str, vectors: Sequence[ArrayLike], k: int) -> list[ClipHits] | None:
        """The results of `nearest` for each vector, if every store can find them together; else None."""
        if self.doubles:
            return None
        hits_of_each = [store.nearest_of_each(stream, vectors, k) for store in self._having(stream)]
        exact = [hits for hits in hits_of_each if hits is not None]
        if len(exact) < len(hits_of_each):
            return None
        return [best_hits(lists, k) for lists in zip(*exact, strict=True)]

    def match_text(
        self,
        stream: str,
        query: str,
        k: int,
        *,
        video_ids: Sequence[str] | None = None,
        parts: bool = False,
    ) -> ClipHits:
        """The k clips whose words match best, as `Store.match_text`, with word counts over all corpora."""
        self.stream(stream)
        narrowing = Narrowing(video_ids)
        languages = self.ledger().stemmed_languages
        stores = [store for store in self._having(stream) if store._has_words(stream)]
        if k < 1 or narrowing.impossible or not stores:
            return no_hits()
        narrowings = [replace(narrowing, video_ids=self._own(store, video_ids)) for store in stores]
        words = self._words_of_languages(
            stream, [store._clips(stream) for store in stores], [self._hidden(store) for store in stores]
        )
        if words is None:
            hits = self._matched(stream, stores, words_searched(query, languages), k, narrowings)
        else:
            best = words.best(by_language(query, words.languages), k, video_ids)
            hits = _hits(stream, stores, best, sum(len(rows) for rows, _ in best))
        tables = [
            SearchedTable(store._clips(stream), allowed, self._hidden_clips(store, stream))
            for store, allowed in zip(stores, narrowings, strict=True)
        ]
        every = self._with_parts(hits, tables, query, k, languages, parts=parts)
        for store in stores:
            every = store._finished(every)
        return every

    def _matched(
        self,
        stream: str,
        stores: Sequence[Store],
        searched: tuple[list[str], list[str]],
        k: int,
        narrowings: Sequence[Narrowing],
    ) -> ClipHits:
        """The k clips of all tables that match best, as `lookup.match` finds them in one table."""
        words, joined = searched
        if not words:
            return no_hits()
        united = UnitedWords([self._table_words(stream, store) for store in stores])
        hits = _hits(stream, stores, united.best(words, k, narrowings), k)
        if not joined:
            return hits
        best = united.best(joined, k, narrowings)
        scored = [(rows, np.float32(JOINED_WEIGHT) * score) for rows, score in best]
        return summed_hits(hits, _hits(stream, stores, scored, k), k)

    def _table_words(self, stream: str, store: Store) -> TableWords:
        """Word counts of one table, counted again when the table has changed."""
        hidden = self._hidden(store)
        key, state = (stream, self.stores.index(store)), (store.state_of(stream), hidden)
        kept = self._words.get(key)
        if kept is None or kept[0] != state:
            kept = self._words[key] = state, TableWords.of(store._clips(stream), hidden)
        return kept[1]

    def clips_of(self, stream: str, video_ids: Sequence[str], *, vectors: bool = True) -> ClipBlock:
        return self._gathered(
            stream, video_ids, lambda store, ids: store.clips_of(stream, ids, vectors=vectors)
        )

    def clips_at(
        self, stream: str, seconds: Sequence[float], video_ids: Sequence[str], *, vectors: bool = False
    ) -> ClipBlock:
        return self._gathered(
            stream, video_ids, lambda store, ids: store.clips_at(stream, seconds, ids, vectors=vectors)
        )

    def compared(
        self, stream: str, video_ids: Sequence[str], vector: NDArray[np.float32]
    ) -> tuple[ClipBlock, NDArray[np.float32]]:
        def read(store: Store, ids: list[str]) -> ClipBlock:
            block, products = store.compared(stream, ids, vector)
            return replace(block, vectors=products[:, None])  # ordered with the clips, in place of vectors

        block = self._gathered(stream, video_ids, read)
        return replace(block, vectors=block.vectors[:, :0]), block.vectors[:, 0]

    def _gathered(
        self, stream: str, video_ids: Sequence[str], read: Callable[[Store, list[str]], ClipBlock]
    ) -> ClipBlock:
        """Read each store's videos, and put the clips in the order of `video_ids`."""
        names = list(dict.fromkeys(video_ids))
        blocks = [
            read(store, [name for name in self._own(store, names) or () if name in store.ledger().by_id])
            for store in self._having(stream)
        ]
        return _joined(names, blocks)

    def labels(self, stream: str) -> Any:
        import pyarrow as pa

        return pa.concat_tables([self._shown(store, store.labels(stream)) for store in self._having(stream)])

    def first_texts(self, stream: str, video_ids: Sequence[str]) -> dict[str, str]:
        texts: dict[str, str] = {}
        for store in self._having(stream):
            texts |= store.first_texts(stream, self._own(store, video_ids) or [])
        return texts

    def clip_counts(self, stream: str) -> dict[str, int]:
        return {
            name: count
            for store in self._having(stream)
            for name, count in store.clip_counts(stream).items()
            if name not in self._hidden(store)
        }


def _merged(first: Any, second: Any) -> Any:
    """Two facts merged: maps and lists are united; of other values the first counts."""
    if isinstance(first, dict) and isinstance(second, dict):
        return {**second, **{key: _merged(value, second.get(key)) for key, value in first.items()}}
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *(item for item in second if item not in first)]
    return second if first is None else first


def _hits(stream: str, stores: Sequence[Store], scored: _ScoredRows, k: int) -> ClipHits:
    """The best k hits among scored rows of several tables."""
    lists = [
        store._hits_at(stream)(rows, score, len(rows))
        for store, (rows, score) in zip(stores, scored, strict=True)
    ]
    return best_hits(lists, k)


def _joined(names: Sequence[str], blocks: Sequence[ClipBlock]) -> ClipBlock:
    """Blocks of several stores as one block, in the order of `names`."""
    first, rows_of = 0, dict[str, NDArray[np.int64]]()
    for block in blocks:
        for position, name in enumerate(block.video_ids):
            part = block.rows(position)
            rows_of[name] = np.arange(first + part.start, first + part.stop)
        first += len(block)
    nothing = np.zeros(0, np.int64)
    rows = [rows_of.get(name, nothing) for name in names]
    order: NDArray[np.int64] = np.concatenate([nothing, *rows])
    texts = [text for block in blocks for text in block.text]

    def column(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(block, name) for block in blocks])[order]

    def extra(name: str, width: tuple[int, ...]) -> NDArray[np.float32] | None:
        values = [getattr(block, name) for block in blocks]
        if all(value is None for value in values):
            return None
        filled = [
            np.full((len(block), *width), np.nan, np.float32) if value is None else value
            for block, value in zip(blocks, values, strict=True)
        ]
        return np.concatenate(filled)[order]

    return ClipBlock(
        list(names),
        np.concatenate([[0], np.cumsum([*map(len, rows)])]).astype(np.int64),
        column("index"),
        column("start"),
        column("end"),
        [texts[row] for row in order.tolist()],
        column("vectors"),
        extra("box", (4,)),
        extra("recognised", ()),
    )
