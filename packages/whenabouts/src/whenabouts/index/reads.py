"""Reads a corpus: its ledger, its clips, and searches for nearest vectors and words.

Streams that are searched often stay in memory (`memory.py`). Streams of fewer than `INDEX_ROWS` clips are
searched exactly. Larger ones have an index: IVF with 8-bit scalar quantisation and re-scoring (`effort.py`).

If a filter by videos leaves at most `EXACT_ROWS` clips, these are searched exactly. If it leaves more, the
index probes more partitions; for a time range it probes all. With 10 % of 1 M clips allowed, 20 % of the
partitions held 80 % of the true neighbours, and all partitions 100 % (36 ms).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts.index import checksums, lookup
from whenabouts.index.handle import Handle
from whenabouts.index.lance import folder_of, is_remote, speaking
from whenabouts.index.ledger import Ledger
from whenabouts.index.lookup import (
    HitsAt,
    Narrowing,
    among,
    no_hits,
    rows_of,
    summed_hits,
)
from whenabouts.index.memory import StreamSize, WholeStream
from whenabouts.index.parts import SearchedTable, match_parts
from whenabouts.index.records import (
    ClipBlock,
    ClipHits,
    StoreError,
    StoreStats,
    StreamStats,
    VideoRecord,
    records_of,
    unit_query,
)
from whenabouts.index.stemming import makes_compounds
from whenabouts.index.upkeep import state_of
from whenabouts.index.word_statistics import WordsByLanguage, by_language
from whenabouts.types import UsageError


class Reads(Handle):
    """A corpus to read. Reading needs no lock and sees one consistent snapshot."""

    def videos(self, video_ids: Sequence[str] | None = None) -> list[VideoRecord]:
        """Ledger rows in order of video id: all, or those of `video_ids`; unknown ids are skipped."""
        if video_ids is not None and not video_ids:
            return []

        def read() -> list[VideoRecord]:
            query = self._table("videos").search().limit(None)
            if video_ids is not None:
                query = query.where(among("video_id", video_ids))
            return records_of(query.to_arrow())

        return self._read("read the ledger", read)

    def ledger(self) -> Ledger:
        """All ledger rows, cached per version; callers must not change them."""

        def read() -> Ledger:
            table = self._table("videos")
            return self._ledger.at(self.version, lambda: records_of(table.search().limit(None).to_arrow()))

        return self._ledger.kept(self.version) or self._read("read the ledger", read)

    def ledger_columns(self, names: Sequence[str]) -> list[tuple[str, Any]]:
        """One pair: the place, and these columns of the ledger (Arrow). `SideBySide`: one per corpus."""
        return [(self.place, self.read_side("videos", names))]

    def video(self, video_id: str) -> VideoRecord | None:
        """The ledger row of a video, or None."""
        return next(iter(self.videos([video_id])), None)

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
        """The k clips nearest to `vector` (D,) by cosine, best first; fewer if there are fewer clips.

        `video_ids` allows only these videos. `exact` bypasses the index. `like_clips`: `vector` was computed
        from clips or pictures, so fewer probes of the index suffice. Raises UsageError for a stream without
        vectors.
        """
        info = self.stream(stream)
        if info.dimension == 0:
            raise UsageError(
                f"{self.place}: stream {stream} has no vectors; index with an encoder to search by meaning"
            )
        query = unit_query(vector, info.dimension, stream)
        narrowing = Narrowing(video_ids)

        def read() -> ClipHits:
            if narrowing.impossible:
                return no_hits()
            whole, index = self._searched(stream), None if exact else self._indices.get(stream)
            if whole is not None and (index is None or whole.leaves_few(narrowing)):
                return whole.nearest(query, k, narrowing)
            return lookup.nearest(
                self._clips(stream),
                query,
                k,
                narrowing=narrowing,
                index=index,
                videos=lambda: len(self.ledger().records),
                choose=None if whole is None else whole.nearest_among,
                like_clips=like_clips,
            )

        return self._read("search", lambda: self._finished(read())) if k > 0 else no_hits()

    def nearest_of_each(self, stream: str, vectors: Sequence[ArrayLike], k: int) -> list[ClipHits] | None:
        """The results of `nearest` for each vector, found together; None if that would save no time.

        It saves time for two or more vectors, if the stream has an index and is in memory.
        """
        info = self.stream(stream)
        queries = [unit_query(vector, info.dimension, stream) for vector in vectors]

        def read() -> list[ClipHits] | None:
            whole = self._memory.stream(stream, self.state_of(stream))
            index = self._indices.get(stream)
            if whole is None or index is None or len(queries) < 2:
                return None
            hits_of_each = lookup.nearest_of_each(
                self._clips(stream), queries, k, index=index, choose=whole.nearest_among
            )
            return [self._finished(hits) for hits in hits_of_each]

        return self._read("search", read)

    def match_text(
        self,
        stream: str,
        query: str,
        k: int,
        *,
        video_ids: Sequence[str] | None = None,
        parts: bool = False,
    ) -> ClipHits:
        """The k clips of a stream whose words match best by BM25, best first; in several languages k of each.

        Words are folded to ASCII and stemmed in the videos' languages; if these form compounds, parts of
        compounds match too. Punctuation, operators and words after the first 200 are ignored. `parts`: the
        whole query and its words with digits also match inside words, if the stream indexes parts.
        """
        self.stream(stream)
        narrowing = Narrowing(video_ids)
        if k < 1:
            return no_hits()

        def read() -> ClipHits:
            if not self._has_words(stream):
                return no_hits()
            languages = self.ledger().stemmed_languages
            table = self._clips(stream)
            words = self._words_of_languages(stream, [table], [()])
            if words is None:
                hits = lookup.match(table, query, k, narrowing, languages, self._hits_at(stream))
            else:
                # The k best clips of each language, ties included.
                [(rows, score)] = words.best(by_language(query, words.languages), k, narrowing.video_ids)
                hits = self._hits_at(stream)(rows, score, len(rows))
            return self._with_parts(hits, [SearchedTable(table, narrowing)], query, k, languages, parts=parts)

        return self._read("search", lambda: self._finished(read()))

    def _words_of_languages(
        self, stream: str, tables: Sequence[Any], hidden: Sequence[Collection[str]]
    ) -> WordsByLanguage | None:
        """Word statistics of a stream by language; None if its videos have words in one language only.

        `tables` and `hidden` as in `WordsByLanguage.of`. The statistics are counted again when clips, ledger
        or facts of the corpus change.
        """
        if len(self.ledger().languages) < 2:
            return None
        state, kept = (self.version, self.state_of(stream)), self._words_by_language.get(stream)
        if kept is None or kept[0] != state:
            words = WordsByLanguage.of(tables, self.ledger().language_of, hidden)
            kept = self._words_by_language[stream] = state, words if len(words.languages) > 1 else None
        return kept[1]

    def _with_parts(
        self,
        hits: ClipHits,
        tables: Sequence[SearchedTable],
        query: str,
        k: int,
        languages: Sequence[str],
        *,
        parts: bool,
    ) -> ClipHits:
        """`hits` plus clips that match parts of compounds or, with `parts`, of any words; then the best k."""
        if compounding := [name for name in languages if makes_compounds(name)]:
            compounds = match_parts(tables, query, k, compounding=compounding)
            hits = summed_hits(hits, compounds, k)
        return summed_hits(hits, match_parts(tables, query, k), k) if parts else hits

    def _hits_at(self, stream: str) -> HitsAt:
        """A function that reads clips by row id, from memory if the stream is there, else from disk."""
        whole = self._memory.stream(stream, self.state_of(stream))
        return partial(lookup.hits_at, self._clips(stream)) if whole is None else whole.hits_at

    def _finished(self, hits: ClipHits) -> ClipHits:
        """The hits without those in videos that a writer left half-written."""
        unfinished = self._state_read.unfinished
        if not unfinished:
            return hits
        return rows_of(hits, np.array([name not in unfinished for name in hits.video_ids], np.bool_))

    def _has_words(self, stream: str) -> bool:
        """Whether the words of a stream are indexed."""
        state = stream, self._version(f"clips_{stream}")
        if state not in self._searchable:
            self._searchable = {key: value for key, value in self._searchable.items() if key[0] != stream}
            self._searchable[state] = lookup.has_index(self._clips(stream), "context")
        return self._searchable[state]

    def clips_of(self, stream: str, video_ids: Sequence[str], *, vectors: bool = True) -> ClipBlock:
        """All clips of some videos, with vectors unless `vectors` is false (then their width is 0)."""
        info = self.stream(stream)
        names = list(dict.fromkeys(video_ids))
        dimension = info.dimension if vectors else 0

        def read() -> ClipBlock:
            whole = self._memory.stream(stream, self.state_of(stream))
            if whole is not None:
                return whole.clips_of(names, vectors=vectors)
            return lookup.clips_of(self._clips(stream), names, dimension)

        return self._read("read clips", read)

    def clips_at(
        self, stream: str, seconds: Sequence[float], video_ids: Sequence[str], *, vectors: bool = False
    ) -> ClipBlock:
        """The clips of some videos that contain one of `seconds`; with vectors only if asked for."""
        dimension, names = self.stream(stream).dimension if vectors else 0, list(dict.fromkeys(video_ids))
        return self._read(
            "read clips", lambda: lookup.clips_at(self._clips(stream), seconds, names, dimension)
        )

    def compared(
        self, stream: str, video_ids: Sequence[str], vector: NDArray[np.float32]
    ) -> tuple[ClipBlock, NDArray[np.float32]]:
        """All clips of some videos without vectors, and the dot product (n,) of each with `vector` (D,)."""
        names = list(dict.fromkeys(video_ids))

        def read() -> tuple[ClipBlock, NDArray[np.float32]]:
            whole = self._memory.stream(stream, self.state_of(stream))
            if whole is not None:
                return whole.clips_of(names, vectors=False), whole.cosines(names, vector)
            block = lookup.clips_of(self._clips(stream), names, self.stream(stream).dimension)
            return replace(block, vectors=block.vectors[:, :0]), np.einsum("ij,j->i", block.vectors, vector)

        return self._read("read clips", read)

    def state_of(self, stream: str) -> tuple[int, int]:
        """A value that changes whenever the clips of a stream or the facts of the corpus change.

        A stream that is made again restarts the versions of its table, so the facts' version is needed.
        """
        return self.description_version, self._version(f"clips_{stream}")

    def labels(self, stream: str) -> Any:
        """An Arrow table of video_id, start, end and text of a stream's clips, without those being erased."""
        import pyarrow.compute as pc

        self.stream(stream)
        rows = self.read_side(f"clips_{stream}", ["video_id", "start", "end", "text"])
        erased = list(() if self.erasing is None else self.erasing.labels.get(stream, ()))
        return rows.filter(~pc.field("text").isin(erased)) if erased else rows

    def _searched(self, stream: str) -> WholeStream | None:
        """Count a search; return the stream in memory once enough searches found it unchanged, else None."""
        table, dimension = self._clips(stream), self._streams[stream].dimension
        return self._memory.searched(
            stream,
            self.state_of(stream),
            lambda: StreamSize(table.count_rows(), dimension),
            partial(WholeStream.read, table),
        )

    def keep_at_most(self, count: int) -> None:
        """Limit the memory of large streams to `count` bytes; handles made by `beside` share the limit."""
        self._memory.keep_at_most(count)

    def first_texts(self, stream: str, video_ids: Sequence[str]) -> dict[str, str]:
        """Video id -> the text of its first clip; videos without clips are left out."""

        def read() -> dict[str, str]:
            first = f'{among("video_id", video_ids)} AND "index" = 0'
            query = self._clips(stream).search().where(first).limit(None).select(["video_id", "text"])
            rows = query.to_arrow().to_pydict()
            return dict(zip(rows["video_id"], rows["text"], strict=True))

        return self._read("read clips", read) if video_ids else {}

    def clip_counts(self, stream: str) -> dict[str, int]:
        """How many clips each video has in a stream; reads one column of all rows."""
        self.stream(stream)
        column = self.read_side(f"clips_{stream}", ["video_id"])["video_id"]
        return {row["values"]: row["counts"] for row in column.value_counts().to_pylist()}

    def doubled(self) -> set[str]:
        """Ids of videos with a duplicate clip or ledger row, which two simultaneous writers leave behind.

        Earlier versions admitted a second writer if the lock file of the first was deleted.
        """
        tables = [self._table("videos"), *map(self._clips, self._streams)]

        def read() -> set[str]:
            return {video_id for table in tables for video_id in lookup.doubled(table)}

        return self._read("count clips", read)

    def read_side(self, name: str, columns: Sequence[str], video_ids: Sequence[str] | None = None) -> Any:
        """Columns of a table, such as one beside the clips, for some videos or all, as an Arrow table."""

        def read() -> Any:
            query = self._table(name).search().limit(None)
            if video_ids is not None:
                query = query.where(among("video_id", video_ids) if video_ids else "false")
            return query.select(list(columns)).to_arrow()

        return self._read(f"read table {name}", read)

    def count_side(self, name: str, kind: int | None = None) -> int:
        """Number of rows of a table beside the clips; with `kind`, of rows of this kind only."""
        condition = Narrowing(kind=kind).sql
        return self._read(f"read table {name}", lambda: int(self._table(name).count_rows(condition)))

    def nearest_in_side(
        self,
        name: str,
        vector: ArrayLike,
        k: int,
        video_ids: Sequence[str] | None = None,
        *,
        kind: int | None = None,
    ) -> ClipHits:
        """The k rows of a table beside the clips nearest to `vector`; see `nearest`.

        `kind` restricts rows by the column of that name. With a vector index, scores are accurate to
        some hundredths of their range. Raises UsageError for a table without vectors.
        """
        distance = self._sides[name].vectors if name in self._sides else None
        if distance is None:
            raise UsageError(f"{self.place}: table {name} holds no vectors")

        def read() -> ClipHits:
            table = self._table(name)
            return lookup.nearest(
                table,
                unit_query(vector, table.schema.field("vector").type.list_size, name),
                k,
                narrowing=Narrowing(video_ids, kind=kind),
                index=self._indices.get(name),
                videos=lambda: len(self.ledger().records),
                distance=distance,
                effort=lookup.KEYS_EFFORT,
            )

        return self._read("search", read) if k > 0 else no_hits()

    def stats(self) -> StoreStats:
        """Statistics of the corpus as of the last `refresh`."""
        records = self.videos()
        return StoreStats(
            videos=len(records),
            failed=sum(record.state == "failed" for record in records),
            hours=sum(record.duration or 0.0 for record in records) / 3600,
            streams={name: self._stream_stats(name) for name in self.streams},
            bytes=self._bytes(),
        )

    def _bytes(self) -> int | None:
        """The bytes of all files; None on object stores."""
        return None if is_remote(self.place) else _bytes_under(folder_of(self.place))

    def _stream_stats(self, stream: str) -> StreamStats:
        table = self._clips(stream)
        state = state_of(table)
        index = self._indices.get(stream)
        indexed = None if index is None else table.index_stats("vector_idx")
        if index is None or indexed is None:
            return StreamStats(state.rows, state.fragments, state.rows, vector_index=False)
        return StreamStats(state.rows, state.fragments, indexed.num_unindexed_rows, True, index.recall)

    def check_files(self) -> None:
        """Read all data of a corpus; raises StoreError for a missing or changed file.

        Without checksums (an object store, or a copy made during a write) all rows are read and counted, and
        in a folder the sizes of index files compared; changed values may go unnoticed.
        """
        with speaking(self.place, "read the corpus"):
            is_verified = self._folder is not None and checksums.verify(self.place, self._folder, whole=True)
        clips = (f"clips_{stream}" for stream in self._streams)
        for name in () if is_verified else ("videos", *clips, *self._sides):
            self._read(f"read all of its table {name}", partial(self._read_whole, name))

    def _read_whole(self, name: str) -> None:
        table = self._table(name)
        rows = sum(batch.num_rows for batch in table.search().limit(None).to_batches())
        if rows != table.count_rows():
            raise StoreError(f"{self.place}: its table {name} lacks rows; copy it again, or index again")
        for index in () if is_remote(self.place) else table.list_indices():
            folder = folder_of(self.place) / f"{name}.lance" / "_indices" / index.index_uuid
            # For an index in several parts, LanceDB gives the folder of one part, but the size of all.
            if _bytes_under(folder) < ((index.size_bytes if index.num_segments == 1 else 0) or 1):
                missing = f"lacks files of its index {index.name}"
                raise StoreError(f"{self.place}: its table {name} {missing}; copy it again, or index again")


def _bytes_under(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # a file that a writer has just cleaned up
            total += path.stat().st_size if path.is_file() else 0
    return total
