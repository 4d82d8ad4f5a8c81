"""The writer's lock of a corpus: locks of the system for folders, a lease for object stores.

In a folder, `writer.lock` and the folder itself are locked (`locking.py`). The system releases these locks
when the process dies, so none is ever stale; and deleting the file admits no second writer. The file is
locked with `lockf`, which also keeps out earlier versions. Such a lock does not exclude a second writer in
the same process; the set `_held` does. Closing any descriptor of the file would release it, so the holder's
name, which others read, is in a second file.

An object store has no locks. There a row of the `corpus` table is leased by compare-and-set (a conditional
update, which the store's conditional puts make atomic) and renewed by a thread. Another writer watches a
taken lease: a renewal shows that its holder lives; after `LEASE_SECONDS` without one, the holder is dead.

A folder that several machines mount has both, because the system's locks may be local to each machine, and
two writers at once would delete each other's files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from whenabouts import locking
from whenabouts.index.records import StoreError
from whenabouts.intake.files import FormatError, write_atomically
from whenabouts.intake.opening import read_regular
from whenabouts.intake.own_files import own_file
from whenabouts.locking import HeldFolder

LOCK_FILE = "writer.lock"
HOLDER_FILE = "writer.json"
LEASE_SECONDS = 60.0
_RENEWALS = 6
"""Renewals of a lease in `LEASE_SECONDS`; the first that another writer sees shows that the holder lives."""
_MOST_HOLDER_BYTES, _LONGEST_HOST, _LONGEST_VERB = 4096, 255, 40
_POLL_SECONDS = 0.1
_LEASE_POLL_SECONDS = 1.0

_held: set[str] = set()
_held_guard = threading.Lock()


@dataclass(frozen=True, slots=True)
class Holder:
    """The writer: process, machine, start (seconds since 1970), and verb of `whenabouts` ("": unknown)."""

    pid: int
    host: str
    since: float
    verb: str = ""

    @classmethod
    def of(cls, text: str | bytes) -> Holder | None:
        """The writer that a JSON text names; None if it names none."""
        try:
            facts = json.loads(text)
            host, verb = str(facts["host"])[:_LONGEST_HOST], str(facts.get("verb", ""))[:_LONGEST_VERB]
            return cls(int(facts["pid"]), host, float(facts["since"]), verb)
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
            return None

    def __str__(self) -> str:
        minutes = max(0.0, time.time() - self.since) / 60
        command = f"`whenabouts {self.verb}`, " if self.verb else ""
        return f"{command}process {self.pid} on {self.host}, for {minutes:.0f} min"


def verb_here() -> str:
    """The verb of this process, which for a job of a server is the server's; "" in other programs."""
    program = Path(sys.argv[0])
    is_ours = program.name in ("whenabouts", "job_worker.py") or program.parent.name == "whenabouts"
    return next((word for word in sys.argv[1:] if not word.startswith("-")), "") if is_ours else ""


class CorpusBusy(StoreError):
    """Another process, or another `Store` in this process, is writing; `holder` is the process, if known."""

    def __init__(self, place: str, holder: Holder | None) -> None:
        self.holder = holder
        is_endless = holder is not None and holder.verb in ("watch", "serve", "mcp")
        until = "it pauses between two changes (--wait does so)" if is_endless else "it is finished"
        super().__init__(
            f"{place} is being written by {holder or 'another process'}; "
            f"wait until {until}, or stop it (what it finished so far is kept)"
        )


class WriterLock(Protocol):
    """The right to write to one corpus.

    `is_undecided` is true until the holder is known to live or not; `poll_seconds` is the time between tries.
    """

    is_undecided: bool
    poll_seconds: float

    def try_acquire(self) -> bool:
        """Take the lock if it is free; true if it was taken."""

    def holder(self) -> Holder | None:
        """The holder, if known."""

    def is_lost(self) -> bool:
        """Whether another writer may have taken our lock."""

    def release(self) -> None:
        """Release the lock; do nothing if it is not held."""


def acquire(
    lock: WriterLock, place: str, wait: float = 0.0, on_wait: Callable[[Holder | None], None] | None = None
) -> None:
    """Take `lock`, waiting up to `wait` seconds; `on_wait` is called once with the holder.

    Waits longer while it is not known whether the holder is alive. Then raises `CorpusBusy`.
    """
    deadline = time.monotonic() + wait
    is_announced = False
    while not lock.try_acquire():
        if on_wait is not None and not is_announced and (wait > 0 or lock.is_undecided):
            on_wait(lock.holder())
            is_announced = True
        if time.monotonic() >= deadline and not lock.is_undecided:
            raise CorpusBusy(place, lock.holder())
        time.sleep(lock.poll_seconds)


class FolderLock:
    """The writer's lock of a corpus in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = str(folder.resolve())
        self._hold: HeldFolder | None = None
        self.is_undecided = False
        self.poll_seconds = _POLL_SECONDS

    def try_acquire(self) -> bool:
        """Take the lock if it is free. Raises `StoreError` if the folder cannot be written."""
        with _held_guard:
            if self._key in _held:
                return False
            try:
                hold = locking.hold(self._folder, LOCK_FILE, fcntl.lockf)
            except OSError as error:
                remedy = "mount it for writing" if error.errno == errno.EROFS else "check its permissions"
                raise StoreError(f"{self._folder} cannot be written: {error.strerror}; {remedy}") from error
            if hold is None:
                return False
            _held.add(self._key)
        self._hold = hold
        self._sign()
        return True

    def _sign(self) -> None:
        """Write who holds the lock, for messages only: a full disk is ignored."""
        text = json.dumps(asdict(Holder(os.getpid(), socket.gethostname(), time.time(), verb_here())))
        with (
            contextlib.suppress(OSError, FormatError),
            write_atomically(own_file(self._folder, HOLDER_FILE)) as stream,
        ):
            stream.write(text.encode())

    def holder(self) -> Holder | None:
        try:
            return Holder.of(read_regular(self._folder / HOLDER_FILE, _MOST_HOLDER_BYTES))
        except OSError:
            return None

    def is_lost(self) -> bool:
        return False

    def release(self) -> None:
        if self._hold is None:
            return
        with contextlib.suppress(OSError):
            (self._folder / HOLDER_FILE).unlink()
        with _held_guard:
            self._hold.release()
            self._hold = None
            _held.discard(self._key)


@dataclass(frozen=True, slots=True)
class Lease:
    """A stored lease: its owner ("" if free), a description of the holder, and a stamp.

    Each renewal changes `stamp`: the end of the lease by the holder's clock, in seconds since 1970. Earlier
    versions read it as a time; this one only compares stamps with each other.
    """

    owner: str
    value: str
    stamp: float


class LeaseTable(Protocol):
    """Storage of a lease with an atomic compare-and-set."""

    def swap(self, lease: Lease, seen: Lease) -> bool:
        """Store `lease` if the stored one has the owner and the stamp of `seen`; true if stored."""

    def read(self) -> Lease:
        """The stored lease."""


class LeaseLock:
    """The writer's lock of a corpus on an object store: a lease, renewed while this process lives.

    A holder that has not renewed for `seconds`, by this process's clock, is dead, and its lease is taken
    over. Clocks of two machines are never compared, so they may differ by hours.
    """

    def __init__(self, table: LeaseTable, seconds: float) -> None:
        self._table = table
        self._seconds = seconds
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(6).hex()}"
        self._stop = threading.Event()
        self._swapping = threading.Lock()
        self._thread: threading.Thread | None = None
        self._since = 0.0
        self._mine = Lease("", "", 0.0)
        self._renewed_at = 0.0
        self._other: Lease | None = None
        self._other_seen_at = 0.0
        self._lost = False
        self.is_undecided = False
        self.poll_seconds = min(_LEASE_POLL_SECONDS, seconds / (2 * _RENEWALS))

    def try_acquire(self) -> bool:
        """Take the lease if it is free or its holder dead; true if it was taken."""
        if self._thread is not None:
            return False
        stored, now = self._table.read(), _now()
        if stored.owner and not self._is_dead(stored, now):
            return False
        self._since, self._other, self.is_undecided = time.time(), None, False
        if not self._swap(stored):
            return False
        self._stop.clear()
        self._lost = False
        self._thread = threading.Thread(target=self._renew, name="whenabouts-lease", daemon=True)
        self._thread.start()
        return True

    def _is_dead(self, stored: Lease, now: float) -> bool:
        """Whether the holder has not renewed for as long as a lease lasts."""
        if self._other is None or self._other.owner != stored.owner:
            self._other, self._other_seen_at, self.is_undecided = stored, now, True
        elif self._other.stamp != stored.stamp:
            self._other, self._other_seen_at, self.is_undecided = stored, now, False
        return now - self._other_seen_at >= self._seconds

    def _swap(self, seen: Lease) -> bool:
        value = json.dumps(asdict(Holder(os.getpid(), socket.gethostname(), self._since, verb_here())))
        started = _now()
        stamp = max(time.time() + self._seconds, seen.stamp + 0.001)
        lease = Lease(self._owner, value, stamp)
        if not self._table.swap(lease, seen):
            return False
        self._mine, self._renewed_at = lease, started
        return True

    def _renew(self) -> None:
        while not self._stop.wait(self._seconds / _RENEWALS):
            with contextlib.suppress(RuntimeError, OSError, ValueError):  # the network may come back
                self._renew_now()

    def _renew_now(self) -> None:
        with self._swapping:
            if not self._swap(self._mine):
                stored = self._table.read()
                # If the answer to our commit was lost, the commit may have succeeded.
                self._lost = stored.owner != self._owner
                self._mine = self._mine if self._lost else stored

    def is_lost(self) -> bool:
        """Whether another writer has taken the lease.

        If the last two renewals are missing, the lease is renewed now, so that a process that was suspended
        finds out before it writes. Raises the table's errors.
        """
        if not self._lost and _now() - self._renewed_at > 2 * self._seconds / _RENEWALS:
            self._renew_now()
        return self._lost

    def holder(self) -> Holder | None:
        return Holder.of(self._table.read().value)

    def release(self) -> None:
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        self._table.swap(Lease("", self._mine.value, 0.0), self._mine)


class SharedFolderLock:
    """The writer's lock for a folder that several machines mount: the folder's lock and a lease."""

    def __init__(self, folder: FolderLock, lease: LeaseLock) -> None:
        self._folder, self._lease = folder, lease
        self.is_undecided = False
        self.poll_seconds = lease.poll_seconds

    def try_acquire(self) -> bool:
        """Take both if they are free; true if they were taken."""
        self.is_undecided = is_ours = False
        if not self._folder.try_acquire():
            return False
        try:
            is_ours = self._lease.try_acquire()
            self.is_undecided = self._lease.is_undecided
        finally:
            if not is_ours:
                self._folder.release()
        return is_ours

    def holder(self) -> Holder | None:
        return self._lease.holder() or self._folder.holder()

    def is_lost(self) -> bool:
        return self._lease.is_lost()

    def release(self) -> None:
        try:
            self._lease.release()
        finally:
            self._folder.release()


def _now() -> float:
    """Seconds of a clock that also runs during suspend, if the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the block is done, in the main thread; a second Ctrl-C is not delayed.

    LanceDB writes in a thread: after an interrupt the write would go on while this thread begins another.
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
