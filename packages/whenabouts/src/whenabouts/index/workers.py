"""Runs tasks in reader processes: each works on one file at a time, and a crash loses that file only.

A decoder is C code fed with untrusted files: it may crash, hang, or be killed for memory. So files are read
in separate processes. Each has one pipe; a full pipe blocks its reader, so memory is bounded by the number of
readers, not by the length of a video.

The readers are plain interpreters and not `multiprocessing` children, because those run the caller's main
module again: a short script without `if __name__ == "__main__"` could not index anything.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from whenabouts.intake.faults import DataFault
from whenabouts.intake.lacks import lack_of
from whenabouts.video.opened import most_pixels

# A decoder may hold some thirty pictures of 1.5 to 2 bytes a pixel (references, and one per thread).
_PROCESS_BYTES, BYTES_PER_PIXEL = 1 << 30, 64
_END_SECONDS = 10.0
# Signals that a fault of the decoder raises. Others come from outside, such as SIGKILL for lack of memory.
_CRASHES = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL}

# The reader gets this process's sys.path.
_BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from whenabouts.index.workers import serve; "
    "serve(int(sys.argv[2]), *sys.argv[3:5], int(sys.argv[5]))"
)


def available_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Task(Protocol):
    """A reader's task: anything that pickles, with a number and the longest silence to expect."""

    @property
    def number(self) -> int: ...

    @property
    def quiet_seconds(self) -> float:
        """Seconds that the task's reader may be silent before it is killed."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The last message of a task that was read."""

    number: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The last message of a task that could not be read, with the reason.

    `again`: the file is not at fault, and the next run tries it again. `lack`: this machine lacked memory,
    open files or threads.
    """

    number: int
    error: str
    again: bool = False
    lack: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """One message of a task in progress."""

    number: int
    content: Any


Message = Part | Finished | Failed
Reader = Callable[[Any], Iterable[Any]]


def serve(descriptor: int, module: str, name: str, most_bytes: int) -> None:
    """Read tasks from a pipe until it is closed: the main loop of a reader process."""
    limit_memory(most_bytes)
    # Ctrl-C reaches the whole process group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection: Connection[Any, Any] = Connection(descriptor)
    reader: Reader = getattr(importlib.import_module(module), name)
    # If the parent is gone, the pipe is closed.
    try:
        while True:
            _answer(connection, reader, connection.recv())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def usual_bytes() -> int:
    """The default memory limit of a reader: enough to decode the largest allowed pictures."""
    return _PROCESS_BYTES + BYTES_PER_PIXEL * most_pixels()


def limit_memory(most: int) -> None:
    """Limit this process's memory to `most` bytes, so that a file that needs more fails alone."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    with contextlib.suppress(OSError, ValueError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _answer(connection: Connection[Any, Any], reader: Reader, task: Task) -> None:
    """Send all messages of one task."""
    try:
        for content in reader(task):
            connection.send(Part(task.number, content))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        lack, again = _lack(error), not isinstance(error, DataFault)
        connection.send(Failed(task.number, lack or _sentence(error), again=again, lack=lack is not None))
    else:
        connection.send(Finished(task.number))


def _lack(error: BaseException) -> str | None:
    """The machine's lack that an error shows, or None; the reader's own memory limit does not count."""
    lack = lack_of(error)
    is_own_limit = lack is not None and "memory" in lack and not _is_memory_limited()
    return None if is_own_limit else lack


def _is_memory_limited() -> bool:
    """Whether this program was started with a limit of its address space."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _sentence(error: BaseException) -> str:
    """An error as one line."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return (
            "decoding it takes more memory than a reader may have; a higher --max-pixels raises that limit, "
            "in a server a higher --memory"
        )
    text = " ".join(str(error).split())
    return text or type(error).__name__


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection[Any, Any]
    task: Task | None = None
    last_message: float = 0.0

    @property
    def patience(self) -> float:
        """Seconds left until the reader counts as hanging."""
        assert self.task is not None
        return self.last_message + self.task.quiet_seconds - time.monotonic()

    def stop(self) -> None:
        self.connection.close()
        self.process.terminate()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            # A library that hangs in a system call must not block the caller.
            self.process.kill()
            self.process.wait()


class ReaderPool:
    """Runs `reader(task)` over tasks in `processes` processes and yields their messages as they come.

    `reader` is a module-level function. Each process may use `most_bytes` of memory (0: `usual_bytes`).
    """

    def __init__(self, reader: Reader, processes: int, most_bytes: int = 0) -> None:
        self._reader, self._most_bytes = reader, most_bytes
        self._processes = max(1, processes)
        self._workers: list[_Worker] = []

    def __enter__(self) -> ReaderPool:
        return self

    def __exit__(self, *exc: object) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def _start(self) -> _Worker:
        ours, theirs = multiprocessing.Pipe()
        descriptor = theirs.fileno()
        reader, most = self._reader, self._most_bytes or usual_bytes()
        where = json.dumps(sys.path), str(descriptor), reader.__module__, reader.__name__, str(most)
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOTSTRAP, *where],
            stdin=subprocess.DEVNULL,
            pass_fds=(descriptor,),
            # Ctrl-C in the terminal must not reach the reader while it starts.
            process_group=0,
        )
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def run(self, tasks: Iterable[Task]) -> Iterator[Message]:
        """Messages of all tasks; those of one task come in order and end with Finished or Failed."""
        waiting = deque(tasks)
        while len(self._workers) < min(self._processes, len(waiting)):
            self._start()
        idle = list(self._workers)
        while True:
            while waiting and idle:
                self._give(idle.pop(), waiting.popleft())
            busy = [worker for worker in self._workers if worker.task is not None]
            if not busy:
                return
            for worker in self._ready(busy):
                message = self._receive(worker)
                if not isinstance(message, Part):
                    idle.append(worker if worker in self._workers else self._start())
                yield message

    def _ready(self, busy: list[_Worker]) -> list[_Worker]:
        """Readers with a message, or else those that have been silent for too long."""
        patience = max(0.0, min(worker.patience for worker in busy))
        speaking = wait([worker.connection for worker in busy], timeout=patience)
        ready = [worker for worker in busy if worker.connection in speaking]
        return ready or [worker for worker in busy if worker.patience <= 0]

    def _give(self, worker: _Worker, task: Task) -> None:
        worker.task = task
        worker.last_message = time.monotonic()
        try:
            worker.connection.send(task)
        except (BrokenPipeError, ConnectionResetError):
            # The reader died while idle, so this file is not to blame.
            self._bury(worker)
            self._give(self._start(), task)

    def _receive(self, worker: _Worker) -> Message:
        assert worker.task is not None
        number, quiet = worker.task.number, worker.task.quiet_seconds
        if worker.patience <= 0 and not worker.connection.poll():
            worker.process.kill()
            self._bury(worker)
            return Failed(number, f"reading it made no progress for {quiet:.0f} s; it was given up")
        try:
            message: Message = worker.connection.recv()
            worker.last_message = time.monotonic()
        except (EOFError, OSError):  # OSError: it died in the middle of a message
            cause = self._bury(worker)
            code = worker.process.returncode
            # With little memory, decoders crash on intact files.
            lack = _is_memory_limited() and code < 0
            message = Failed(number, cause, again=code not in _CRASHES, lack=lack)
        if not isinstance(message, Part):
            worker.task = None
        return message

    def _bury(self, worker: _Worker) -> str:
        """Remove a reader that died, and describe the cause."""
        code = worker.process.wait()
        self._workers.remove(worker)
        worker.connection.close()
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        hint = "; it may have needed more memory than there is" if code == -signal.SIGKILL else ""
        return f"the decoder crashed on this file ({cause}){hint}; the other files are not affected"
