"""Files looked into, thumbnails and clips made in processes of their own, whose memory is bounded.

A decoder is C code fed with a file that somebody sent: what it does to its process must not end the server,
nor take the memory of all other requests. A process (`index.workers`) serves one request after another, and
is there as long as the server.
"""

from __future__ import annotations

import errno
import queue
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from whenabouts.export.source import Source, read_source
from whenabouts.index.workers import BYTES_PER_PIXEL, Failed, Part, ReaderPool
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.video.aside import WriteError
from whenabouts.video.cut import cut, join
from whenabouts.video.objects import source_path
from whenabouts.video.picture import decode_picture
from whenabouts.video.probe import MediaError, Probe, probe
from whenabouts.video.thumbnails import thumbnail

_WAIT_SECONDS = 30.0
_RETRY_SECONDS = 5
# What a process takes before it has decoded anything.
_EMPTY_BYTES = 150 << 20
# What a disk or a folder says; all else that FFmpeg says is about the file that it reads.
_OF_THE_DISK = {
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR,
    errno.ENAMETOOLONG,
}  # fmt: skip


class Task(Protocol):
    """Something to be done with a file of a client's choice."""

    @property
    def number(self) -> int:
        """For the pool: each of ours runs one task at a time."""
        ...

    @property
    def quiet_seconds(self) -> float:
        """How long it may take."""
        ...

    @property
    def path(self) -> str | Path:
        """The file."""
        ...

    def make(self) -> Any:
        """Do it, in a process that may die of it; what is returned is handed over."""
        ...


@dataclass(frozen=True, slots=True)
class ProbeTask:
    """What a file holds."""

    path: Path
    number: int = 0
    quiet_seconds: float = 60.0

    def make(self) -> Probe:
        """Look."""
        return probe(self.path)


@dataclass(frozen=True, slots=True)
class SourceTask:
    """What a list for editors says of a file."""

    path: str
    number: int = 0
    quiet_seconds: float = 600.0

    def make(self) -> Source:
        """Look."""
        return read_source(self.path)


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
class FrameTask:
    """A picture of one instant, handed over as JPEG."""

    path: Path
    at: float
    width: int
    number: int = 0
    quiet_seconds: float = 60.0

    def make(self) -> bytes:
        """The picture."""
        return thumbnail(self.path, self.at, self.width)


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
class FilmTask:
    """Stretches of videos, (path, start, end) each, to be joined in one file `out`."""

    parts: tuple[tuple[Path, float, float], ...]
    out: Path
    number: int = 0
    quiet_seconds: float = 3600.0

    @property
    def path(self) -> Path:
        """The first of the files."""
        return self.parts[0][0]

    def make(self) -> None:
        """Write it."""
        join(self.parts, self.out)


@dataclass(frozen=True, slots=True)
class PictureTask:
    """A picture that was sent, to be decoded with a short side of `size` pixels at most."""

    data: bytes
    size: int
    path: Path = Path("the picture")
    number: int = 0
    quiet_seconds: float = 30.0

    def make(self) -> NDArray[np.uint8]:
        """The picture, (H, W, 3)."""
        return decode_picture(self.data, str(self.path), self.size)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why nothing was made: a message, the system's number of the error (0: none), and if memory may lack."""

    kind: str
    message: str
    number: int = 0
    is_full: bool = False


def make(task: Task) -> Iterator[Any]:
    """Carry out a task in this process; what came of it, or a Fault (run in a reader process)."""
    try:
        yield task.make()
    except (OSError, WhenaboutsError) as error:
        yield _fault(task.path, error)


def _fault(path: str | Path, error: OSError | WhenaboutsError) -> Fault:
    import av

    cause = error if isinstance(error, OSError) else error.__cause__
    number = getattr(cause, "errno", None) or 0
    kinds = (UsageError, WriteError, OSError)
    kind = next((kind.__name__ for kind in kinds if isinstance(error, kind)), "MediaError")
    is_of_file = isinstance(cause, av.error.FFmpegError) and number not in _OF_THE_DISK
    # FFmpeg and its libraries call a lack of memory by many names.
    if kind != "UsageError" and number not in _OF_THE_DISK and _takes_much(path):
        hint = "it may take more memory than one file may have, which --memory and --max-pixels raise"
        return Fault("MediaError", f"{error}; {hint}", is_full=True)
    return Fault("MediaError" if is_of_file else kind, str(error), number)


def _takes_much(path: str | Path) -> bool:
    """Whether decoding the pictures of a file may take more memory than this process may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        picture = probe(source_path(path)).picture
    except (OSError, WhenaboutsError):
        return False
    most = 0 if picture is None else _EMPTY_BYTES + BYTES_PER_PIXEL * picture.width * picture.height
    return limit != resource.RLIM_INFINITY and most > limit


class Decoders:
    """At most `most` processes, each with `most_bytes` of memory (0: as much as `index` gives them).

    A process starts with its first task, and the one that worked last works next: idle ones cost nothing.
    """

    def __init__(self, most: int, most_bytes: int = 0) -> None:
        self._idle: queue.LifoQueue[ReaderPool] = queue.LifoQueue()
        for _ in range(most):
            self._idle.put(ReaderPool(make, 1, most_bytes))

    def run(self, task: Task) -> Any:
        """Carry out a task and wait for it; what its `make` returned.

        Raises UsageError, WriteError, MediaError or OSError, and ServerError (429) where no process is free
        for too long.
        """
        try:
            pool = self._idle.get(timeout=_WAIT_SECONDS)
        except queue.Empty:
            from whenabouts.server.errors import busy  # not for the processes: FastAPI comes with it

            raise busy("videos", _RETRY_SECONDS) from None
        result: Any = None
        try:
            for message in pool.run([task]):
                if isinstance(message, Part):
                    result = message.content
                elif isinstance(message, Failed):
                    result = Fault("MediaError", message.error, is_full=True)
            if isinstance(result, Fault) and result.is_full:
                pool.__exit__(None, None, None)  # its memory goes back; the next task starts another
        finally:
            self._idle.put(pool)
        if isinstance(result, Fault):
            raise _error(result)
        return result

    def close(self) -> None:
        """End the processes that are idle; one that is needed again starts again."""
        idle = []
        while not self._idle.empty():
            idle.append(self._idle.get())
        for pool in idle:
            pool.__exit__(None, None, None)
            self._idle.put(pool)


def _error(fault: Fault) -> Exception:
    if fault.kind == "OSError":
        return OSError(fault.number, fault.message)
    error = {"UsageError": UsageError, "WriteError": WriteError}.get(fault.kind, MediaError)(fault.message)
    error.__cause__ = OSError(fault.number, fault.message) if fault.number else None
    return error
