"""A bound on the memory of the server's process: what is kept is dropped first, then requests are refused.

A limit of the system (`ulimit -d`) would end the process where a library written in another language finds no
memory. A request takes a bounded amount, and few run at one time, so looking before each is enough.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from whenabouts.product.server.errors import ServerError

_LOOK_SECONDS = 0.2
_DROP_SECONDS = 5.0
_RETRY_SECONDS = 5


def resident_bytes() -> int:
    """How much memory this process has now; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class MemoryBound:
    """At most `most_bytes`; `drops` let go of what is kept for later and can be made again."""

    def __init__(
        self,
        most_bytes: int,
        drops: Sequence[Callable[[], None]],
        measure: Callable[[], int] = resident_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._drops, self._measure, self._clock = most_bytes, drops, measure, clock
        self._lock = threading.Lock()
        self._looked, self._dropped, self._is_over = -1e9, -1e9, False

    def check(self) -> None:
        """Raise ServerError (503) while there is too much, after what can be dropped is gone."""
        with self._lock:
            now = self._clock()
            if now - self._looked >= _LOOK_SECONDS:
                self._looked, self._is_over = now, self._measure() > self._most
                if self._is_over and now - self._dropped >= _DROP_SECONDS:
                    self._dropped = now
                    self._drop()
                    self._is_over = self._measure() > self._most
            if self._is_over:
                raise ServerError(
                    503,
                    "out_of_memory",
                    f"the server has more memory than the {self._most >> 20} MB that it may have (--memory)",
                    headers={"Retry-After": str(_RETRY_SECONDS)},
                )

    def _drop(self) -> None:
        for drop in self._drops:
            drop()
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc keeps what is freed for itself
        if trim is not None:
            trim(0)
