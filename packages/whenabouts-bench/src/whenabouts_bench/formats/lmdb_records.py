"""Records of an LMDB file, read by a child process.

LMDB trusts its pages: a page of zeros aborts the process, an offset outside the file causes a bus error, and
nothing is raised. A child process may die of that; its parent reports the damaged file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from whenabouts.intake.files import FormatError, ReaderMissing
from whenabouts.intake.opening import open_regular
from whenabouts_bench.formats import _lmdb_child
from whenabouts_bench.formats._lmdb_child import ALL_KEYS, ERROR, KEY_LENGTH, LENGTH


class LmdbRecords:
    """The records of an LMDB file; a context manager, thread-safe. Only one record is in memory at a time.

    Methods raise FormatError if the file is not LMDB, truncated or damaged; the constructor raises
    ReaderMissing without the package `lmdb`.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._child = _Child(file)

    def all_keys(self) -> list[bytes]:
        """All keys, in order."""
        return list(_split(self._reply(ALL_KEYS, b"")))

    def get(self, key: bytes) -> bytes:
        return self._reply(len(key), key)

    def close(self) -> None:
        self._child.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reply(self, length: int, key: bytes) -> bytes:
        child = self._child
        if child.owner != os.getpid():
            # After a fork the child belongs to the parent; sharing it would mix their replies.
            child = self._child = _Child(self.file)
        return child.reply(LENGTH.pack(length) + key)


def _split(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        (length,) = KEY_LENGTH.unpack_from(content, at)
        at += KEY_LENGTH.size + length
        yield content[at - length : at]


class _Child:
    """The child process, which ends with this object or at exit."""

    def __init__(self, file: Path) -> None:
        package = importlib.util.find_spec("lmdb")
        if package is None or package.origin is None:
            raise ReaderMissing(file, "LMDB", "lmdb")
        try:
            with open_regular(file):
                pass
        except OSError as error:
            raise FormatError(file, f"cannot be read: {error.strerror or error}") from None
        self.owner = os.getpid()
        self._file = file
        self._lock = threading.Lock()
        folder = Path(package.origin).parent.parent
        # Without `site`, which would take most of the start-up time.
        self._process = subprocess.Popen(
            [sys.executable, "-ESP", _lmdb_child.__file__, str(folder), str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.end = weakref.finalize(self, _end, self._process, self.owner)
        try:
            self.reply(b"", "is not a complete LMDB file")
        except FormatError:
            self.end()
            raise

    def reply(self, request: bytes, problem: str = "is damaged") -> bytes:
        """The child's reply. Raises FormatError with its error, or if it died."""
        requests, replies = self._process.stdin, self._process.stdout
        assert requests is not None
        assert replies is not None
        with self._lock:
            with contextlib.suppress(OSError):  # a dead child sends no reply either
                requests.write(request)
                requests.flush()
            if (content := self._content()) is not None:
                return content
            error = self._content()
        reason = self._death() if error is None else error.decode("utf-8", "replace")
        raise FormatError(self._file, f"{problem} ({reason}); fetch it again")

    def _content(self) -> bytes | None:
        """The child's next content; None before an error, or if it died."""
        replies = self._process.stdout
        assert replies is not None
        head = replies.read(LENGTH.size)
        length = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else ERROR
        if length == ERROR:
            return None
        content = replies.read(length)
        return content if len(content) == length else None

    def _death(self) -> str:
        code = self._process.wait()
        return f"reading it ended the LMDB library: {signal.Signals(-code).name if code < 0 else code}"


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """Close the pipes and kill the child; in a forked process, only close its copies of the pipes."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    if owner == os.getpid():
        process.kill()
        process.wait()
