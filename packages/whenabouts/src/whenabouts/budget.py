"""Limits the time of a piece of work, and lets other threads cancel it.

A thread cannot be ended from outside, so work that may take long checks now and then whether to continue.
Without a budget (the command line, Python) a check costs a tenth of a microsecond.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from whenabouts.types import WhenaboutsError


class TookTooLong(WhenaboutsError):
    """The work took longer than its budget."""


class NotAwaited(WhenaboutsError):
    """The work was cancelled."""


class Budget:
    """Seconds for one piece of work, counted from `spent_here` on; any thread may cancel it."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._until = float("inf")
        self._is_called_off = False

    def call_off(self) -> None:
        """Cancel the work at its next check."""
        self._is_called_off = True

    @contextlib.contextmanager
    def spent_here(self) -> Iterator[None]:
        """Start the clock; checks inside, in this thread, count against this budget."""
        self._until = self._clock() + self._seconds
        token = _current.set(self)
        try:
            self.check()
            yield
        finally:
            _current.reset(token)

    def check(self) -> None:
        """Raise NotAwaited or TookTooLong if the work must stop."""
        if self._is_called_off:
            raise NotAwaited("nobody waits for this any more")
        if self._clock() > self._until:
            raise TookTooLong(f"this takes longer than {self._seconds:g} s, the most that is allowed")


_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


def check_budget() -> None:
    """Raise NotAwaited or TookTooLong if this thread's work must stop. Called in loops and before reads."""
    budget = _current.get()
    if budget is not None:
        budget.check()
