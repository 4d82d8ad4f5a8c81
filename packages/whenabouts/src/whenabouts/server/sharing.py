"""Connections divided evenly between processes that wait at one socket.

The system gives a connection to whichever process asks first: one of two may get most of 50 clients, who then
wait longer than the others. Each process therefore tells how many it has, and one that has more than another
leaves the next to that one, for a moment.
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
    """How many connections each process has, in memory that all see; `own` is the place of this one."""

    counts: MutableSequence[int]
    own: int

    @staticmethod
    def none_yet(count: int) -> list[int]:
        """The counts of processes that have not started: nothing is left to them."""
        return [_ABSENT] * count

    def begin(self) -> None:
        """From now on this process takes connections."""
        self.counts[self.own] = 0

    def end(self) -> None:
        """This process takes none any more."""
        self.counts[self.own] = _ABSENT

    def add(self, count: int) -> None:
        """So many connections more, or less."""
        self.counts[self.own] += count

    @property
    def is_above(self) -> bool:
        """Whether another process has fewer."""
        return self.counts[self.own] > min(self.counts)


class SharedSocket(socket.socket):
    """A listening socket whose next connection is left to a process that has fewer, if that takes it soon."""

    def __init__(self, bound: socket.socket, share: Share) -> None:
        super().__init__(fileno=bound.detach())
        self._share, self._since = share, 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. Raises BlockingIOError where there is none for this process now."""
        now = time.monotonic()
        self._since = self._since or now
        if self._share.is_above and now - self._since < _LEFT_SECONDS:
            time.sleep(_PAUSE_SECONDS)  # it would be asked again at once
            raise BlockingIOError
        self._since = 0.0
        return super().accept()
