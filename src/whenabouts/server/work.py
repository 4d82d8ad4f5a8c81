"""Work in lanes: each kind has its own threads and its own line, and a full line says when to come again."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from whenabouts.server.errors import ServerError, busy

Result = TypeVar("Result")
Gone = Callable[[], Awaitable[bool]]

_LOOKED_EVERY = 0.25
_MOST_RETRY_SECONDS = 60
# What a job is taken to last before one has been seen, and how much the newest one counts.
_FIRST_GUESS_SECONDS, _NEWEST_COUNTS = 0.2, 0.2


class ClientGone(ServerError):
    """The client left while its work stood in line; nobody reads this answer."""

    def __init__(self) -> None:
        super().__init__(499, "client_gone", "the client went away")


async def _stays() -> bool:
    return False


class Lane:
    """Threads for one kind of work.

    `running` jobs run at one time and `waiting` stand in line for at most `wait_seconds`; whatever comes on
    top gets ServerError 429 with the seconds after which there should be room.
    """

    def __init__(self, kind: str, running: int, waiting: int, wait_seconds: float) -> None:
        self.kind = kind
        self._running, self._waiting, self._wait_seconds = running, waiting, wait_seconds
        self._threads = ThreadPoolExecutor(running, thread_name_prefix=f"whenabouts-{kind}")
        self._lock = threading.Lock()
        self._inside = 0
        self._job_seconds = _FIRST_GUESS_SECONDS
        self.refused = 0

    @property
    def inside(self) -> int:
        """Jobs that run or stand in line."""
        return self._inside

    async def run(self, job: Callable[[], Result], gone: Gone = _stays) -> Result:
        """What a job returns, run in a thread; a client that is `gone` loses its place in the line."""
        future = self._enter(job)
        waited = asyncio.wrap_future(future)
        until = time.monotonic() + self._wait_seconds
        while True:
            done, _ = await asyncio.wait({waited}, timeout=_LOOKED_EVERY)
            if done:
                return waited.result()
            if future.running():
                return await waited
            if await gone() and future.cancel():
                raise ClientGone
            if time.monotonic() > until and future.cancel():
                raise self._refusal()

    def _enter(self, job: Callable[[], Result]) -> Future[Result]:
        with self._lock:
            if self._inside >= self._running + self._waiting:
                raise self._refusal()
            self._inside += 1
        future = self._threads.submit(self._timed, job)
        future.add_done_callback(self._leave)
        return future

    def _timed(self, job: Callable[[], Result]) -> Result:
        began = time.monotonic()
        try:
            return job()
        finally:
            spent = time.monotonic() - began
            self._job_seconds += _NEWEST_COUNTS * (spent - self._job_seconds)

    def _leave(self, _: Future[Result]) -> None:
        with self._lock:
            self._inside -= 1

    def _refusal(self) -> ServerError:
        self.refused += 1
        seconds = math.ceil(self._inside * self._job_seconds / self._running)
        return busy(self.kind, max(1, min(_MOST_RETRY_SECONDS, seconds)))

    def close(self) -> None:
        """Let what runs end, and drop what stands in line."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Rate:
    """At most so many a minute, with as many at once as come in a third of a minute unused."""

    def __init__(self, kind: str, a_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.kind = kind
        self._a_second, self._most = a_minute / 60, max(1.0, a_minute / 3)
        self._left, self._clock, self._seen = self._most, clock, clock()

    def take(self) -> None:
        """Use one up; ServerError 429 where none is left."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._seen) * self._a_second)
        self._seen = now
        if self._left < 1:
            raise busy(self.kind, max(1, math.ceil((1 - self._left) / self._a_second)))
        self._left -= 1


class Seats:
    """How many of something may be under way at one time; not a line."""

    def __init__(self, kind: str, most: int) -> None:
        self.kind, self._most, self.taken = kind, most, 0

    def take(self) -> None:
        """Sit down; ServerError 429 where all seats are taken."""
        if self.taken >= self._most:
            raise busy(self.kind, 2)
        self.taken += 1

    def leave(self) -> None:
        """Stand up."""
        self.taken -= 1
