"""A folder of files that are made on demand: bounded in size, the least recently used go first.

diskcache would keep the bound only roughly (it culls ten files a write), copy each clip once more, and
unpickle what lies in its folder; cachetools refuses a file that is larger than the cache. Making a file once
for all who wait for it would be ours with either.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path

from whenabouts.server.files import OpenFile, open_regular
from whenabouts.types import UsageError

_UNFINISHED = ".part"
_NAME = re.compile(r"[0-9a-f]{40}(-[0-9]+-[0-9]+\.part)?(?:\.[a-z0-9]+)?")
_ABANDONED_SECONDS = 3600
Make = Callable[[Path], None]
"""Writes a file at the path it is given."""


class Cache:
    """Files by key under one folder, at most `most_bytes` of them.

    A file appears under its name when it is whole, or not at all. Several servers may share a folder: a file
    that another server has deleted is made again. Raises UsageError for a folder that cannot be written.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder, self._most = folder, most_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._being_made: dict[str, asyncio.Task[None]] = {}
        self.bytes = 0
        self.made = 0
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise UsageError(
                f"{folder}: no cache can be kept there ({error.strerror}); name another folder with --cache"
            ) from None
        self._read_folder()

    @staticmethod
    def key(*parts: str) -> str:
        """A file name that no other sequence of texts has."""
        return blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=20).hexdigest()

    def find(self, name: str) -> OpenFile | None:
        """The file of a name, open, or None; it is now the most recently used."""
        try:
            opened = open_regular(self._path(name))
        except OSError:
            self._drop(name)
            return None
        with contextlib.suppress(OSError):
            os.utime(opened.descriptor)
        self._note(name, opened.status.st_size)
        return opened

    async def get(
        self, name: str, make: Make, run: Callable[[Callable[[], None]], Awaitable[None]]
    ) -> tuple[OpenFile, bool]:
        """The file of a name, open, and whether it was there; `make` writes it, in a thread that `run` picks.

        Requests for a file that is being made wait for it, and get the error of `make` or `run` if it fails.
        """
        was_there = True
        for _ in range(3):  # another server may delete it right after it was made
            opened = self.find(name)
            if opened is not None:
                return opened, was_there
            was_there = False
            task = self._being_made.get(name)
            if task is None:
                task = asyncio.ensure_future(run(lambda: self._make(name, make)))
                self._being_made[name] = task
                task.add_done_callback(lambda _: self._being_made.pop(name, None))
            # Shielded: a client that goes away must not take the file from the others who wait for it.
            await asyncio.shield(task)
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
        """Count a file as the most recently used; delete the least recently used while there is too much."""
        with self._lock:
            self.bytes += size - self._sizes.pop(name, 0)
            self._sizes[name] = size
            while self.bytes > self._most and len(self._sizes) > 1:
                oldest, freed = self._sizes.popitem(last=False)
                self.bytes -= freed
                with contextlib.suppress(OSError):
                    self._path(oldest).unlink()

    def _drop(self, name: str) -> None:
        with self._lock:
            self.bytes -= self._sizes.pop(name, 0)

    def _read_folder(self) -> None:
        """Count the files of earlier servers, in order of use; delete what killed servers left unfinished."""
        files = []
        for path in self.folder.glob("??/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                kept = _NAME.fullmatch(path.name)  # other files are not ours to count or delete
                if kept is None or path.parent.name != path.name[:2]:
                    continue
                if kept[1] is None:
                    files.append((status.st_mtime_ns, path.name, status.st_size))
                elif time.time() - status.st_mtime > _ABANDONED_SECONDS:
                    path.unlink()
        for _, name, size in sorted(files):
            self._note(name, size)
