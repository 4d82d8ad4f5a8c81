"""Probe files, and make thumbnails and clips, in processes with bounded memory.

A decoder is C code that reads untrusted files. It may crash or take much memory, which must harm neither the
server nor other requests. A process (`index.workers`) serves one request after another and lives as long as
the server.
"""

from __future__ import annotations

import errno
import queue
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

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

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")
_WAIT_SECONDS = 30.0
_RETRY_SECONDS = 5
# Memory of a process before it decodes anything.
_EMPTY_BYTES = 150 << 20
# Errors of disks and folders; any other error of FFmpeg is about the file it reads.
_OF_THE_DISK = {
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR,
    errno.ENAMETOOLONG,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Task:
    """A call of `function` on the file `path`, which a client chose. It may take `quiet_seconds`."""

    path: str | Path
    quiet_seconds: float
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    number: int = 0
    """The pool's number for the task; always 0, because each pool here runs one task at a time."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a task failed: message, errno (0: none), and whether memory may have run out."""

    kind: str
    message: str
    number: int = 0
    is_full: bool = False


def make(task: _Task) -> Iterator[Any]:
    """Run a task in this process; yields its result or a Fault (runs in a reader process)."""
    try:
        yield task.function(*task.arguments)
    except (OSError, WhenaboutsError) as error:
        yield _fault(task.path, error)


def _draw(path: Path, at: float, width: int, out: Path) -> None:
    out.write_bytes(thumbnail(path, at, width))


def _fault(path: str | Path, error: OSError | WhenaboutsError) -> Fault:
    import av

    cause = error if isinstance(error, OSError) else error.__cause__
    number = getattr(cause, "errno", None) or 0
    kinds = (UsageError, WriteError, OSError)
    kind = next((kind.__name__ for kind in kinds if isinstance(error, kind)), "MediaError")
    is_of_file = isinstance(cause, av.error.FFmpegError) and number not in _OF_THE_DISK
    # FFmpeg and its libraries report a lack of memory in many ways.
    if kind != "UsageError" and number not in _OF_THE_DISK and _takes_much(path):
        hint = "it may need more memory than a file may use; raise --memory and --max-pixels"
        return Fault("MediaError", f"{error}; {hint}", is_full=True)
    return Fault("MediaError" if is_of_file else kind, str(error), number)


def _takes_much(path: str | Path) -> bool:
    """Whether decoding a file's pictures may need more memory than this process may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        picture = probe(source_path(path)).picture
    except (OSError, WhenaboutsError):
        return False
    most = 0 if picture is None else _EMPTY_BYTES + BYTES_PER_PIXEL * picture.width * picture.height
    return limit != resource.RLIM_INFINITY and most > limit


class Decoders:
    """At most `most` processes, each with `most_bytes` of memory (0: as much as in `index`).

    A process starts with its first task. The last used one is used next, so the others cost nothing. All
    tasks raise UsageError, WriteError, MediaError or OSError, and ServerError 429 if no process becomes free
    in time.
    """

    def __init__(self, most: int, most_bytes: int = 0) -> None:
        self._idle: queue.LifoQueue[ReaderPool] = queue.LifoQueue()
        for _ in range(most):
            self._idle.put(ReaderPool(make, 1, most_bytes))

    def probe(self, path: Path) -> Probe:
        """Probe a file: its streams, size and length."""
        return self._run(path, 60.0, probe, path)

    def source(self, path: str) -> Source:
        """Read the facts of a file that exported lists need."""
        return self._run(path, 600.0, read_source, path)

    def frame(self, path: Path, at: float, width: int) -> bytes:
        """Read the frame at a time in seconds, as JPEG of a width in pixels."""
        return self._run(path, 60.0, thumbnail, path, at, width)

    def draw(self, path: Path, at: float, width: int, out: Path) -> None:
        """Write the frame at a time in seconds to `out`, as JPEG of a width in pixels."""
        self._run(path, 60.0, _draw, path, at, width, out)

    def cut(self, path: Path, start: float, end: float, out: Path) -> None:
        """Cut a range of a video into `out`."""
        self._run(path, 600.0, cut, path, start, end, out)

    def join(self, parts: Sequence[tuple[Path, float, float]], out: Path) -> None:
        """Join ranges of videos, each (path, start, end), in one file `out`."""
        self._run(parts[0][0], 3600.0, join, parts, out)

    def picture(self, data: bytes, size: int) -> NDArray[np.uint8]:
        """Decode an uploaded picture, (H, W, 3), scaled to a short side of at most `size` pixels."""
        return self._run("the picture", 30.0, decode_picture, data, "the picture", size)

    def _run(
        self,
        path: str | Path,
        quiet_seconds: float,
        function: Callable[[*Arguments], Result],
        *arguments: *Arguments,
    ) -> Result:
        """The result of a function called in a process, which it may crash."""
        try:
            pool = self._idle.get(timeout=_WAIT_SECONDS)
        except queue.Empty:
            from whenabouts.server.errors import busy  # not in the processes, because it imports FastAPI

            raise busy("videos", _RETRY_SECONDS) from None
        result: Any = None
        try:
            for message in pool.run([_Task(path, quiet_seconds, function, arguments)]):
                if isinstance(message, Part):
                    result = message.content
                elif isinstance(message, Failed):
                    result = Fault("MediaError", message.error, is_full=True)
            if isinstance(result, Fault) and result.is_full:
                pool.__exit__(None, None, None)  # frees its memory; the next task starts another
        finally:
            self._idle.put(pool)
        if isinstance(result, Fault):
            raise _error(result)
        made: Result = result
        return made

    def close(self) -> None:
        """End the idle processes. One that is needed again restarts."""
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
