"""A folder of files made on demand, bounded in size; the least recently used are deleted first.

diskcache exceeds its bound at times (it deletes ten files per write), copies each clip once more, and
unpickles files in its folder. cachetools refuses a file larger than the cache. Neither makes a file only once
for all requests that wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path

from whenabouts.server.files import OpenFile, open_regular
from whenabouts.types import UsageError
from whenabouts.video.files import with_home
from whenabouts.workplace.cached import cached_files

_UNFINISHED = ".part"
_ABANDONED_SECONDS = 3600
Make = Callable[[Path], None]
"""Writes a file to the given path."""


class Cache:
    """Files by key in one folder, of which this process keeps at most `most_bytes`, or a single larger file.

    The process counts the files present at its start and those it made or read. Servers may share a folder,
    which then grows to the sum of their bounds; a file that another server deleted is made again. A file
    appears under its name only when complete. Raises UsageError if the folder is not writable.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder = folder = with_home(folder)
        self._most = most_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._being_made: dict[str, asyncio.Task[None]] = {}
        self.bytes = 0
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise UsageError(
                f"{folder}: cannot be used as a cache ({error.strerror}); name another folder with --cache"
            ) from None
        self._read_folder()

    def find(self, name: str) -> OpenFile | None:
        """The open file of a name, or None. Marks it as most recently used."""
        try:
            opened = open_regular(self._path(name))
        except OSError:
            with self._lock:
                self.bytes -= self._sizes.pop(name, 0)
            return None
        with contextlib.suppress(OSError):
            os.utime(opened.descriptor)
        self._note(name, opened.status.st_size)
        return opened

    async def get(
        self, name: str, make: Make, run: Callable[[Callable[[], None]], Awaitable[None]]
    ) -> tuple[OpenFile, bool]:
        """The open file of a name, and whether it existed. If it did not, `run` calls `make` to write it.

        Concurrent requests wait for the same call, and all get its error.
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
            # Shielded, because a client that leaves must not cancel the file for others.
            await asyncio.shield(task)
        raise OSError(f"{self.folder}: files disappear as soon as they are made")

    def _make(self, name: str, make: Make) -> None:
        path = self._path(name)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        # The suffix stays, because a writer may choose its format by it.
        part = path.with_name(f"{path.stem}-{os.getpid()}-{threading.get_ident()}{_UNFINISHED}{path.suffix}")
        try:
            make(part)
            size = part.stat().st_size
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        self._note(name, size)

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / name

    def _note(self, name: str, size: int) -> None:
        """Record a file as most recently used; delete the least recently used until the bound holds."""
        with self._lock:
            self.bytes += size - self._sizes.pop(name, 0)
            self._sizes[name] = size
            while self.bytes > self._most and len(self._sizes) > 1:
                oldest, freed = self._sizes.popitem(last=False)
                self.bytes -= freed
                with contextlib.suppress(OSError):
                    self._path(oldest).unlink()

    def _read_folder(self) -> None:
        """Count the files of earlier servers, in order of use; delete those with old names or abandoned."""
        files = []
        for path, video, is_unfinished in cached_files(self.folder):
            with contextlib.suppress(OSError):
                status = path.stat()
                is_abandoned = time.time() - status.st_mtime > _ABANDONED_SECONDS
                if video is not None and not is_unfinished:
                    files.append((status.st_mtime_ns, path.name, status.st_size))
                elif is_abandoned or not is_unfinished:
                    path.unlink()
        for _, name, size in sorted(files):
            self._note(name, size)
