"""A bound on the memory of a server: divided at the start by what is measured then, held by refusals.

A limit of the system (`ulimit -d`) would end the process where a library written in another language finds no
memory. So a request is let in only while what the process has and what all requests that run may add stays
below its part; what is kept for later is dropped first. Decoding has processes of its own, whose parts are
limits of the system: there a file that takes more fails alone (`decoding.py`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from whenabouts.resident import forget_peak, peak_bytes, release, resident_bytes
from whenabouts.server.errors import ServerError
from whenabouts.types import UsageError

_DROP_SECONDS = 5.0
_RETRY_SECONDS = 5
_LEAST_REQUEST_BYTES = 32 << 20
# A clip of 1920 x 1080 takes 0.3 GB to cut, one of 3840 x 2160 takes 0.8 GB, a picture of 8K 0.8 GB.
_LEAST_DECODER_BYTES, _USUAL_DECODER_BYTES = 512 << 20, 1 << 30
# A picture in a body is held as the body, as JSON, as base64 and as bytes before it is decoded.
_COPIES_OF_BODY = 4
# Pages of libraries that a decoding process maps: its limit does not count them.
_MAPPED_BYTES = 64 << 20
# What a process has once it is open differs by a few megabytes from start to start.
_FROM_START_TO_START = 16 << 20


@dataclass(frozen=True, slots=True)
class Needs:
    """What a server has after it has answered, and what a request may add to that, in bytes."""

    held: int
    request: int

    @classmethod
    def measured(cls, warm: Callable[[], None], ask: Callable[[], None]) -> Needs:
        """Those of this process after `warm`; `ask` is such a request as takes much."""
        warm()
        release()
        held = resident_bytes()
        # Others may take more than the one that was tried.
        return cls(held, max(_LEAST_REQUEST_BYTES, 2 * taken_by(ask)))


def taken_by(ask: Callable[[], object]) -> int:
    """Bytes that this process takes at most, beside what it has, while it does something."""
    release()
    held = resident_bytes()
    forget_peak()
    ask()
    return max(0, peak_bytes() - held)


@dataclass(frozen=True, slots=True)
class Parts:
    """How a bound is divided: bytes for the server's own process, and for each of `decoders` others.

    `kept` of the server's own bytes is what large streams may take that it keeps in memory.
    """

    server: int
    request: int
    decoders: int
    decoder: int
    kept: int = 0

    @classmethod
    def of(cls, most: int, needs: Needs, requests: int, decoders: int, largest: int, count: int = 1) -> Parts:
        """The parts of `most` bytes, where `requests` run at one time and `decoders` more decode.

        A decoding process gets up to `largest` bytes; there are fewer of them where memory is short. Raises
        UsageError where not even one is possible; `count` servers share what its message then asks for.
        """
        own = needs.held + requests * needs.request
        rest, least = most - own, _LEAST_DECODER_BYTES + _MAPPED_BYTES
        if rest < least:
            needed = own + least + _FROM_START_TO_START
            times = f", all of it {count} times (--processes {count})" if count > 1 else ""
            raise UsageError(
                f"--memory {most * count >> 20}: this corpus with its encoders needs "
                f"{_megabytes(needed * count)} or more: {_megabytes(needs.held)} once it is open, "
                f"{_megabytes(needs.request)} for each of {requests} requests at one time, and "
                f"{_megabytes(least)} to decode videos{times}; raise --memory, or take a larger machine"
            )
        number = max(1, min(decoders, rest * 3 // 4 // (_USUAL_DECODER_BYTES + _MAPPED_BYTES)))
        each = max(_LEAST_DECODER_BYTES, rest * 3 // 4 // number - _MAPPED_BYTES)
        each = min(largest, each)
        server = most - number * (each + _MAPPED_BYTES)
        return cls(server, needs.request, number, each, server - own)


def _megabytes(count: int) -> str:
    return f"{-(-count >> 20)} MB"


class MemoryBound:
    """At most `most_bytes`; `drops` let go of what is kept for later and can be made again.

    Each request may take `request_bytes` while it runs (`room`).
    """

    def __init__(
        self,
        most_bytes: int,
        drops: Sequence[Callable[[], None]],
        request_bytes: int = 0,
        measure: Callable[[], int] = resident_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._drops, self._request = most_bytes, drops, request_bytes
        self._measure, self._clock = measure, clock
        self._lock = threading.Lock()
        self._dropped, self._running, self._bodies = -1e9, 0, 0

    def check(self) -> None:
        """Raise ServerError (503) where one more request may exceed the bound, after what is kept is gone."""
        with self._lock:
            self._check()

    @contextlib.contextmanager
    def room(self) -> Iterator[None]:
        """Hold what one request may take. Raises as `check`, before the request takes anything."""
        with self._lock:
            self._check()
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    @contextlib.contextmanager
    def body(self, length: int) -> Iterator[None]:
        """Hold what a request's body of `length` bytes may take, from before its first byte is read.

        All bodies together get half of what is free, so that requests without one are still answered. Raises
        as `check`.
        """
        held = _COPIES_OF_BODY * length
        with self._lock:
            self._check(self._bodies + 2 * held)
            self._bodies += held
        try:
            yield
        finally:
            with self._lock:
                self._bodies -= held

    def drop(self) -> None:
        """Let go of what is kept for later, and give that memory back to the system."""
        for drop in self._drops:
            drop()
        release()

    def _check(self, more: int = 0) -> None:
        if self._is_full(more) and self._clock() - self._dropped >= _DROP_SECONDS:
            self._dropped = self._clock()
            self.drop()
        if self._is_full(more):
            raise ServerError(
                503,
                "out_of_memory",
                "the server has no memory left for another request (--memory); try again in "
                f"{_RETRY_SECONDS} s",
                headers={"Retry-After": str(_RETRY_SECONDS)},
            )

    def _is_full(self, more: int) -> bool:
        promised = (self._running + 1) * self._request + self._bodies
        return self._measure() + promised + more > self._most
