"""Writes a corpus on disk or on an object store: LanceDB tables behind typed values.

`handle.py` opens a corpus, `reads.py` reads and searches it, this file changes it.

A crash cannot leave a video half-written unnoticed: its ledger row is first written without its file's size
and hash, then its clips are replaced, then the row is completed. After a crash in between, the file counts as
changed, and the next run indexes it again under the same id. Clips always have a ledger row.

`erase` first stores a mark that lists everything to erase, in one commit with the facts that change. If the
process dies before the end, the next writer finishes the marked erasing first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.index import checksums, stranger
from whenabouts.index import lock as locks
from whenabouts.index.conditional_put import check_conditional_put
from whenabouts.index.effort import with_effort
from whenabouts.index.handle import ERASING, Erasing, SideTable
from whenabouts.index.lance import LANCE_ERRORS, folder_of, is_remote, speaking
from whenabouts.index.ledger import LedgerState
from whenabouts.index.lookup import among, extra_columns
from whenabouts.index.parts import index_parts
from whenabouts.index.reads import Reads
from whenabouts.index.records import (
    EXTRA_COLUMNS,
    ClipColumns,
    StreamInfo,
    VideoRecord,
    clip_rows,
    clips_schema,
    description_schema,
    extra_field,
    ledger_rows,
    vector_field,
)
from whenabouts.index.stemming import makes_compounds
from whenabouts.index.upkeep import (
    AFTER_RUN,
    ALWAYS,
    LEDGER_WHILE_WRITING,
    WHILE_WRITING,
    Schedule,
    index_ids,
    index_kinds,
    index_vectors,
    index_words,
    rewrite,
    state_of,
    tidy,
)
from whenabouts.index.vector_index import Distance
from whenabouts.intake.own_files import own_file

# Prefix of facts that name streams to rewrite.
_REWRITING = f"{ERASING}:"

_Batch = Mapping[str, tuple[VideoRecord, Mapping[str, ClipColumns]]]
_log = logging.getLogger(__name__)


class Store(Reads):
    """A corpus that can be read and changed.

    Each change holds the corpus's writer lock until the method returns; `writing` holds it over several
    calls. A store cannot be used after a fork, because LanceDB has threads: spawn processes instead.
    """

    _just_erased: Erasing | None = None

    def holding(self, video_id: str) -> Store:
        """This store. `SideBySide` returns the one of its stores that has the video."""
        return self

    def _describe(self, values: Mapping[str, Mapping[str, Any]]) -> None:
        """Store entries of the description (table `corpus`) in one commit; each replaces that of its key."""
        import pyarrow as pa

        rows = [
            {"key": key, "value": json.dumps(dict(value)), "owner": "", "expires": 0.0}
            for key, value in values.items()
        ]
        table = pa.Table.from_pylist(rows, schema=description_schema())
        _upsert(self._description, "key", table)
        self._read_description()

    def _forget(self, keys: Iterable[str]) -> None:
        self._description.delete(among("key", keys))
        self._read_description()

    def put_fact(self, key: str, value: Mapping[str, Any]) -> None:
        """Store a fact (a small JSON object) in the corpus; it replaces an earlier one with this key."""
        with self.writing(), speaking(self.place, "write"):
            self._describe({f"fact:{key}": value})

    def keep_fact(self, key: str, value: Mapping[str, Any]) -> None:
        """Store a measurement as a fact. `SideBySide` keeps it in memory instead."""
        self.put_fact(key, value)

    def forget_fact(self, key: str) -> None:
        """Delete the fact with this key, if there is one."""
        with self.writing(), speaking(self.place, "write"):
            self._forget([f"fact:{key}"])

    def add_side(self, side: SideTable, schema: Any) -> None:
        """Create an empty table beside the clips; `schema` (Arrow) must have a column `video_id`."""
        with self.writing(), speaking(self.place, f"add table {side.name}"):
            self._create_table(side.name, schema)
            self._describe({f"table:{side.name}": asdict(side)})

    def _create_table(self, name: str, schema: Any) -> None:
        self._db.drop_table(name, ignore_missing=True)  # a crash may have left it undeclared
        self._tables[name] = self._db.create_table(name, schema=schema)
        self._index_columns(name)

    def _index_columns(self, name: str) -> None:
        table = self._table(name)
        index_ids(table)
        if "kind" in table.schema.names:
            index_kinds(table)

    def remove_sides(self, names: Sequence[str]) -> None:
        """Drop the tables beside the clips that have these names."""
        if not names:
            return
        with self.writing(), speaking(self.place, "remove tables"):
            self._forget([f"{kind}:{name}" for name in names for kind in ("table", "index")])
            for name in names:
                self._db.drop_table(name, ignore_missing=True)
                self._tables.pop(name, None)

    def replace_in_side(self, name: str, video_ids: Sequence[str], rows: Any | None) -> None:
        """Replace the rows of some videos in a table beside the clips by `rows` (Arrow; None: delete)."""
        with self.writing(), speaking(self.place, "write"):
            table = self._table(name)
            table.delete(among("video_id", video_ids))
            if rows is not None and len(rows):
                table.add(rows, on_bad_vectors="null")

    def add_stream(self, info: StreamInfo) -> None:
        """Create a stream, or replace the description of an existing one.

        A stream without vectors (dimension 0) gets a vector column with its first encoder. If it has vectors,
        another fingerprint raises `EncoderMismatch`; `erase` the stream first.
        """
        if self._streams.get(info.name) == info:
            return
        with self.writing(), speaking(self.place, f"add stream {info.name}"):
            present = self._streams.get(info.name)
            if present is not None and present.dimension:
                self.check_stream(info.name, info.fingerprint, info.encoder)
            elif present is not None and info.dimension:
                table = self._clips(info.name)
                if "vector" in table.schema.names:  # left by a crash before the encoder was declared
                    table.drop_columns(["vector"])
                table.add_columns(vector_field(info.dimension))
            elif present is None:
                self._create_table(f"clips_{info.name}", clips_schema(info.dimension))
            self._describe({f"stream:{info.name}": asdict(replace(info, settings=dict(info.settings)))})

    def erase(
        self,
        labels: Mapping[str, Collection[str]],
        facts: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        videos: Sequence[str] = (),
        dropped: Sequence[str] = (),
        command: str = "",
    ) -> int:
        """Erase the clips with the texts in `labels` (by stream), and return their number; store `facts`.

        `videos` (by id) and the streams `dropped` are erased too, but not counted. The streams in `labels`,
        and for `videos` the ledger and the tables beside the clips, are rewritten, and older versions of them
        and of the facts are deleted at once: a deletion alone leaves rows in a file while most of it stays.

        After a crash the next writer finishes the work; then `finished_erasing(command)` returns the number.
        """
        erased = {stream: sorted(texts) for stream, texts in labels.items() if texts}
        with self.writing(), speaking(self.place, "erase clips"):
            count = sum(
                int(self._clips(stream).count_rows(among("text", texts))) for stream, texts in erased.items()
            )
            mark = asdict(Erasing(digest_of(command), count, erased, list(videos), list(dropped)))
            changed = {ERASING: mark, **{f"{_REWRITING}{stream}": {} for stream in labels}, **(facts or {})}
            self._describe({f"fact:{key}": value for key, value in changed.items()})
            self._finish_erasing()
        return count

    def erase_later(self, streams: Iterable[str]) -> None:
        """Mark streams that the next `optimize` rewrites, so that replaced vectors leave the disk."""
        with self.writing(), speaking(self.place, "write"):
            marks: dict[str, Any] = {f"fact:{_REWRITING}{stream}": {} for stream in streams}
            if marks:
                self._describe(marks)

    def finished_erasing(self, command: str) -> Any:
        """The number of the `erase` by `command` that crashed and that this `writing` finished, or None."""
        mark = self._just_erased
        return None if mark is None or mark.command != digest_of(command) else mark.answer

    def _finish_erasing(self) -> Erasing | None:
        """Erase all that is marked, then the marks; returns the mark of `erase`. Any step may be repeated."""
        mark, rewriting = self.erasing, self.facts(_REWRITING)
        rewritten = {key.removeprefix(_REWRITING) for key in rewriting}
        if mark is not None:
            for stream in mark.dropped:
                self._drop_stream(stream)
            self.remove_videos(mark.videos)
            for stream, texts in mark.labels.items():
                if stream in self._streams:
                    self._clips(stream).delete(among("text", texts))
            if mark.videos:
                rewrite(self._table("videos"), self.place)
                rewritten |= self._sides.keys()
        for name, key, vectors in self._searched_tables():
            if key in rewritten:
                rewrite(self._table(name), self.place)
                self._index_columns(name)
                if key in self._streams:
                    self._index_text(key)
                self._forget([f"index:{key}"])
                self._optimize_table(name, key, vectors, ALWAYS)
        if rewriting:
            self._forget(f"fact:{key}" for key in rewriting)
        if mark is not None:
            # The mark may hold people's names: empty it, delete older versions of the table, then the mark.
            self._describe({f"fact:{ERASING}": {"command": mark.command, "answer": mark.answer}})
            tidy(self._description, self.place)
            self._forget([f"fact:{ERASING}"])
        return mark

    def _drop_stream(self, name: str) -> None:
        self._upsert_ledger(
            [
                replace(record, streams={key: value for key, value in record.streams.items() if key != name})
                for record in self.videos()
                if name in record.streams
            ]
        )
        self._forget([f"stream:{name}", f"index:{name}", f"fact:calibration:{name}"])
        self._db.drop_table(f"clips_{name}", ignore_missing=True)
        if not is_remote(self.place):  # an interrupted drop may leave some files of the table
            shutil.rmtree(own_file(folder_of(self.place), f"clips_{name}.lance"), ignore_errors=True)
        self._tables.pop(f"clips_{name}", None)

    @contextlib.contextmanager
    def writing(
        self, *, wait: float = 0.0, on_wait: Callable[[locks.Holder | None], None] | None = None
    ) -> Iterator[None]:
        """Hold the corpus's writer lock on the newest snapshot; first finish an interrupted erasing.

        If another writer holds it, wait up to `wait` seconds (`on_wait` is called once with that writer) and
        then raise `CorpusBusy`. Other threads that write through this store wait for their turn.
        """
        with self._one_thread:
            if self._depth == 0:
                with speaking(self.place, "lock the corpus"):
                    if is_remote(self.place):
                        check_conditional_put(self.place, self._options)
                    locks.acquire(self._lock, self.place, wait, on_wait)
            else:
                with speaking(self.place, "write"):
                    self._check_lease()
            self._depth += 1
            try:
                if self._depth == 1:
                    if not is_remote(self.place):
                        with speaking(self.place, "write"):
                            stranger.begin(folder_of(self.place))
                            self._checksums = checksums.begin(folder_of(self.place))
                    self.refresh()
                    self._just_erased = None
                    if self.facts(ERASING):
                        with speaking(self.place, "finish an erasing"):
                            self._just_erased = self._finish_erasing()
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    if not is_remote(self.place):
                        checksums.finish(folder_of(self.place), self._checksums)
                    self._versions.clear()
                    self._state_read = LedgerState(-1)
                    with contextlib.suppress(*LANCE_ERRORS):  # a lease that cannot be released expires
                        self._lock.release()
                    if not is_remote(self.place):
                        stranger.finish(folder_of(self.place))

    def put_video(self, record: VideoRecord, clips: Mapping[str, ClipColumns]) -> None:
        """Write one video: see `put_videos`."""
        self.put_videos([(record, clips)])

    def put_videos(self, entries: Iterable[tuple[VideoRecord, Mapping[str, ClipColumns]]]) -> None:
        """Write videos: ledger rows that match no file, then clips in place of older ones, then full rows.

        Streams that neither `clips` nor the record's `streams` names lose their clips of the video. Of two
        entries with one id the last is written. Raises `DiskFull`, `CorpusBusy`, and before any change
        `UsageError` (an undeclared stream, vectors of another width).
        """
        batch = {record.video_id: (record, clips) for record, clips in entries}
        if not batch:
            return
        with self.writing(), speaking(self.place, "write"):
            tables = {
                name: self._new_rows(name, batch)
                for name in sorted({name for _, clips in batch.values() for name in clips})
            }
            stale = {name: self._stale(name, batch) for name in self._streams}
            if any(stale.values()) or any(len(rows) for rows in tables.values()):
                self._upsert_ledger([without_file(record) for record, _ in batch.values()])
            for name in self._streams:
                if stale[name]:
                    self._clips(name).delete(among("video_id", stale[name]))
                if name in tables and len(tables[name]):
                    self._add_clips(name, tables[name])
            self._check_lease()
            if self._table("videos").count_rows(among("video_id", batch)) > len(batch):
                self._table("videos").delete(among("video_id", batch))
            self._upsert_ledger([record for record, _ in batch.values()])
            self._optimize_if_due(WHILE_WRITING)

    def check_rows(self, record: VideoRecord, clips: Mapping[str, ClipColumns]) -> None:
        """Raise the errors that `put_video` would raise for these rows, and write nothing."""
        ledger_rows([record])
        for name, columns in clips.items():
            clip_rows(self.stream(name), {record.video_id: columns})

    def _new_rows(self, name: str, batch: _Batch) -> Any:
        clips = {video_id: clips[name] for video_id, (_, clips) in batch.items() if name in clips}
        info = self.stream(name)
        own, every = extra_columns(self._clips(name)), clips.values()
        extra = [
            column
            for column in EXTRA_COLUMNS
            if column in own or any(getattr(columns, column) is not None for columns in every)
        ]
        return clip_rows(info, clips, extra)

    def _stale(self, name: str, batch: _Batch) -> list[str]:
        """The videos whose clips in a stream must be deleted; empty if the stream has no clips of them."""
        replaced = [
            video_id
            for video_id, (record, clips) in batch.items()
            if name in clips or name not in record.streams
        ]
        return replaced if replaced and self._clips(name).count_rows(among("video_id", replaced)) else []

    def _add_clips(self, name: str, rows: Any) -> None:
        table = self._clips(name)
        for column in set(extra_columns(rows)) - set(extra_columns(table)):
            table.add_columns(extra_field(column))
        table.add(rows, on_bad_vectors="null")
        if any(rows["context"].to_pylist()):
            self._index_text(name)

    def _index_text(self, name: str) -> None:
        """Index the words of a stream that has any; also their parts, for compounds or by its settings."""
        table = self._clips(name)
        if table.count_rows("context != ''"):
            index_words(table)
            compounds = any(map(makes_compounds, self.ledger().languages))
            if compounds or self._streams[name].settings.get("parts_of_words"):
                index_parts(table)

    def put_records(self, records: Iterable[VideoRecord]) -> None:
        """Write ledger rows only (a new path, metadata, a failure); clips stay as they are."""
        rows = {record.video_id: record for record in records}
        if rows:
            with self.writing(), speaking(self.place, "write"):
                self._upsert_ledger(list(rows.values()))

    def remove_videos(self, video_ids: Sequence[str]) -> int:
        """Remove videos with their rows in all tables; returns the number of removed videos."""
        if not video_ids:
            return 0
        with self.writing(), speaking(self.place, "remove videos"):
            records = self.videos(video_ids)
            self._upsert_ledger([without_file(record) for record in records])
            for name in [*(f"clips_{stream}" for stream in self._streams), *self._sides]:
                self._table(name).delete(among("video_id", video_ids))
            if records:
                self._table("videos").delete(among("video_id", [record.video_id for record in records]))
            return len(records)

    def _upsert_ledger(self, records: Sequence[VideoRecord]) -> None:
        if records:
            table, rows = self._table("videos"), ledger_rows(records)
            for name in set(rows.schema.names) - set(table.schema.names):
                table.add_columns(rows.schema.field(name))
            _upsert(table, "video_id", rows)

    def _check_lease(self) -> None:
        if self._lock.is_lost():
            raise locks.CorpusBusy(self.place, self._lock.holder())

    def optimize(self, *, force: bool = False) -> None:
        """Merge small fragments, update indices, delete old versions; call at the end of a run.

        Only tables that are due are changed, unless `force` is true; streams marked by `erase_later` are
        always rewritten. Readers whose version is deleted meanwhile read again from the newest one.
        """
        with self.writing(), speaking(self.place, "optimize"):
            self._finish_erasing()
            self._optimize_if_due(ALWAYS if force else AFTER_RUN)

    @property
    def streams_without_effort(self) -> tuple[str, ...]:
        """The streams whose vector index was trained and its search effort not measured (`effort.py`) yet."""
        return tuple(
            name for name in self._streams if name in self._indices and not self._indices[name].effort
        )

    def measure_effort(self, stream: str, queries: NDArray[np.float32] | None) -> None:
        """Measure by `queries` (N, D; None: some clips) how much of a vector index to probe; store it."""
        with self.writing(), speaking(self.place, "measure the vector index"):
            index = with_effort(self._clips(stream), self._indices[stream], queries)
            self._describe({f"index:{stream}": asdict(index)})

    def _optimize_if_due(self, due: Schedule) -> None:
        for name, key, vectors in self._searched_tables():
            self._optimize_table(name, key, vectors, due)
        ledger = self._table("videos")
        if (LEDGER_WHILE_WRITING if due is WHILE_WRITING else due).is_due(state_of(ledger)):
            index_ids(ledger)
            tidy(ledger, self.place)
            tidy(self._description, self.place)

    def _searched_tables(self) -> Iterator[tuple[str, str, Distance | None]]:
        """The tables of clips and those beside them: name, key of the vector index, distance of vectors."""
        for stream, info in self._streams.items():
            yield f"clips_{stream}", stream, "cosine" if info.dimension else None
        for side in self._sides.values():
            yield side.name, side.name, side.vectors

    def _optimize_table(self, name: str, index: str, vectors: Distance | None, due: Schedule) -> None:
        """Merge and index one table if that is due; `index` is the key of its vector index."""
        table = self._table(name)
        if not due.is_due(state_of(table)):
            return
        started = time.monotonic()
        trained = index_vectors(table, self._indices.get(index), vectors) if vectors else None
        tidy(table, self.place)
        if trained is not None:
            self._describe({f"index:{index}": asdict(trained)})
        _log.info("%s: table %s optimized in %.1f s", self.place, name, time.monotonic() - started)


def _upsert(table: Any, key: str, rows: Any) -> None:
    table.merge_insert(key).when_matched_update_all().when_not_matched_insert_all().execute(rows)


def digest_of(command: str) -> str:
    """A hash of a command; the command itself may contain people's names."""
    return hashlib.blake2b(command.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def without_file(record: VideoRecord) -> VideoRecord:
    """The ledger row while the clips are written: it matches no file, so that a crash is noticed."""
    return replace(unlike_its_file(record), content_hash="", streams={})


def unlike_its_file(record: VideoRecord) -> VideoRecord:
    """The ledger row with a size that no file has, so that the next index run reads the file again."""
    return replace(record, size=-1, modified_ns=0)
