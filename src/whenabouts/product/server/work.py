"""Bounded work: each kind has its own threads and its own queue, and a full queue says when to come again.

`anyio.CapacityLimiter` bounds what runs, in threads that all kinds and the sending of files share. The length
of the queue, how long a job waits there, a client that leaves it, and the seconds for `Retry-After` would
still be ours, and a disk that hangs would hold up searches: hence executors with threads of their own.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from whenabouts.product.server.errors import ServerError, busy

Result = TypeVar("Result")
Gone = Callable[[], Awaitable[bool]]

_POLL_SECONDS = 0.25
_MOST_RETRY_SECONDS = 60
# The expected duration of a job: the first guess, and the weight of the newest job in the moving average.
_FIRST_GUESS_SECONDS, _NEWEST_WEIGHT = 0.2, 0.2


class ClientGone(ServerError):
    """The client left while its job waited; nobody reads this answer."""

    def __init__(self) -> None:
        super().__init__(499, "client_gone", "the client went away")


async def _stays() -> bool:
    return False


class BoundedExecutor:
    """Threads for one kind of work.

    `running` jobs run at one time and `waiting` more wait for at most `wait_seconds`. Any other job is
    refused with ServerError 429, which says after how many seconds there should be room.
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
        """How many jobs run or wait."""
        return self._inside

    async def run(self, job: Callable[[], Result], gone: Gone = _stays) -> Result:
        """What a job returns, run in a thread; dropped if its client is `gone` while it waits."""
        future = self._enter(job)
        waited = asyncio.wrap_future(future)
        until = time.monotonic() + self._wait_seconds
        while True:
            done, _ = await asyncio.wait({waited}, timeout=_POLL_SECONDS)
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
            self._job_seconds += _NEWEST_WEIGHT * (spent - self._job_seconds)

    def _leave(self, _: Future[Result]) -> None:
        with self._lock:
            self._inside -= 1

    def _refusal(self) -> ServerError:
        self.refused += 1
        seconds = math.ceil(self._inside * self._job_seconds / self._running)
        return busy(self.kind, max(1, min(_MOST_RETRY_SECONDS, seconds)))

    def close(self) -> None:
        """Let jobs that run end, and drop those that wait."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class RateLimit:
    """A token bucket: so many a minute, at most a third of them at once."""

    def __init__(self, kind: str, a_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.kind = kind
        self._tokens_a_second, self._most_tokens = a_minute / 60, max(1.0, a_minute / 3)
        self._tokens, self._clock, self._filled_at = self._most_tokens, clock, clock()

    def take(self) -> None:
        """Use a token; ServerError 429 where none is left."""
        now = self._clock()
        self._tokens = min(self._most_tokens, self._tokens + (now - self._filled_at) * self._tokens_a_second)
        self._filled_at = now
        if self._tokens < 1:
            raise busy(self.kind, max(1, math.ceil((1 - self._tokens) / self._tokens_a_second)))
        self._tokens -= 1


class ConnectionLimit:
    """How many answers of one kind may be sent at one time; nothing waits."""

    def __init__(self, kind: str, most: int) -> None:
        self.kind, self._most, self.open = kind, most, 0

    def acquire(self) -> None:
        """Count one more; ServerError 429 where there are as many as may be."""
        if self.open >= self._most:
            raise busy(self.kind, 2)
        self.open += 1

    def release(self) -> None:
        """Count one less."""
        self.open -= 1
