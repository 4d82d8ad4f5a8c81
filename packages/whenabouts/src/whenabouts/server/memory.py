"""Bounds the server's memory: divides it after a measurement at the start, and refuses requests beyond it.

A limit of the system (`ulimit -d`) would end the process whenever a native library gets no memory. So a
request is admitted only if the memory in use, plus the most that all running requests may add, stays below
the bound; caches are dropped first. Decoder processes do have limits of the system: there, a file that takes
too much fails alone (`decoding.py`).
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

_DROP_SECONDS = 5.0  # the least time between two drops of caches
_RETRY_SECONDS = 5
_LEAST_REQUEST_BYTES = 32 << 20
# Cutting a clip takes 0.3 GB at 1920 x 1080 and 0.8 GB at 3840 x 2160; an 8K picture takes 0.8 GB.
_LEAST_DECODER_BYTES, _USUAL_DECODER_BYTES = 512 << 20, 1 << 30
# An uploaded picture is held as body, JSON, base64 and bytes before it is decoded.
_COPIES_OF_BODY = 4
# Pages of libraries mapped by a decoder process, which its limit does not count.
_MAPPED_BYTES = 64 << 20
# The memory of an opened process varies this much from start to start.
_START_VARIATION = 16 << 20


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes that a server has in use after its first answers (`held`), and bytes that a request may add."""

    held: int
    request: int

    @classmethod
    def measured(cls, warm: Callable[[], None], ask: Callable[[], None]) -> Needs:
        """The needs of this process after `warm`; `ask` is an expensive request."""
        warm()
        release()
        held = resident_bytes()
        # Other requests may take more than this one.
        return cls(held, max(_LEAST_REQUEST_BYTES, 2 * taken_by(ask)))


def taken_by(ask: Callable[[], object]) -> int:
    """The most bytes this process takes in addition while it runs `ask`."""
    release()
    held = resident_bytes()
    forget_peak()
    ask()
    return max(0, peak_bytes() - held)


@dataclass(frozen=True, slots=True)
class Parts:
    """A divided memory bound: `server` bytes, and `decoder` bytes for each of `decoders` decoder processes.

    One request may take `request` bytes. Of its bytes, the server may keep large streams in `kept`.
    """

    server: int
    request: int
    decoders: int
    decoder: int
    kept: int = 0

    @classmethod
    def of(cls, most: int, needs: Needs, requests: int, decoders: int, largest: int, count: int = 1) -> Parts:
        """Divide `most` bytes: `requests` run at one time, beside up to `decoders` decoder processes.

        A decoder gets up to `largest` bytes; there are fewer decoders if memory is short. Raises UsageError,
        with what `count` such servers need, if not even one decoder fits.
        """
        server_needs = needs.held + requests * needs.request
        spare, least = most - server_needs, _LEAST_DECODER_BYTES + _MAPPED_BYTES
        if spare < least:
            needed = server_needs + least + _START_VARIATION
            times = f", for each of {count} processes (--processes {count})" if count > 1 else ""
            raise UsageError(
                f"--memory {most * count >> 20}: this corpus with its encoders needs "
                f"{_megabytes(needed * count)} or more: {_megabytes(needs.held)} once it is open, "
                f"{_megabytes(needs.request)} for each of {requests} requests at one time, and "
                f"{_megabytes(least)} to decode videos{times}; raise --memory, or use a larger machine"
            )
        # Decoders share three quarters; the server keeps the rest for large streams.
        number = max(1, min(decoders, spare * 3 // 4 // (_USUAL_DECODER_BYTES + _MAPPED_BYTES)))
        each = max(_LEAST_DECODER_BYTES, spare * 3 // 4 // number - _MAPPED_BYTES)
        each = min(largest, each)
        server = most - number * (each + _MAPPED_BYTES)
        return cls(server, needs.request, number, each, server - server_needs)


def _megabytes(size: int) -> str:
    return f"{-(-size >> 20)} MB"


class MemoryBound:
    """Refuses requests that might take the process above `most_bytes`, after `drops` have released caches.

    Each request that runs in `room` may take `request_bytes`. If memory cannot be measured, only these count.
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
        """Raise ServerError 503 if one more request may exceed the bound even with caches dropped."""
        with self._lock:
            self._check()

    @contextlib.contextmanager
    def room(self) -> Iterator[None]:
        """Reserve what one request may take. Raises like `check`, before the request starts."""
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
        """Reserve what a body of `length` bytes may take, before its first byte is read.

        All bodies together get half of the free memory, so that requests without one are still
        answered. Raises like `check`.
        """
        reserved = _COPIES_OF_BODY * length
        with self._lock:
            self._check(self._bodies + 2 * reserved)  # with `_is_full`: all bodies count twice
            self._bodies += reserved
        try:
            yield
        finally:
            with self._lock:
                self._bodies -= reserved

    def drop(self) -> None:
        """Drop caches and return their memory to the system."""
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
