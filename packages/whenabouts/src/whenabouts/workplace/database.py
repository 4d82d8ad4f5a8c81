"""The file `workplace.sqlite` of a corpus: its collections, saved searches and jobs.

The file may come from someone else, so its tables are checked. Several processes may write: each change is a
transaction, SQLite serializes them, and a writer that is killed changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator

from whenabouts.index.lance import folder_of, is_remote
from whenabouts.index.records import DiskFull, StoreError, printable
from whenabouts.types import UsageError

FILE = "workplace.sqlite"
# How long to wait for another writer; a change takes milliseconds.
_WAIT_SECONDS = 10.0
# Most bytes of a text or a row.
_LONGEST = 1 << 20
# `_version` compares these statements with the file's letter by letter: never edit one, add a version.
_COLLECTIONS = (
    "CREATE TABLE collections (id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, note TEXT NOT NULL, "
    "changed REAL NOT NULL) STRICT",
    "CREATE TABLE items (id TEXT PRIMARY KEY, collection TEXT NOT NULL REFERENCES collections (id) "
    "ON DELETE CASCADE, place INTEGER NOT NULL, video_id TEXT NOT NULL, start REAL NOT NULL, end REAL NOT "
    "NULL, note TEXT NOT NULL, tags TEXT NOT NULL, query TEXT NOT NULL) STRICT",
    "CREATE INDEX items_in_order ON items (collection, place)",
    "CREATE TABLE searches (name TEXT PRIMARY KEY, question TEXT NOT NULL, saved REAL NOT NULL, "
    "moments TEXT NOT NULL) STRICT",
)
_JOBS = (
    "CREATE TABLE jobs (id TEXT PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, wish TEXT NOT NULL, "
    "made REAL NOT NULL, tries INTEGER NOT NULL, task TEXT NOT NULL, plan TEXT NOT NULL, progress TEXT NOT "
    "NULL, outcome TEXT NOT NULL) STRICT",
    "CREATE TABLE watched (path TEXT PRIMARY KEY, since REAL NOT NULL, last TEXT NOT NULL) STRICT",
)
_CONTENTS = (
    "CREATE TABLE contents (item TEXT PRIMARY KEY REFERENCES items (id) ON DELETE CASCADE, "
    "content TEXT NOT NULL) STRICT",
)
_SCHEMAS = (_COLLECTIONS, _JOBS, _CONTENTS)
"""The tables added by each version of the file."""
JOBS_VERSION, _CONTENTS_VERSION = 2, 3


class Database:
    """The workplace file of the corpus in a folder. The first change creates it.

    Raises UsageError if the corpus is not one local folder.
    """

    def __init__(self, place: str) -> None:
        if is_remote(place):
            raise UsageError(
                f"{place} is on an object store, which cannot hold collections and saved searches; use"
                " a corpus in a folder"
            )
        if not folder_of(place).is_dir():
            raise UsageError(
                f"{place} are searched side by side; open only the one whose collections you want"
            )
        self.path = folder_of(place) / FILE

    @contextlib.contextmanager
    def reading(self, version: int = 1) -> Iterator[sqlite3.Connection | None]:
        """A connection that sees one state. Raises StoreError.

        None if nothing is stored yet, or the file is older than `version`.
        """
        if not self.path.exists():
            yield None
            return
        # A killed writer leaves a journal, which only a process with write access can roll back.
        mode = "rw" if os.access(self.path, os.W_OK) else "ro"
        with self._opened(mode) as connection:
            connection.execute("BEGIN")
            if (present := self._version(connection)) < _CONTENTS_VERSION:
                connection.execute("CREATE TEMP TABLE contents (item TEXT, content TEXT)")
            yield connection if present >= version else None

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are all stored, or none if an error is raised. Raises StoreError."""
        if not self.path.exists():
            with self._explained():
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        with self._opened("rw") as connection:
            connection.execute("BEGIN IMMEDIATE")
            for tables in _SCHEMAS[self._version(connection) :]:
                for statement in tables:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(_SCHEMAS)}")
            yield connection
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def _opened(self, mode: str) -> Iterator[sqlite3.Connection]:
        with self._explained():
            # A link in someone else's corpus could lead out of it.
            if not stat.S_ISREG(self.path.lstat().st_mode):
                raise StoreError(f"{self.path} is not a regular file; remove it")
            connection = sqlite3.connect(
                f"{self.path.as_uri()}?mode={mode}", uri=True, timeout=_WAIT_SECONDS, isolation_level=None
            )
            with contextlib.closing(connection):
                connection.row_factory = sqlite3.Row
                # Escape invalid bytes: one text that is not UTF-8 must not hide all others.
                connection.text_factory = lambda text: text.decode("utf-8", "backslashreplace")
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
                for pragma in ("trusted_schema = OFF", "foreign_keys = ON", "cell_size_check = ON"):
                    connection.execute(f"PRAGMA {pragma}")
                yield connection

    def _version(self, connection: sqlite3.Connection) -> int:
        """How many of `_SCHEMAS` the file has. Raises StoreError for other tables or triggers."""
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(_SCHEMAS):
            raise StoreError(
                f"{self.path} was written by a newer version; upgrade: pip install -U whenabouts"
            )
        rows = connection.execute("SELECT sql FROM sqlite_schema WHERE sql NOT NULL")
        present = {row["sql"] for row in rows}
        if present != {statement for tables in _SCHEMAS[: max(version, 0)] for statement in tables}:
            raise StoreError(
                f"{self.path} is not a file of collections and jobs; move it away, and a new one is created"
            )
        return max(version, 0)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of SQLite and the disk into a StoreError that names the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code == sqlite3.SQLITE_FULL:
                raise DiskFull(f"{self.path}: the disk is full; free some space and try again") from error
            busy = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            hint = (
                "another process is changing it; try again" if busy else "check the disk and its permissions"
            )
            raise StoreError(f"{self.path} cannot be used ({error}); {hint}") from error
        except sqlite3.DataError as error:
            raise StoreError(f"{self.path}: {error}: over {_LONGEST:,} bytes; store less at once") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"{self.path} is damaged ({error}); restore it from a copy, or remove it"
            ) from error
        except UnicodeEncodeError as error:
            text = printable(error.object[:40])
            raise UsageError(f"{text!r} holds bytes that are not UTF-8; leave them out") from None
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be used ({error.strerror}); check its permissions"
            ) from error
