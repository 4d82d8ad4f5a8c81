"""Divide connections evenly between processes that accept from one socket.

The system gives a connection to whichever process asks first. Of two processes, one may then get most of 50
clients and answer them more slowly. So each process publishes how many connections it has, and a process with
more than another briefly leaves the next connection to that one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import MutableSequence
from dataclasses import dataclass
from typing import Any

_ABSENT = 1 << 30
_LEFT_SECONDS, _PAUSE_SECONDS = 0.05, 0.001


@dataclass(frozen=True, slots=True)
class Share:
    """How many connections each process has, in shared memory. `index`: this process's in `counts`."""

    counts: MutableSequence[int]
    index: int

    @staticmethod
    def none_yet(count: int) -> list[int]:
        """Counts for processes that have not started yet, so that nobody leaves connections to them."""
        return [_ABSENT] * count

    def begin(self) -> None:
        """Start to take connections."""
        self.counts[self.index] = 0

    def end(self) -> None:
        """Stop taking connections."""
        self.counts[self.index] = _ABSENT

    def add(self, count: int) -> None:
        """Add to this process's count; negative when connections close."""
        self.counts[self.index] += count

    @property
    def is_above(self) -> bool:
        """Whether another process has fewer."""
        return self.counts[self.index] > min(self.counts)


class SharedSocket(socket.socket):
    """A listening socket that briefly leaves the next connection to a process with fewer."""

    def __init__(self, bound: socket.socket, share: Share) -> None:
        super().__init__(fileno=bound.detach())
        self._share, self._since = share, 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. Raises BlockingIOError if there is none, or another process is to take it."""
        now = time.monotonic()
        self._since = self._since or now
        if self._share.is_above and now - self._since < _LEFT_SECONDS:
            time.sleep(_PAUSE_SECONDS)  # without this the event loop would ask again at once
            raise BlockingIOError
        self._since = 0.0
        return super().accept()
