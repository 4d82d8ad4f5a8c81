"""Bounded work: each kind has its own threads and queue, and a full queue says when to retry.

`anyio.CapacityLimiter` bounds only what runs, in threads that all kinds and file transfers share. The queue's
length, waiting times, clients that leave and `Retry-After` would still need this code, and a hanging disk
would block searches. Hence executors with their own threads.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from whenabouts.budget import Budget
from whenabouts.server.errors import ServerError, busy

Result = TypeVar("Result")
Leaving = Callable[[], Awaitable[None]]
"""Returns when the client has left."""

_MOST_RETRY_SECONDS = 60
# Expected duration of a job: the first guess, and the newest job's weight in the moving average.
_FIRST_GUESS_SECONDS, _NEWEST_WEIGHT = 0.2, 0.2


class ClientGone(ServerError):
    """The client left before its job was done. Nobody reads this answer."""

    def __init__(self) -> None:
        super().__init__(499, "client_gone", "the client went away")


async def stays() -> None:
    """Never return: stands for a client that never leaves."""
    await asyncio.Event().wait()


class BoundedExecutor:
    """Threads for one kind of work.

    At most `running` jobs run and `waiting` more wait, for at most `wait_seconds`. Further jobs are
    refused with ServerError 429 and an estimate of when there is room. A job that runs for more than
    `most_seconds` ends with TookTooLong at its next check (`budget.py`).
    """

    def __init__(
        self, kind: str, running: int, waiting: int, wait_seconds: float, most_seconds: float = math.inf
    ) -> None:
        self.kind = kind
        self._most_seconds = most_seconds
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

    async def run(self, job: Callable[[], Result], leaving: Leaving = stays) -> Result:
        """The result of a job run in a thread; the job ends early if its client leaves or its task does."""

        def submit(budget: Budget) -> Future[Result]:
            return self._threads.submit(self._timed, job, budget)

        return await self._awaited(submit, leaving)

    async def _awaited(self, submit: Callable[[Budget], Future[Result]], leaving: Leaving) -> Result:
        """The result of a submitted job. Raises ServerError if its turn does not come in time."""
        budget = Budget(self._most_seconds)
        future = self._enter(submit, budget)
        waited = asyncio.wrap_future(future)
        left = asyncio.ensure_future(leaving())
        either: set[asyncio.Future[Any]] = {waited, left}
        try:
            await asyncio.wait(either, timeout=self._wait_seconds, return_when=FIRST_COMPLETED)
            if not waited.done() and not left.done():
                if future.cancel():
                    raise self._refusal()
                await asyncio.wait(either, return_when=FIRST_COMPLETED)
            if waited.done():
                return waited.result()
            left.result()  # raises the error of `leaving`
            raise ClientGone
        finally:
            left.cancel()
            if not waited.done():
                future.cancel()  # at once; `waited.cancel()` alone does it in a later turn of the loop
                waited.cancel()
                budget.call_off()

    def _enter(self, submit: Callable[[Budget], Future[Result]], budget: Budget) -> Future[Result]:
        with self._lock:
            if self._inside >= self._running + self._waiting:
                raise self._refusal()
            future = submit(budget)
            self._inside += 1
        future.add_done_callback(self._leave)
        return future

    def _timed(self, job: Callable[[], Result], budget: Budget) -> Result:
        began = time.monotonic()
        try:
            with budget.spent_here():
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
        """Finish the jobs that run, and drop those that wait."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class RateLimit:
    """A token bucket: `a_minute` tokens per minute, at most a third of them at once."""

    def __init__(self, kind: str, a_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.kind = kind
        self._tokens_a_second, self._most_tokens = a_minute / 60, max(1.0, a_minute / 3)
        self._tokens, self._clock, self._filled_at = self._most_tokens, clock, clock()

    def take(self) -> None:
        """Use a token. Raises ServerError 429 if none is left."""
        now = self._clock()
        self._tokens = min(self._most_tokens, self._tokens + (now - self._filled_at) * self._tokens_a_second)
        self._filled_at = now
        if self._tokens < 1:
            raise busy(self.kind, max(1, math.ceil((1 - self._tokens) / self._tokens_a_second)))
        self._tokens -= 1


class ConnectionLimit:
    """Limits how many answers of one kind are sent at one time; further ones are refused, not queued."""

    def __init__(self, kind: str, most: int) -> None:
        self.kind, self._most, self.open = kind, most, 0

    def acquire(self) -> None:
        """Count one more. Raises ServerError 429 at the limit."""
        if self.open >= self._most:
            raise busy(self.kind, 2)
        self.open += 1

    def release(self) -> None:
        """Count one less."""
        self.open -= 1
