"""Thumbnails and clips made in processes of their own, whose memory is bounded (`index.workers`).

A decoder is C code fed with a file that somebody sent: what it does to its process must not end the server,
nor take the memory of all other requests. A process serves one request after another, and is there as long
as the server.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from whenabouts.product.index.workers import Failed, Part, ReaderPool
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.video.aside import WriteError
from whenabouts.video.cut import cut
from whenabouts.video.probe import MediaError
from whenabouts.video.thumbnails import thumbnail


@dataclass(frozen=True, slots=True)
class ThumbnailTask:
    """A picture of one instant to be written to `out`."""

    path: Path
    at: float
    width: int
    out: Path
    number: int = 0
    quiet_seconds: float = 60.0

    def make(self) -> None:
        """Write it."""
        self.out.write_bytes(thumbnail(self.path, self.at, self.width))


@dataclass(frozen=True, slots=True)
class ClipTask:
    """A stretch of a video to be cut out to `out`."""

    path: Path
    start: float
    end: float
    out: Path
    number: int = 0
    quiet_seconds: float = 600.0

    def make(self) -> None:
        """Write it."""
        cut(self.path, self.start, self.end, self.out)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why nothing was written: a message, and the system's number of the error (0: none)."""

    kind: str
    message: str
    number: int = 0


def make(task: ThumbnailTask | ClipTask) -> Iterator[Fault]:
    """Carry out a task in this process; a fault is handed over (run in a reader process)."""
    try:
        task.make()
    except (OSError, WhenaboutsError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        kinds = (UsageError, WriteError, OSError)
        kind = next((kind.__name__ for kind in kinds if isinstance(error, kind)), "MediaError")
        yield Fault(kind, str(error), getattr(cause, "errno", None) or 0)


class Decoders:
    """Processes that make thumbnails and clips: as many as are at work at one time."""

    def __init__(self) -> None:
        self._idle: queue.SimpleQueue[ReaderPool] = queue.SimpleQueue()

    def run(self, task: ThumbnailTask | ClipTask) -> None:
        """Carry out a task and wait for it. Raises UsageError, WriteError, MediaError or OSError."""
        try:
            pool = self._idle.get_nowait()
        except queue.Empty:
            pool = ReaderPool(make, 1)
        try:
            fault = None
            for message in pool.run([task]):
                if isinstance(message, Part):
                    fault = message.content
                elif isinstance(message, Failed):
                    fault = Fault("MediaError", message.error)
        finally:
            self._idle.put(pool)
        if fault is not None:
            raise _error(fault)

    def close(self) -> None:
        """End the processes that are idle."""
        while not self._idle.empty():
            self._idle.get().__exit__(None, None, None)


def _error(fault: Fault) -> Exception:
    if fault.kind == "OSError":
        return OSError(fault.number, fault.message)
    error = {"UsageError": UsageError, "WriteError": WriteError}.get(fault.kind, MediaError)(fault.message)
    error.__cause__ = OSError(fault.number, fault.message) if fault.number else None
    return error
