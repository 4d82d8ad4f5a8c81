"""A folder of files that are made on demand: within a size, least used go first, each made only once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path

from whenabouts.server.files import OpenFile, open_regular
from whenabouts.types import UsageError

_UNFINISHED = ".part"
_ABANDONED_SECONDS = 3600
Make = Callable[[Path], None]
"""Writes a file under the name it is given; what it leaves under another name is not looked at."""


class Cache:
    """Files by key under one folder, at most `most_bytes` of them.

    A file appears under its name when it is whole, or not at all. Several servers may share a folder: what
    another one has taken away is made again. Raises UsageError for a folder that cannot be written.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder, self._most = folder, most_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._flights: dict[str, asyncio.Task[None]] = {}
        self.bytes = 0
        self.made = 0
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            trial = folder / f".trial-{os.getpid()}"
            trial.touch()
            trial.unlink()
        except OSError as error:
            raise UsageError(
                f"{folder}: no cache can be kept there ({error.strerror}); name another folder with --cache"
            ) from None
        self._take_stock()

    @staticmethod
    def key(*parts: str) -> str:
        """A file name for anything that is told apart by some texts."""
        return blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=20).hexdigest()

    def find(self, name: str) -> OpenFile | None:
        """The file of a name, open, or None; it counts as used now."""
        try:
            opened = open_regular(self._path(name))
        except OSError:
            self._forget(name)
            return None
        with contextlib.suppress(OSError):
            os.utime(opened.descriptor)
        self._note(name, opened.size)
        return opened

    async def get(
        self, name: str, make: Make, run: Callable[[Callable[[], None]], Awaitable[None]]
    ) -> tuple[OpenFile, bool]:
        """The file of a name, open, and whether it was there; `make` writes it, in a thread that `run` picks.

        All who ask while it is being made wait for the one making. What `make` or `run` raises, all get.
        """
        was_there = True
        for _ in range(3):  # another server may throw it away right after it was made
            opened = self.find(name)
            if opened is not None:
                return opened, was_there
            was_there = False
            flight = self._flights.get(name)
            if flight is None:
                flight = asyncio.ensure_future(run(lambda: self._make(name, make)))
                self._flights[name] = flight
                flight.add_done_callback(lambda _: self._flights.pop(name, None))
            await asyncio.shield(flight)
        raise OSError(f"{self.folder} loses its files")

    def _make(self, name: str, make: Make) -> None:
        path = self._path(name)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        # The ending stays, for what writes it may go by it.
        part = path.with_name(f"{path.stem}-{os.getpid()}-{threading.get_ident()}{_UNFINISHED}{path.suffix}")
        try:
            make(part)
            size = part.stat().st_size
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        self.made += 1
        self._note(name, size)

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / name

    def _note(self, name: str, size: int) -> None:
        """Count a file as the last used, and throw away the least used while there is too much."""
        with self._lock:
            self.bytes += size - self._sizes.pop(name, 0)
            self._sizes[name] = size
            while self.bytes > self._most and len(self._sizes) > 1:
                oldest, freed = self._sizes.popitem(last=False)
                self.bytes -= freed
                with contextlib.suppress(OSError):
                    self._path(oldest).unlink()

    def _forget(self, name: str) -> None:
        with self._lock:
            self.bytes -= self._sizes.pop(name, 0)

    def _take_stock(self) -> None:
        """Count what an earlier run has left, in order of use; unfinished files of dead runs go."""
        found = []
        for path in self.folder.glob("??/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                if _UNFINISHED not in path.name:
                    found.append((status.st_mtime_ns, path.name, status.st_size))
                elif time.time() - status.st_mtime > _ABANDONED_SECONDS:
                    path.unlink()
        for _, name, size in sorted(found):
            self._note(name, size)
