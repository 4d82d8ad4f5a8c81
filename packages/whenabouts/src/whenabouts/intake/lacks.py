"""What this machine lacks (memory, open files, threads): such an error says nothing about the file at hand.

lack_of(OSError(errno.EMFILE, "Too many open files"))
# 'this process may open 16 files at once, too few here; allow 1024 with `ulimit -n 1024`'
"""

from __future__ import annotations

import errno
import mmap
import os
import resource

from whenabouts.types import WhenaboutsError

_FILES = ("too many open files", "(os error 24)")
_THREADS = ("can't start new thread", "resource temporarily unavailable", "(os error 11)")
_MEMORY = (
    "cannot allocate memory",
    "failed to map segment",
    "std::bad_alloc",
    "bad allocation",
    "(os error 12)",
)


class MachineLack(WhenaboutsError):
    """There is no more memory, or no more open files or threads; the message says which, and the limit."""


def lack_of(error: BaseException | None) -> str | None:
    """What the machine lacked when an error was raised, with the remedy; None for other errors."""
    while isinstance(error, WhenaboutsError) and not isinstance(error, MachineLack):
        error = error.__cause__
    if error is None or isinstance(error, MachineLack):
        return None if error is None else str(error)
    if is_memory(error):
        return _more_memory()
    number, text = getattr(error, "errno", None), str(error).lower()
    if number in (errno.EMFILE, errno.ENFILE) or any(words in text for words in _FILES):
        return _more_files()
    if number == errno.EAGAIN or any(words in text for words in _THREADS):
        limit = memory_limit()
        memory = "" if limit is None else f", or more than {_megabytes(limit)} of memory (`ulimit -v`)"
        return f"no thread or process can be started; allow more of them (`ulimit -u`){memory}"
    return None


def is_memory(error: BaseException) -> bool:
    """Whether the machine's memory ran out (not that of a GPU)."""
    text = str(error).lower()
    is_memory = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    return is_memory or any(words in text for words in _MEMORY)


def memory_limit() -> int | None:
    """Bytes of memory that this process may use, None without a limit."""
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)


def check_room(size: int) -> None:
    """Raise MachineLack if this process's memory is limited, and `size` bytes more exceed the limit.

    For code that ends the process when it gets no memory, as libraries in Rust do.
    """
    if memory_limit() is not None:
        try:
            mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
        except (OSError, ValueError) as error:
            raise MachineLack(_more_memory()) from error


def check_files(count: int) -> None:
    """Raise MachineLack if this process cannot open `count` more files.

    For code that waits for ever or prints a trace when it gets none (uvloop, LanceDB).
    """
    opened: list[int] = []
    try:
        for _ in range(count):
            opened.append(os.open(os.devnull, os.O_RDONLY))  # noqa: PERF401 (these are closed)
    except OSError as error:
        raise MachineLack(_more_files()) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _more_memory() -> str:
    limit = memory_limit()
    allowed = "" if limit is None else f"; this process may use {_megabytes(limit)} (`ulimit -v`)"
    return f"there is not enough memory for this; give it less at once, or free some memory{allowed}"


def _more_files() -> str:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    more = max(1024, 4 * most)
    return f"this process may open {most} files at once, too few here; allow {more} with `ulimit -n {more}`"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
