"""Opens a corpus: its LanceDB tables, their description, and the snapshot that is read.

Tables: `corpus` (format version, streams, facts, and the writer's lease), `videos` (the ledger: one row per
video) and one table `clips_<stream>` per stream (one row per clip: id, times, words, vector). Callers may add
tables with a column `video_id` (`SideTable`, such as those of `keys.py`). These get the same upkeep, and lose
a video's rows when the video is removed.

Streams have different time grids, so in one table for all nearly every row would hold one vector and nulls,
which LanceDB stores at full width: 329 MB and 264 ms an exact search for 2 x 100,000 clips of width 384, and
2 x 78 MB and 107 ms in two tables.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import msgspec

from whenabouts.budget import check_budget
from whenabouts.index import checksums, lookup, stranger
from whenabouts.index import lock as locks
from whenabouts.index.conditional_put import check_conditional_put
from whenabouts.index.lance import (
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
from whenabouts.index.ledger import LedgerMemory, LedgerState, LedgerWatch
from whenabouts.index.lookup import literal
from whenabouts.index.memory import ClipMemory
from whenabouts.index.records import (
    EncoderMismatch,
    NewerCorpus,
    NotACorpus,
    StoreError,
    StoreRefused,
    StreamInfo,
    description_schema,
    ledger_schema,
)
from whenabouts.index.vector_index import Distance, VectorIndex
from whenabouts.index.word_statistics import WordsByLanguage
from whenabouts.intake.files import loads
from whenabouts.locking import is_shared
from whenabouts.types import UsageError
from whenabouts.version import __version__

FORMAT_VERSION = 1
# A clean-up may delete a file of an old version between opening and reading it. A reader that loses this race
# tries again with the newest version.
_READ_ATTEMPTS = 10
_READ_PAUSE_SECONDS = 0.02
# A video is written within some tenths of a second; readers without an earlier snapshot wait that long.
_WHOLE_ATTEMPTS, _WHOLE_PAUSE_SECONDS = 25, 0.02
_LEASE_KEY = "writer"
ERASING = "erasing"
"""Key of the fact that marks an unfinished erasing (`Store.erase`)."""
# The coarsest file system clocks tick every two seconds.
_SETTLED_NS = 3_000_000_000

Result = TypeVar("Result")
_Described = TypeVar("_Described")
_Fact = dict[str, Any]
_TABLE_NAME = re.compile(r"\w[\w.-]*")


@dataclass(frozen=True, slots=True)
class SideTable:
    """A table beside the clips; `vectors` is the distance of its column `vector`, None without one."""

    name: str
    vectors: Distance | None = None

    def __post_init__(self) -> None:
        if not _TABLE_NAME.fullmatch(self.name):
            raise UsageError(f"{self.name!r} is not the name of a table")


@dataclass(frozen=True, slots=True)
class _Format:
    """The version of the corpus's format, and that of the program that wrote it, under its name."""

    version: int
    whenabouts: str = ""
    cuepoint: str = ""


@dataclass(frozen=True, slots=True)
class Erasing:
    """The fact `ERASING`: clips to erase, by stream and text (`labels`), `videos`, and streams (`dropped`).

    `command` is a digest of the command that erases, `answer` the result that it returns.
    """

    command: str = ""
    answer: Any = None
    labels: Mapping[str, list[str]] = field(default_factory=dict)
    videos: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


class Handle:
    """An open corpus: its tables and the snapshot that is read, as of `refresh`.

    `moves` counts changes of the snapshot. If it changes between two reads, because a writer's clean-up
    deleted the files of the first snapshot, the results come from two snapshots.
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
        self._words_by_language: dict[str, tuple[Hashable, WordsByLanguage | None]] = {}
        self._one_thread = threading.RLock()
        self._watch, self._state_read = LedgerWatch(lambda: open_table(db, "videos")), LedgerState(-1)
        self.moves = 0
        _repeated(place, "open the corpus", self._move)

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str],
        *,
        create: bool = False,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Open a corpus in a folder or under an object store's URI; create it first if `create` is true.

        Raises `NotACorpus` if there is no corpus (with `create`: if other files are there), `NewerCorpus` for
        a later format, `StoreError` if the files cannot be read.
        """
        place = os.fspath(location)
        check_scheme(place)
        if not is_remote(place):
            _check_folder(place, create)
        with speaking(place, "open the corpus"):
            refuse_links(place)
            if not is_remote(place):
                checksums.verify(place, folder_of(place))
                stranger.check(place, folder_of(place))
            db = connect(place, storage_options)
            description = _repeated(place, "open the corpus", lambda: open_table(db, "corpus"))
            if description is None and create:
                if is_remote(place):
                    check_conditional_put(place, storage_options)
                description = _create(db)
                if not is_remote(place):
                    stranger.finish(folder_of(place))
        if description is None:
            raise NotACorpus(f"{place} holds no corpus; {_how_to_make(place)}")
        return cls(place, db, description, storage_options)

    def beside(self) -> Self:
        """Another handle for another thread, with its own tables and shared caches."""
        opened = _repeated(self.place, "open the corpus", lambda: open_table(self._db, "corpus"))
        store = type(self)(self.place, self._db, opened, self._options)
        store._memory, store._ledger = self._memory, self._ledger
        return store

    def drop_kept(self) -> None:
        """Free clips, ledger rows and words in memory, for all handles."""
        self._memory.drop()
        self._ledger.drop()
        lookup.drop_words()

    @property
    def version(self) -> int:
        """A number that grows with every change of the ledger."""
        return self._version("videos")

    def refresh(self) -> None:
        """Read the newest snapshot from now on (about 1 ms, less if nothing changed)."""
        now = self._written_at()
        if now is None or now != self._seen or self._depth:
            is_newest = _repeated(self.place, "read the corpus", lambda: self._move(must=False))
            # A coarse clock may give the next write the same time, so recent times are not trusted.
            settled = now is not None and max(at for at, _ in now) < time.time_ns() - _SETTLED_NS
            self._seen = now if settled and is_newest else None

    def _written_at(self) -> list[tuple[int, int]] | None:
        """When a version was last added to each open table; None on object stores.

        A commit adds a file to the folder of versions, which changes the folder's time. Reading that time is
        a thousand times faster than asking LanceDB.
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
        """The version of a table in the present snapshot."""
        if self._depth or table not in self._versions:
            self._versions[table] = self._read("read the corpus", lambda: int(self._table(table).version))
        return self._versions[table]

    def _move(self, *, must: bool = True) -> bool:
        """Move all tables to the newest consistent snapshot (`ledger.py`); false if it stays where it is.

        It stays while there is no consistent snapshot, unless `must` is true.
        """
        if self._depth:
            moves, before = self.moves, self._ledger_read()
            self._move_tables()
            if before is not None and self._ledger_read() == before:
                self.moves = moves  # nobody else wrote, so cached results stay valid
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
            must = True  # a writer came between, so the tables may be from two snapshots
        # If no attempt met a consistent snapshot, videos unfinished before or after are hidden.
        self._state_read = LedgerState(ahead.version, ahead.unfinished | after.unfinished)
        return True

    def _ledger_read(self) -> int | None:
        """The ledger's version that is read; None if it is not open."""
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
            except LANCE_ERRORS:  # its stream was removed
                del self._tables[name]

    def _read_description(self) -> None:
        version = self._description.version
        rows = self._description.search().limit(10_000).to_arrow()
        facts = dict(zip(map(str, rows["key"].to_pylist()), rows["value"].to_pylist(), strict=True))
        form = self._value("format", facts.get("format", '{"version": 0}'), _Format)
        if form.version > FORMAT_VERSION:
            raise NewerCorpus(
                f"{self.place} has corpus format {form.version} (written by whenabouts "
                f"{form.whenabouts or form.cuepoint or '?':.40}); this is whenabouts "
                f"{__version__}, which reads up to format {FORMAT_VERSION}: upgrade whenabouts"
            )
        streams = self._described(facts, "stream:", StreamInfo)
        sides = self._described(facts, "table:", SideTable)
        self._streams = {info.name: info for info in streams.values()}
        self._sides = {side.name: side for side in sides.values()}
        self._indices = self._described(facts, "index:", VectorIndex)
        self._facts = {
            key.removeprefix("fact:"): value for key, value in facts.items() if key.startswith("fact:")
        }
        self.description_version = version

    def _described(
        self, facts: Mapping[str, str], prefix: str, kind: type[_Described]
    ) -> dict[str, _Described]:
        """The facts whose key begins with `prefix`, each as one `kind`. Raises StoreError."""
        return {
            key.removeprefix(prefix): self._value(key, value, kind)
            for key, value in facts.items()
            if key.startswith(prefix)
        }

    def _value(self, key: str, text: str, kind: type[_Described]) -> _Described:
        try:
            return msgspec.convert(loads(text), kind)
        except (ValueError, TypeError, UsageError) as error:
            raise StoreError(
                f"{self.place} is damaged: {key!r:.60} in its description is not what whenabouts writes "
                f"({str(error)[:80]!r}); restore the corpus from a copy"
            ) from error

    def fact(self, key: str) -> Mapping[str, Any] | None:
        """A small fact kept with the corpus (JSON), or None."""
        return self._value(key, self._facts[key], _Fact) if key in self._facts else None

    def facts(self, prefix: str) -> dict[str, Mapping[str, Any]]:
        """All facts whose key begins with `prefix`, by key."""
        return {
            key: self._value(key, value, _Fact)
            for key, value in self._facts.items()
            if key.startswith(prefix)
        }

    @property
    def erasing(self) -> Erasing | None:
        """The erasing that is not finished, if there is one. Raises StoreError for a fact of another form."""
        return self._value(ERASING, self._facts[ERASING], Erasing) if ERASING in self._facts else None

    @property
    def streams(self) -> Mapping[str, StreamInfo]:
        return dict(self._streams)

    def stream(self, name: str) -> StreamInfo:
        """The stream of that name. Raises UsageError, with the existing names, for an unknown one."""
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

    @property
    def sides(self) -> Mapping[str, SideTable]:
        """The tables that callers keep beside the clips, by name."""
        return dict(self._sides)

    def _table(self, name: str) -> Any:
        if name not in self._tables:
            table = _repeated(self.place, f"open table {name}", lambda: open_table(self._db, name))
            if table is None:
                raise StoreError(
                    f"{self.place} lacks its table {name}; restore it from a copy, or index again"
                )
            self._tables[name] = table
            if not self._depth and self._watch.newest() != self._state_read:
                self._move()  # it is newer than the tables opened before
        return self._tables[name]

    def _clips(self, stream: str) -> Any:
        self.stream(stream)
        return self._table(f"clips_{stream}")

    def _read(self, action: str, read: Callable[[], Result]) -> Result:
        """The result of `read`, repeated on the newest snapshot if a clean-up deletes files meanwhile."""
        return _repeated(self.place, action, read, self._move)

    def _new_lock(self) -> locks.WriterLock:
        lease = locks.LeaseLock(_DescriptionLease(self._description), locks.LEASE_SECONDS)
        if is_remote(self.place):
            return lease
        folder = folder_of(self.place)
        lock = locks.FolderLock(folder)
        return locks.SharedFolderLock(lock, lease) if is_shared(folder) else lock


def _repeated(
    place: str, action: str, read: Callable[[], Result], renew: Callable[[], object] | None = None
) -> Result:
    """The result of `read`, tried again (after `renew`) while a writer's clean-up deletes files under it."""
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
            # LanceDB has already asked a refusing store several times.
            if attempt == _READ_ATTEMPTS or is_panic(error) or isinstance(reason, StoreRefused):
                raise reason from error
            time.sleep((attempt - 1) * _READ_PAUSE_SECONDS)


class _DescriptionLease:
    """The writer's lease: a row of table `corpus`, swapped by a conditional update."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def swap(self, lease: locks.Lease, seen: locks.Lease) -> bool:
        same = f"owner = {literal(seen.owner)} AND expires = {seen.stamp!r}"
        where = f"key = {literal(_LEASE_KEY)} AND {same}"
        values = {"owner": lease.owner, "value": lease.value, "expires": lease.stamp}
        self._table.checkout_latest()
        return bool(self._table.update(where=where, values=values).rows_updated)

    def read(self) -> locks.Lease:
        self._table.checkout_latest()
        rows = self._table.search().where(f"key = {literal(_LEASE_KEY)}").limit(1).to_arrow().to_pylist()
        return locks.Lease(*(rows[0][name] for name in ("owner", "value", "expires")))


def _check_folder(place: str, create: bool) -> None:
    """Raise NotACorpus or StoreError for a place that cannot be a corpus; with `create`, make its folder."""
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
    """Create the tables; the description last, so that a folder is a corpus only when complete."""
    import pyarrow as pa

    form = {"version": FORMAT_VERSION, "whenabouts": __version__}
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
