"""One writer per corpus: a POSIX record lock for folders, a lease for object stores.

A folder is held through open descriptors (`locking.py`): the system lets go of them the moment the process
dies, however it dies, so nothing is ever stale, and deleting `writer.lock` lets nobody in. That file is
locked with `lockf`, as earlier versions do. A record lock does not exclude two writers inside one process, so
a set of held paths does. The holder's name stands in a second file, because closing any descriptor of the
locked file would release the lock.

An object store has no locks. There a row of the `corpus` table is leased by compare-and-set (an update
with a condition; the table's own commits make it atomic) and renewed by a thread; after a crash it is
free once the lease has run out (`LEASE_SECONDS`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from whenabouts import locking
from whenabouts.locking import HeldFolder
from whenabouts.product.index.records import StoreError

LOCK_FILE = "writer.lock"
HOLDER_FILE = "writer.json"
LEASE_SECONDS = 60.0
_POLL_SECONDS = 0.1

_held: set[str] = set()
_held_guard = threading.Lock()


@dataclass(frozen=True, slots=True)
class Holder:
    """Who writes: process, machine, and since when (seconds since 1970)."""

    pid: int
    host: str
    since: float

    def __str__(self) -> str:
        minutes = max(0.0, time.time() - self.since) / 60
        return f"process {self.pid} on {self.host}, for {minutes:.0f} min"


class CorpusBusy(StoreError):
    """Another writer is at work; `holder` says who, where that is known."""

    def __init__(self, place: str, holder: Holder | None) -> None:
        self.holder = holder
        super().__init__(
            f"{place} is being written by {holder or 'another process'}; "
            "wait until it is finished, or stop it (what it finished so far is kept)"
        )


class WriterLock(Protocol):
    """The right to write to one corpus."""

    def try_acquire(self) -> bool:
        """Take the lock if it is free; True when it is ours."""

    def holder(self) -> Holder | None:
        """Who has it, as far as that is known."""

    def release(self) -> None:
        """Give it back; does nothing when it is not ours."""


def acquire(
    lock: WriterLock, place: str, wait: float = 0.0, on_wait: Callable[[Holder | None], None] | None = None
) -> None:
    """Take `lock`, waiting up to `wait` seconds; `on_wait` is called once with who is waited for.

    Raises `CorpusBusy` when the time is over.
    """
    deadline = time.monotonic() + wait
    is_announced = False
    while not lock.try_acquire():
        if on_wait is not None and not is_announced and wait > 0:
            on_wait(lock.holder())
            is_announced = True
        if time.monotonic() >= deadline:
            raise CorpusBusy(place, lock.holder())
        time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))


class FolderLock:
    """The writer's lock of a corpus in a folder of this machine (or of NFS with locking)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = str(folder.resolve())
        self._hold: HeldFolder | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free; True when it is ours. `StoreError` if nothing may be written."""
        with _held_guard:
            if self._key in _held:
                return False
            try:
                hold = locking.hold(self._folder, LOCK_FILE, fcntl.lockf)
            except OSError as error:
                raise StoreError(
                    f"{self._folder} cannot be written: {error.strerror}; check its permissions"
                ) from error
            if hold is None:
                return False
            _held.add(self._key)
        self._hold = hold
        self._sign()
        return True

    def _sign(self) -> None:
        """Say who holds the lock. Only for messages: a full disk must not stop a writer here."""
        text = json.dumps(asdict(Holder(os.getpid(), socket.gethostname(), time.time())))
        draft = self._folder / f"{HOLDER_FILE}.{os.getpid()}"
        with contextlib.suppress(OSError):
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._folder / HOLDER_FILE)

    def holder(self) -> Holder | None:
        """Who has it, as far as that is known."""
        try:
            return Holder(**json.loads((self._folder / HOLDER_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def release(self) -> None:
        """Give it back; does nothing when it is not ours."""
        if self._hold is None:
            return
        with contextlib.suppress(OSError):
            (self._folder / HOLDER_FILE).unlink()
        with _held_guard:
            self._hold.release()
            self._hold = None
            _held.discard(self._key)


class LeaseTable(Protocol):
    """Where a lease is kept: a place with an atomic compare-and-set."""

    def swap(self, owner: str, value: str, expires: float, now: float) -> bool:
        """Store `value` for `owner` unless another owner's lease is still running; True if stored."""

    def read(self) -> str | None:
        """The value stored last."""


class LeaseLock:
    """The writer's lock of a corpus on an object store: a lease, renewed while this process lives."""

    def __init__(self, table: LeaseTable, seconds: float = LEASE_SECONDS) -> None:
        self._table = table
        self._seconds = seconds
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(6).hex()}"
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._since = 0.0
        self._lost = False

    def _swap(self, seconds: float) -> bool:
        now = time.time()
        value = json.dumps(asdict(Holder(os.getpid(), socket.gethostname(), self._since)))
        return self._table.swap(self._owner, value, now + seconds, now)

    def try_acquire(self) -> bool:
        """Take the lease if it is free or has run out; True when it is ours."""
        self._since = time.time()
        if self._thread is not None or not self._swap(self._seconds):
            return False
        self._stop.clear()
        self._lost = False
        self._thread = threading.Thread(target=self._renew, name="whenabouts-lease", daemon=True)
        self._thread.start()
        return True

    def _renew(self) -> None:
        while not self._stop.wait(self._seconds / 3):
            with contextlib.suppress(RuntimeError, OSError, ValueError):  # a network that is away comes back
                self._lost = not self._swap(self._seconds)

    @property
    def lost(self) -> bool:
        """Whether another writer took the lease because it could not be renewed in time."""
        return self._lost

    def holder(self) -> Holder | None:
        """Who has it, as far as that is known."""
        try:
            return Holder(**json.loads(self._table.read() or ""))
        except (ValueError, TypeError):
            return None

    def release(self) -> None:
        """Give it back; does nothing when it is not ours."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        self._swap(-1.0)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until the block is done; a second one does not wait.

    LanceDB writes in a thread of its own: an interrupt would leave the write going on while this thread
    believes that it has ended, and begins another.
    """
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    interrupts: list[FrameType | None] = []

    def remember(number: int, frame: FrameType | None) -> None:
        if interrupts:
            previous(number, frame)
        interrupts.append(frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if interrupts:
        previous(signal.SIGINT, interrupts[0])
