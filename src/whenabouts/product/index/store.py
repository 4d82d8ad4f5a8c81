"""A corpus on disk (or on an object store): LanceDB tables behind typed values.

Tables: `corpus` (format version, streams, and the writer's lease on object stores), `videos` (the ledger:
one row per video) and one table `clips_<stream>` per stream (one row per clip: id, times, words, vector).
Others may keep tables beside these that have a column `video_id` (`SideTable`; what trained systems made of
the videos, see `keys.py`): they are cared for here, and forget a video when it is taken out.

Why a table per stream and not one table with a nullable vector column per stream: streams have grids
of their own, so nearly every row would hold one vector and nulls. LanceDB 0.40 does search and index
nullable columns correctly (no null is ever returned, recall as without, a new column costs 2 ms), but it
stores the nulls at full width. Measured with 2 streams x 100,000 clips x 384, float16: one table 329 MB and
264 ms per exact search; two tables 2 x 78 MB and 107 ms. float32 takes twice the disk and twice the time
of float16 at equal recall.

A put leaves no gap that a crash could hide in: the ledger row is first written without a description of
its file, then the clips are replaced, then the row is written whole. After a crash between, the file
looks changed and is done again; clips always have a ledger row, and ids are the same each time.

Streams that are searched again are kept in memory (`memory.py`). On disk: exact search below
`EXACT_ROWS` candidates, IVF with 8-bit scalar quantisation and re-scoring above.
A filter that leaves few candidates is searched exactly; one that leaves more widens the search by as much
as it narrows the corpus, because an index probes partitions and not answers: with 10 % of 1 M
clips allowed, 20 % of the partitions held 80 % of the true neighbours, all of them 100 % (36 ms).
All clips of 22 videos by the B-tree on their ids take 4 ms at 1 M clips; taking rows by known row numbers
took 3 ms, which is not worth the bookkeeping.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

import whenabouts
from whenabouts.budget import check_budget
from whenabouts.locking import is_shared
from whenabouts.product.index import checksums, lookup
from whenabouts.product.index import lock as locks
from whenabouts.product.index.conditional_put import check_conditional_put
from whenabouts.product.index.lance import (
    LANCE_ERRORS,
    check_scheme,
    connect,
    explained,
    folder_of,
    is_of_storage,
    is_panic,
    is_remote,
    open_table,
    refuse_links,
    speaking,
)
from whenabouts.product.index.ledger import Ledger, LedgerMemory
from whenabouts.product.index.lookup import (
    HitsAt,
    Narrowing,
    among,
    extra_columns,
    literal,
    no_hits,
    rows_of,
    summed_hits,
)
from whenabouts.product.index.memory import ClipMemory, StreamSize, WholeStream
from whenabouts.product.index.parts import index_parts, match_parts
from whenabouts.product.index.records import (
    EXTRA_COLUMNS,
    ClipBlock,
    ClipColumns,
    ClipHits,
    EncoderMismatch,
    NewerCorpus,
    NotACorpus,
    StoreError,
    StoreRefused,
    StoreStats,
    StreamInfo,
    StreamStats,
    VideoRecord,
    clip_rows,
    clips_schema,
    description_schema,
    extra_field,
    ledger_rows,
    ledger_schema,
    records_of,
    unit_query,
    vector_field,
)
from whenabouts.product.index.stemming import has_stems, makes_compounds
from whenabouts.product.index.upkeep import (
    AFTER_RUN,
    ALWAYS,
    LEDGER_WHILE_WRITING,
    WHILE_WRITING,
    Distance,
    Schedule,
    VectorIndex,
    index_ids,
    index_kinds,
    index_vectors,
    index_words,
    rewrite,
    state_of,
    tidy,
)
from whenabouts.product.index.whole import LedgerState, LedgerWatch
from whenabouts.types import UsageError

FORMAT_VERSION = 1
# A file of an old version may go between the look at the newest version and the reading of it: a reader that
# loses this race looks again, and loses again only if the next clean-up ends just then.
_READ_ATTEMPTS = 10
_READ_PAUSE_SECONDS = 0.02
# A video is written within some tenths of a second; who cannot keep the state before waits that long.
_WHOLE_ATTEMPTS, _WHOLE_PAUSE_SECONDS = 25, 0.02
_LEASE_KEY = "writer"
# Facts that name streams which are to be written anew.
_ERASING = "erasing:"
# File systems with the coarsest clocks count in two seconds.
_SETTLED_NS = 3_000_000_000

_log = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SideTable:
    """A table beside the clips; `vectors` says how its column `vector` is compared, None without one."""

    name: str
    vectors: Distance | None = None


class Store:
    """One corpus, opened. Reading needs no lock and sees one whole state of the corpus, as of `refresh`.

    `moves` counts how often another state took its place: where it did so between two reads, because a
    writer's clean-up took the files of the first, what was read is of two states.

    Writing takes the corpus's lock for the time of the call, or for longer with `writing`. A store does not
    survive a fork (LanceDB has threads); processes that work beside it are to be spawned.
    """

    def __init__(
        self, place: str, db: Any, description: Any, storage_options: Mapping[str, str] | None = None
    ) -> None:
        self.place = place
        self._folder = None if is_remote(place) else folder_of(place)
        self._options = storage_options
        self._db = db
        self._description = description
        self._tables: dict[str, Any] = {}
        self._streams: dict[str, StreamInfo] = {}
        self._indices: dict[str, VectorIndex] = {}
        self._sides: dict[str, SideTable] = {}
        self._facts: dict[str, str] = {}
        self.description_version = -1
        self._memory, self._ledger = ClipMemory(), LedgerMemory()
        self._lock = self._new_lock()
        self._depth = 0
        self._checksums: checksums.Checksums = {}
        self._versions: dict[str, int] = {}
        self._seen: list[tuple[int, int]] | None = None
        self._searchable: dict[tuple[str, int], bool] = {}
        self._one_thread = threading.RLock()
        self._watch, self._state_read = LedgerWatch(lambda: open_table(db, "videos")), LedgerState(-1)
        self.moves = 0
        _repeated(place, "open the corpus", self._look_again)

    # Opening -----------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str],
        *,
        create: bool = False,
        storage_options: Mapping[str, str] | None = None,
    ) -> Store:
        """Open a corpus in a folder or under an object store's URI; make it first where `create` is true.

        Raises `NotACorpus` where there is none (or, with `create`, where other files lie), `NewerCorpus` for
        one that was written by a later format, `StoreError` for what cannot be read.
        """
        place = os.fspath(location)
        check_scheme(place)
        if not is_remote(place):
            _check_folder(place, create)
        with speaking(place, "open the corpus"):
            refuse_links(place)
            if not is_remote(place):
                checksums.verify(place, folder_of(place))
            db = connect(place, storage_options)
            description = _repeated(place, "open the corpus", lambda: open_table(db, "corpus"))
            if description is None and create:
                if is_remote(place):
                    check_conditional_put(place, storage_options)
                description = _create(db)
        if description is None:
            raise NotACorpus(f"{place} holds no corpus; {_how_to_make(place)}")
        return cls(place, db, description, storage_options)

    def beside(self) -> Store:
        """Another handle for another thread: tables of its own, caches and clips in memory shared."""
        opened = _repeated(self.place, "open the corpus", lambda: open_table(self._db, "corpus"))
        store = Store(self.place, self._db, opened, self._options)
        store._memory, store._ledger = self._memory, self._ledger
        return store

    def drop_kept(self) -> None:
        """Let go of clips, ledger rows and words in memory, for all handles."""
        self._memory.drop()
        self._ledger.drop()
        lookup.drop_words()

    @property
    def version(self) -> int:
        """A number that grows with every change of the ledger."""
        return self._read("read the corpus", lambda: self._version("videos"))

    def refresh(self) -> None:
        """See what has been written since the corpus was opened or refreshed (about 1 ms, or no time)."""
        now = self._written_at()
        if now is None or now != self._seen or self._depth:
            is_newest = _repeated(self.place, "read the corpus", lambda: self._move(must=False))
            # A clock of coarse ticks may give the next write the same time: it is too early to rely on it.
            settled = now is not None and max(at for at, _ in now) < time.time_ns() - _SETTLED_NS
            self._seen = now if settled and is_newest else None

    def _written_at(self) -> list[tuple[int, int]] | None:
        """When a version was last added to each open table; None where only the tables know (object stores).

        A commit puts a file into the folder of versions, which changes the folder's time. Reading that is a
        thousandth of the work of asking LanceDB, which is much for a server with many clients.
        """
        if self._folder is None:
            return None
        try:
            states = [
                (self._folder / f"{name}.lance" / "_versions").stat() for name in ("corpus", *self._tables)
            ]
        except OSError:
            return None
        return [(status.st_mtime_ns, status.st_ino) for status in states]

    def _version(self, table: str) -> int:
        """The version of a table that is read now."""
        if self._depth or table not in self._versions:
            self._versions[table] = int(self._table(table).version)
        return self._versions[table]

    def _look_again(self) -> None:
        self._move(must=True)

    def _move(self, *, must: bool) -> bool:
        """Move all tables to the newest whole state (`whole.py`); whether there was one.

        Where there is none yet, the state that is read now is kept, unless there `must` be another.
        """
        if self._depth:
            moves, before = self.moves, self._ledger_read()
            self._move_tables()
            if before is not None and self._ledger_read() == before:
                self.moves = moves  # nobody else wrote: what is kept of a search does not have it asked again
            return True
        for attempts_left in reversed(range(_WHOLE_ATTEMPTS)):
            ahead = self._watch.newest()
            if ahead.unfinished - self._state_read.unfinished and attempts_left:
                if not must and self._state_read.version >= 0:
                    return False
                time.sleep(_WHOLE_PAUSE_SECONDS)
                continue
            self._move_tables()
            after = self._watch.newest()
            if after == ahead:
                break
            must = True  # a writer came between: the state that was read before is gone
        # Where no attempt met a whole state, what was unfinished before or after is hidden.
        self._state_read = LedgerState(ahead.version, ahead.unfinished | after.unfinished)
        return True

    def _ledger_read(self) -> int | None:
        """The version of the ledger that is read; None where it is not open."""
        return int(self._tables["videos"].version) if "videos" in self._tables else None

    def _move_tables(self) -> None:
        self._versions.clear()
        self.moves += 1
        self._description.checkout_latest()
        if self._description.version != self.description_version:
            self._read_description()
        for name, table in list(self._tables.items()):
            try:
                table.checkout_latest()
            except LANCE_ERRORS:  # its stream was removed; opened again when it is needed again
                del self._tables[name]

    def _read_description(self) -> None:
        version = self._description.version
        rows = self._description.search().limit(10_000).to_arrow()
        facts = dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
        form = json.loads(facts.get("format", '{"version": 0}'))
        if form["version"] > FORMAT_VERSION:
            raise NewerCorpus(
                f"{self.place} has corpus format {form['version']} (written by whenabouts "
                f"{form.get('whenabouts', form.get('cuepoint', '?'))}); this is whenabouts "
                f"{whenabouts.__version__}, which reads up to format {FORMAT_VERSION}: upgrade whenabouts"
            )
        streams = [json.loads(value) for key, value in facts.items() if key.startswith("stream:")]
        self._streams = {fact["name"]: StreamInfo(**fact) for fact in streams}
        self._indices = {
            key.removeprefix("index:"): VectorIndex(**json.loads(value))
            for key, value in facts.items()
            if key.startswith("index:")
        }
        sides = [json.loads(value) for key, value in facts.items() if key.startswith("table:")]
        self._sides = {fact["name"]: SideTable(**fact) for fact in sides}
        self._facts = {
            key.removeprefix("fact:"): value for key, value in facts.items() if key.startswith("fact:")
        }
        self.description_version = version

    def _describe(self, key: str, value: Mapping[str, Any]) -> None:
        import pyarrow as pa

        row = {"key": key, "value": json.dumps(dict(value)), "owner": "", "expires": 0.0}
        table = pa.Table.from_pylist([row], schema=description_schema())
        _upsert(self._description, "key", table)
        self._read_description()

    def _forget(self, keys: Iterable[str]) -> None:
        self._description.delete(among("key", keys))
        self._read_description()

    def fact(self, key: str) -> Mapping[str, Any] | None:
        """A small fact kept with the corpus (JSON values), or None."""
        return json.loads(self._facts[key]) if key in self._facts else None

    def put_fact(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep a small fact with the corpus; it replaces the one of the same key."""
        with self.writing(), speaking(self.place, "write"):
            self._describe(f"fact:{key}", value)

    def keep_fact(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep what was measured of the corpus, as `put_fact`."""
        self.put_fact(key, value)

    def forget_fact(self, key: str) -> None:
        """Keep a fact no longer."""
        with self.writing(), speaking(self.place, "write"):
            self._forget([f"fact:{key}"])

    def facts(self, prefix: str) -> dict[str, Mapping[str, Any]]:
        """All small facts whose key begins so, by key."""
        return {key: json.loads(value) for key, value in self._facts.items() if key.startswith(prefix)}

    def _table(self, name: str) -> Any:
        if name not in self._tables:
            table = _repeated(self.place, f"open table {name}", lambda: open_table(self._db, name))
            if table is None:
                raise StoreError(
                    f"{self.place} lacks its table {name}; restore it from a copy, or index again"
                )
            self._tables[name] = table
            if not self._depth and self._watch.newest() != self._state_read:
                self._look_again()  # it was opened as it is now, and the others were read before
        return self._tables[name]

    def _clips(self, stream: str) -> Any:
        self.stream(stream)
        return self._table(f"clips_{stream}")

    def _read(self, action: str, read: Callable[[], Result]) -> Result:
        """Read; again from the newest version if files of an older one were cleaned up meanwhile."""
        return _repeated(self.place, action, read, self._look_again)

    # Tables beside the clips ---------------------------------------------------------------------

    @property
    def sides(self) -> Mapping[str, SideTable]:
        """The tables that others keep beside the clips, by name."""
        return dict(self._sides)

    def add_side(self, side: SideTable, schema: Any) -> None:
        """Make a table beside the clips; its schema has a column `video_id`."""
        with self.writing(), speaking(self.place, f"add table {side.name}"):
            self._db.drop_table(side.name, ignore_missing=True)  # left by a crash before it was declared
            table = self._db.create_table(side.name, schema=schema)
            index_ids(table)
            if "kind" in table.schema.names:
                index_kinds(table)
            self._tables[side.name] = table
            self._describe(f"table:{side.name}", asdict(side))

    def remove_sides(self, names: Sequence[str]) -> None:
        """Drop tables beside the clips."""
        if not names:
            return
        with self.writing(), speaking(self.place, "remove tables"):
            self._forget([f"{kind}:{name}" for name in names for kind in ("table", "index")])
            for name in names:
                self._db.drop_table(name, ignore_missing=True)
                self._tables.pop(name, None)

    def replace_in_side(self, name: str, video_ids: Sequence[str], rows: Any | None) -> None:
        """Rows of some videos in a table beside the clips: the old ones go, then the new ones come."""
        with self.writing(), speaking(self.place, "write"):
            table = self._table(name)
            table.delete(among("video_id", video_ids))
            if rows is not None and len(rows):
                table.add(rows, on_bad_vectors="null")

    def read_side(self, name: str, columns: Sequence[str], video_ids: Sequence[str] | None = None) -> Any:
        """Columns of a table beside the clips, of some videos or all, as an Arrow table."""

        def read() -> Any:
            query = self._table(name).search().limit(None)
            if video_ids is not None:
                query = query.where(among("video_id", video_ids) if video_ids else "false")
            return query.select(list(columns)).to_arrow()

        return self._read(f"read table {name}", read)

    def count_side(self, name: str, kind: int | None = None) -> int:
        """How many rows a table beside the clips has; of one `kind`, where it has a column of that name."""
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
        """The k rows of a table beside the clips whose vectors are nearest to `vector`; see `nearest`.

        Of one `kind`, where the table has a column of that name. Where there is a vector index, scores are
        exact to some hundredths of their range.
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

    # Streams -------------------------------------------------------------------------------------

    @property
    def streams(self) -> Mapping[str, StreamInfo]:
        """The streams of the corpus by name."""
        return dict(self._streams)

    def stream(self, name: str) -> StreamInfo:
        """One stream; raises `UsageError` that names those there are."""
        if name not in self._streams:
            raise UsageError(
                f"{self.place} has no stream {name!r}; it has {', '.join(sorted(self._streams)) or 'none'}"
            )
        return self._streams[name]

    def check_stream(self, name: str, fingerprint: str, encoder: str = "") -> StreamInfo:
        """The stream, if its vectors were made with `fingerprint`; else `EncoderMismatch` naming both."""
        info = self.stream(name)
        if info.fingerprint != fingerprint:
            raise EncoderMismatch(
                f"{self.place}: stream {name} was made with {info.encoder} ({info.fingerprint}), not with "
                f"{encoder or 'this encoder'} ({fingerprint}); use the first, or index into a new corpus"
            )
        return info

    def add_stream(self, info: StreamInfo) -> None:
        """Declare a stream; nothing happens when it is there with the same fingerprint.

        A stream without vectors (dimension 0) takes the first encoder that comes. Any other change raises
        `EncoderMismatch`; `remove_stream` makes room for it.
        """
        if self._streams.get(info.name) == info:
            return
        with self.writing(), speaking(self.place, f"add stream {info.name}"):
            present = self._streams.get(info.name)
            if present is not None and present.dimension:
                self.check_stream(info.name, info.fingerprint, info.encoder)
            elif present is not None and info.dimension:
                self._add_vectors(info)
            elif present is None:
                self._create_clips(info)
            self._describe(f"stream:{info.name}", asdict(replace(info, settings=dict(info.settings))))

    def _create_clips(self, info: StreamInfo) -> None:
        name = f"clips_{info.name}"
        table = open_table(self._db, name)  # left by a crash before it was declared
        if table is not None:
            self._db.drop_table(name)
        table = self._db.create_table(name, schema=clips_schema(info.dimension))
        index_ids(table)
        self._tables[name] = table

    def _add_vectors(self, info: StreamInfo) -> None:
        table = self._clips(info.name)
        if "vector" in table.schema.names:  # left by a crash before it was declared
            table.drop_columns(["vector"])
        table.add_columns(_schema_of(vector_field(info.dimension)))

    def remove_stream(self, name: str) -> None:
        """Drop a stream with all its clips; the ledger forgets that it was made."""
        self.stream(name)
        with self.writing(), speaking(self.place, f"remove stream {name}"):
            self._upsert_ledger(
                [
                    replace(
                        record, streams={key: value for key, value in record.streams.items() if key != name}
                    )
                    for record in self.videos()
                    if name in record.streams
                ]
            )
            self._forget([f"stream:{name}", f"index:{name}", f"fact:calibration:{name}"])
            self._db.drop_table(f"clips_{name}", ignore_missing=True)
            self._tables.pop(f"clips_{name}", None)

    def erase(
        self, labels: Mapping[str, Collection[str]], facts: Mapping[str, Mapping[str, Any]] | None = None
    ) -> int:
        """Take the clips with some texts out of streams for good, and put facts in place; how many clips.

        The tables are written anew without them and without what was deleted before, and all older versions
        and indices go at once, those of the facts too: a deletion alone leaves vectors in the files for as
        long as most rows of a file stay. Where a crash cuts this short, the next `optimize` finishes it.
        """
        gone = {stream: among("text", some) for stream, some in labels.items() if some}
        with self.writing(), speaking(self.place, "erase clips"):
            count = sum(int(self._clips(stream).count_rows(rows)) for stream, rows in gone.items())
            for stream in labels:
                self._describe(f"fact:{_ERASING}{stream}", {})
                if stream in gone:
                    self._clips(stream).delete(gone[stream])
            for key, value in (facts or {}).items():
                self._describe(f"fact:{key}", value)
            self._finish_erasing()
            tidy(self._description, self.place)
        return count

    def erase_later(self, streams: Iterable[str]) -> None:
        """Let the next `optimize` write some streams anew: what is replaced until then leaves the disk."""
        with self.writing(), speaking(self.place, "write"):
            for stream in streams:
                self._describe(f"fact:{_ERASING}{stream}", {})

    def _finish_erasing(self) -> None:
        """Write each stream anew of which something was to be erased."""
        if not (erasing := self.facts(_ERASING)):
            return
        for stream in (key.removeprefix(_ERASING) for key in erasing):
            if stream in self._streams:
                rewrite(self._clips(stream), self.place)
                self._index_text(stream)
                self._forget([f"index:{stream}"])
                vectors: Distance | None = "cosine" if self.stream(stream).dimension else None
                self._optimize_table(f"clips_{stream}", stream, vectors, ALWAYS)
        self._forget([f"fact:{key}" for key in erasing])

    # Writing -------------------------------------------------------------------------------------

    def _new_lock(self) -> locks.WriterLock:
        lease = locks.LeaseLock(_DescriptionLease(self._description), locks.LEASE_SECONDS)
        if is_remote(self.place):
            return lease
        folder = folder_of(self.place)
        lock = locks.FolderLock(folder)
        return locks.SharedFolderLock(lock, lease) if is_shared(folder) else lock

    @contextlib.contextmanager
    def writing(
        self, *, wait: float = 0.0, on_wait: Callable[[locks.Holder | None], None] | None = None
    ) -> Iterator[None]:
        """Hold the corpus's writer lock; inside it, other writers wait or get `CorpusBusy`.

        `wait` is how many seconds to wait for another writer; `on_wait` is called once with who that is.
        Other threads that write through this store wait for their turn.
        """
        with self._one_thread:
            if self._depth == 0:
                with speaking(self.place, "lock the corpus"):
                    if is_remote(self.place):
                        check_conditional_put(self.place, self._options)
                    locks.acquire(self._lock, self.place, wait, on_wait)
                self._checksums = {} if is_remote(self.place) else checksums.begin(folder_of(self.place))
            else:
                with speaking(self.place, "write"):
                    self._check_lease()
            self._depth += 1
            try:
                if self._depth == 1:
                    self.refresh()
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    if not is_remote(self.place):
                        checksums.finish(folder_of(self.place), self._checksums)
                    self._versions.clear()
                    self._state_read = LedgerState(-1)
                    with contextlib.suppress(*LANCE_ERRORS):  # a lease that cannot be given back runs out
                        self._lock.release()

    def doubled(self) -> set[str]:
        """Videos of which a clip or the ledger row is there twice: two writers were at work at once.

        Earlier versions let a second one in where the first one's lock file was deleted.
        """
        names = [self._table("videos"), *map(self._clips, self._streams)]

        def read() -> set[str]:
            return {video_id for table in names for video_id in lookup.doubled(table)}

        return self._read("count clips", read)

    def put_video(self, record: VideoRecord, clips: Mapping[str, ClipColumns]) -> None:
        """Write one video: see `put_videos`."""
        self.put_videos([(record, clips)])

    def put_videos(self, entries: Iterable[tuple[VideoRecord, Mapping[str, ClipColumns]]]) -> None:
        """Write videos: their clips in the given streams replace those there are, then their ledger rows.

        Clips of streams that a record's `streams` does not name, and for which none are given, are removed.
        Of two entries with one id the last counts. Raises `DiskFull`, `CorpusBusy`, `UsageError` (an
        undeclared stream, vectors of another width: before anything is changed).
        """
        batch = {record.video_id: (record, clips) for record, clips in entries}
        if not batch:
            return
        with self.writing(), speaking(self.place, "write"):
            tables = {name: self._new_rows(name, batch) for name in _streams_in(batch)}
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
        """Raise what making the rows of a video would raise; nothing is written."""
        ledger_rows([record])
        for name, columns in clips.items():
            clip_rows(self.stream(name), {record.video_id: columns})

    def _new_rows(self, name: str, batch: Mapping[str, tuple[VideoRecord, Mapping[str, ClipColumns]]]) -> Any:
        clips = {video_id: clips[name] for video_id, (_, clips) in batch.items() if name in clips}
        info = self.stream(name)
        given = {column for own in clips.values() for column in own.given_extra}
        given.update(extra_columns(self._clips(name)))
        return clip_rows(info, clips, [column for column in EXTRA_COLUMNS if column in given])

    def _stale(
        self, name: str, batch: Mapping[str, tuple[VideoRecord, Mapping[str, ClipColumns]]]
    ) -> list[str]:
        """Videos whose clips in a stream have to go, where there are any."""
        going = [
            video_id
            for video_id, (record, clips) in batch.items()
            if name in clips or name not in record.streams
        ]
        there = going and self._clips(name).count_rows(among("video_id", going))
        return going if there else []

    def _add_clips(self, name: str, rows: Any) -> None:
        table = self._clips(name)
        for column in set(extra_columns(rows)) - set(extra_columns(table)):
            table.add_columns(_schema_of(extra_field(column)))
        table.add(rows, on_bad_vectors="null")
        if any(rows["context"].to_pylist()):
            self._index_text(name)

    def _index_text(self, name: str) -> None:
        """Index the words of a stream, if it has some."""
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
        """Take videos out, with all their clips; returns how many were there."""
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
            _upsert(self._table("videos"), "video_id", ledger_rows(records))

    def _check_lease(self) -> None:
        if self._lock.is_lost():
            raise locks.CorpusBusy(self.place, self._lock.holder())

    # Reading the ledger --------------------------------------------------------------------------

    def videos(self, video_ids: Sequence[str] | None = None) -> list[VideoRecord]:
        """Ledger rows in order of their id: all, or those of `video_ids` that are there."""
        if video_ids is not None and not video_ids:
            return []

        def read() -> list[VideoRecord]:
            query = self._table("videos").search().limit(None)
            if video_ids is not None:
                query = query.where(among("video_id", video_ids))
            return records_of(query.to_arrow())

        return self._read("read the ledger", read)

    def ledger(self) -> Ledger:
        """All ledger rows, read once for each version and kept in memory; for what only reads."""

        def read() -> Ledger:
            table = self._table("videos")
            return self._ledger.at(
                self._version("videos"), lambda: records_of(table.search().limit(None).to_arrow())
            )

        return self._read("read the ledger", read)

    def video(self, video_id: str) -> VideoRecord | None:
        """One ledger row, or None."""
        return next(iter(self.videos([video_id])), None)

    # Searching -----------------------------------------------------------------------------------

    def nearest(
        self,
        stream: str,
        vector: ArrayLike,
        k: int,
        *,
        video_ids: Sequence[str] | None = None,
        after: float | None = None,
        before: float | None = None,
        exact: bool = False,
    ) -> ClipHits:
        """The k clips whose vectors are nearest to `vector` (D,), by cosine, best first.

        `video_ids` leaves only these videos, `after`/`before` (seconds in the video) only clips that share
        time with that stretch. `exact` never uses the index. Fewer than k clips give fewer than k hits.
        """
        info = self.stream(stream)
        if info.dimension == 0:
            raise UsageError(
                f"{self.place}: stream {stream} has no vectors; index with an encoder to search by meaning"
            )
        query = unit_query(vector, info.dimension, stream)
        narrowing = Narrowing(video_ids, after, before)

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
            )

        return self._read("search", lambda: self._finished(read())) if k > 0 else no_hits()

    def nearest_of_each(self, stream: str, vectors: Sequence[ArrayLike], k: int) -> list[ClipHits] | None:
        """What `nearest` gives for each of some vectors, found together; None where that saves nothing.

        It saves where the stream has an index and is kept in memory.
        """
        info = self.stream(stream)
        queries = [unit_query(vector, info.dimension, stream) for vector in vectors]

        def read() -> list[ClipHits] | None:
            whole = self._memory.stream(stream, self._state(stream))
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
        after: float | None = None,
        before: float | None = None,
        parts: bool = False,
    ) -> ClipHits:
        """The k clips of a stream whose words match best by BM25, best first; any text is a valid query.

        Words are stemmed in the languages of the videos and folded to ASCII; signs and operators mean
        nothing. Only the first 200 different words of a query count. `parts`: also by parts of words, where
        the stream has them.
        """
        self.stream(stream)
        narrowing = Narrowing(video_ids, after, before)
        if k < 1:
            return no_hits()

        def read() -> ClipHits:
            if not self._has_words(stream):
                return no_hits()
            languages = [name for name in self.ledger().languages if has_stems(name)]
            table = self._clips(stream)
            hits = lookup.match(table, query, k, narrowing, languages, self._rows_of(stream))
            return self._with_parts(hits, [table], query, k, narrowing, languages, parts=parts)

        return self._read("search", lambda: self._finished(read()))

    def _with_parts(
        self,
        hits: ClipHits,
        tables: Sequence[Any],
        query: str,
        k: int,
        narrowing: Narrowing,
        languages: Sequence[str],
        *,
        parts: bool,
    ) -> ClipHits:
        """The best k of what words matched and what parts of words match."""
        if compounding := [name for name in languages if makes_compounds(name)]:
            compounds = match_parts(tables, query, k, narrowing, compounding=compounding)
            hits = summed_hits(hits, compounds, k)
        return summed_hits(hits, match_parts(tables, query, k, narrowing), k) if parts else hits

    def _rows_of(self, stream: str) -> HitsAt | None:
        """What reads clips by their numbers from memory; None where the stream is not kept there."""
        whole = self._memory.stream(stream, self._state(stream))
        return None if whole is None else whole.hits_at

    def _finished(self, hits: ClipHits) -> ClipHits:
        """Hits without those in videos that a writer left half-written."""
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
        """All clips of some videos with their vectors (unless `vectors` is false: width 0)."""
        info = self.stream(stream)
        names = list(dict.fromkeys(video_ids))
        dimension = info.dimension if vectors else 0

        def read() -> ClipBlock:
            whole = self._memory.stream(stream, self._state(stream))
            if whole is not None:
                return whole.clips_of(names, vectors=vectors)
            return lookup.clips_of(self._clips(stream), names, dimension)

        return self._read("read clips", read)

    def compared(
        self, stream: str, video_ids: Sequence[str], vector: NDArray[np.float32]
    ) -> tuple[ClipBlock, NDArray[np.float32]]:
        """All clips of some videos without their vectors, and each vector's product with `vector` (D,)."""
        names = list(dict.fromkeys(video_ids))

        def read() -> tuple[ClipBlock, NDArray[np.float32]]:
            whole = self._memory.stream(stream, self._state(stream))
            if whole is not None:
                return whole.clips_of(names, vectors=False), whole.cosines(names, vector)
            block = lookup.clips_of(self._clips(stream), names, self.stream(stream).dimension)
            return replace(block, vectors=block.vectors[:, :0]), np.einsum("ij,j->i", block.vectors, vector)

        return self._read("read clips", read)

    def state_of(self, stream: str) -> tuple[int, int]:
        """What changes whenever the clips of a stream or the facts of the corpus do."""
        return self._read("read the corpus", lambda: self._state(stream))

    def labels(self, stream: str) -> Any:
        """Video, start, end and text of all clips of a stream, as an Arrow table."""
        columns = ["video_id", "start", "end", "text"]
        return self._read(
            "read clips", lambda: self._clips(stream).search().limit(None).select(columns).to_arrow()
        )

    def _state(self, stream: str) -> tuple[int, int]:
        """Changes with a stream's clips; a stream that is made anew counts its versions anew."""
        return self.description_version, self._version(f"clips_{stream}")

    def _searched(self, stream: str) -> WholeStream | None:
        """All clips of a stream in memory, once it was searched often enough unchanged."""
        table, dimension = self._clips(stream), self._streams[stream].dimension
        return self._memory.searched(
            stream,
            self._state(stream),
            lambda: StreamSize(table.count_rows(), dimension),
            partial(WholeStream.read, table),
        )

    def keep_at_most(self, count: int) -> None:
        """Let large streams take at most so many bytes of this process's memory, for all handles."""
        self._memory.keep_at_most(count)

    def clip_counts(self, stream: str) -> dict[str, int]:
        """How many clips each video has in a stream; reads one column of all rows."""

        def read() -> dict[str, int]:
            column = self._clips(stream).search().limit(None).select(["video_id"]).to_arrow()["video_id"]
            return {row["values"]: row["counts"] for row in column.value_counts().to_pylist()}

        return self._read("count clips", read)

    # Upkeep --------------------------------------------------------------------------------------

    def optimize(self, *, force: bool = False) -> None:
        """Merge small fragments, bring indices up to date, drop old versions; call at the end of a run.

        Does only what has become due, unless `force`. A reader whose version goes away meanwhile reads
        again from the newest.
        """
        with self.writing(), speaking(self.place, "optimize"):
            self._finish_erasing()
            self._optimize_if_due(ALWAYS if force else AFTER_RUN)

    def _optimize_if_due(self, due: Schedule) -> None:
        for stream, info in self._streams.items():
            self._optimize_table(f"clips_{stream}", stream, "cosine" if info.dimension else None, due)
        for side in self._sides.values():
            self._optimize_table(side.name, side.name, side.vectors, due)
        ledger = self._table("videos")
        if (LEDGER_WHILE_WRITING if due is WHILE_WRITING else due).is_due(state_of(ledger)):
            index_ids(ledger)
            tidy(ledger, self.place)
            tidy(self._description, self.place)

    def _optimize_table(self, name: str, index: str, vectors: Distance | None, due: Schedule) -> None:
        """Upkeep of one table whose vector index is kept under the key `index`."""
        table = self._table(name)
        if not due.is_due(state_of(table)):
            return
        started = time.monotonic()
        trained = index_vectors(table, self._indices.get(index), vectors) if vectors else None
        tidy(table, self.place)
        if trained is not None:
            self._describe(f"index:{index}", asdict(trained))
        _log.info("%s: table %s optimized in %.1f s", self.place, name, time.monotonic() - started)

    def stats(self) -> StoreStats:
        """Numbers of the corpus as of the last `refresh`."""
        records = self.videos()
        return StoreStats(
            videos=len(records),
            failed=sum(record.state == "failed" for record in records),
            hours=sum(record.duration or 0.0 for record in records) / 3600,
            streams={name: self._stream_stats(name) for name in self._streams},
            bytes=None if is_remote(self.place) else _bytes_under(self.place),
        )

    def check_files(self) -> None:
        """Read all that a corpus holds; raises StoreError for what is gone or not as it was written.

        Where no checksums stand beside it (an object store, or a copy of what was being written), each
        table is read from its first row to its last.
        """
        has_list = not is_remote(self.place) and checksums.has_list(folder_of(self.place))
        with speaking(self.place, "read the corpus"):
            if has_list:
                checksums.verify(self.place, folder_of(self.place), whole=True)
        clips = (f"clips_{stream}" for stream in self._streams)
        for name in () if has_list else ("videos", *clips, *self._sides):
            self._read(f"read all of its table {name}", partial(self._read_whole, name))

    def _read_whole(self, name: str) -> None:
        table = self._table(name)
        rows = sum(batch.num_rows for batch in table.search().limit(None).to_batches())
        if rows != table.count_rows():
            raise StoreError(f"{self.place}: its table {name} lacks rows; copy it again, or index again")

    def _stream_stats(self, stream: str) -> StreamStats:
        table = self._clips(stream)
        state = state_of(table)
        indexed = table.index_stats("vector_idx") if stream in self._indices else None
        unindexed = state.rows if indexed is None else indexed.num_unindexed_rows
        return StreamStats(state.rows, state.fragments, unindexed, indexed is not None)


def _repeated(
    place: str, action: str, read: Callable[[], Result], renew: Callable[[], None] | None = None
) -> Result:
    """What `read` gives, tried again (after `renew`) while a writer's clean-up takes files away under it."""
    attempt = 0
    while True:
        check_budget()
        try:
            if attempt and renew is not None:
                renew()
            return read()
        except BaseException as error:
            if not is_of_storage(error):
                raise
            attempt += 1
            reason = explained(place, action, error)
            # LanceDB has asked a store that refuses several times already.
            if attempt == _READ_ATTEMPTS or is_panic(error) or isinstance(reason, StoreRefused):
                raise reason from error
            time.sleep((attempt - 1) * _READ_PAUSE_SECONDS)


class _DescriptionLease:
    """The lease of a writer: a row of table `corpus`, swapped by a conditional update."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def swap(self, lease: locks.Lease, seen: locks.Lease) -> bool:
        """Store `lease` if what stands there has the owner and the stamp of `seen`; True if stored."""
        same = f"owner = {literal(seen.owner)} AND expires = {seen.stamp!r}"
        where = f"key = {literal(_LEASE_KEY)} AND {same}"
        values = {"owner": lease.owner, "value": lease.value, "expires": lease.stamp}
        self._table.checkout_latest()
        return bool(self._table.update(where=where, values=values).rows_updated)

    def read(self) -> locks.Lease:
        """What was stored last."""
        self._table.checkout_latest()
        rows = self._table.search().where(f"key = {literal(_LEASE_KEY)}").limit(1).to_arrow().to_pylist()
        return locks.Lease(*(rows[0][name] for name in ("owner", "value", "expires")))


def _check_folder(place: str, create: bool) -> None:
    """Refuse what cannot be a corpus before LanceDB makes folders or hides the cause."""
    folder = folder_of(place)
    try:
        if folder.exists() and not folder.is_dir():
            raise NotACorpus(f"{place} is a file; a corpus is a folder")
        names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else None
        if names is None and create:
            folder.mkdir(parents=True)
    except OSError as error:
        raise StoreError(
            f"{place} cannot be used: {error.strerror}; check its name and permissions"
        ) from error
    if names is None and not create:
        raise NotACorpus(f"{place} is not there; {_how_to_make(place)}")
    if names and create and "corpus.lance" not in names:
        strange = names - {"videos.lance", locks.LOCK_FILE, locks.HOLDER_FILE}
        if strange:
            raise NotACorpus(
                f"{place} holds other files ({min(strange)!r}) and no corpus; name a new or an empty folder"
            )


def _how_to_make(place: str) -> str:
    return (
        f"make a corpus with `whenabouts index PATH… --corpus {place}`, or from Python with "
        f"Corpus({place!r}, create=True)"
    )


def _create(db: Any) -> Any:
    """Make the tables; the description last, so that a folder is a corpus only when it is whole."""
    import pyarrow as pa

    form = {"version": FORMAT_VERSION, "whenabouts": whenabouts.__version__}
    facts = [("format", json.dumps(form)), (_LEASE_KEY, "")]
    rows = [{"key": key, "value": value, "owner": "", "expires": 0.0} for key, value in facts]
    db.create_table("videos", schema=ledger_schema(), exist_ok=True)
    try:
        return db.create_table("corpus", pa.Table.from_pylist(rows, schema=description_schema()))
    except LANCE_ERRORS:  # another process was quicker
        description = open_table(db, "corpus")
        if description is None:
            raise
        return description


def _upsert(table: Any, key: str, rows: Any) -> None:
    table.merge_insert(key).when_matched_update_all().when_not_matched_insert_all().execute(rows)


def _schema_of(field: Any) -> Any:
    import pyarrow as pa

    return pa.schema([field])


def _streams_in(batch: Mapping[str, tuple[VideoRecord, Mapping[str, ClipColumns]]]) -> list[str]:
    return sorted({name for _, clips in batch.values() for name in clips})


def without_file(record: VideoRecord) -> VideoRecord:
    """The row while a video's clips are being written: it matches no file, so a crash is noticed."""
    return replace(unlike_its_file(record), content_hash="", streams={})


def unlike_its_file(record: VideoRecord) -> VideoRecord:
    """The row as one that the next index run takes for changed."""
    return replace(record, size=-1, modified_ns=0)


def _bytes_under(place: str) -> int:
    total = 0
    for path in folder_of(place).rglob("*"):
        with contextlib.suppress(OSError):  # a file that a writer has just cleaned up
            total += path.stat().st_size
    return total
