"""How long a piece of work may take, and whether anybody still waits for it.

A thread cannot be ended from outside; so work that may become long looks now and then whether it is to go on.
Where nobody set a budget (the command line, Python) looking costs a tenth of a microsecond and does nothing.
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
    """Nobody waits for the work any more."""


class Budget:
    """Seconds for one piece of work, counted from `spent_here` on; any thread may call it off."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._until = float("inf")
        self._is_called_off = False

    def call_off(self) -> None:
        """Let the work end at its next look."""
        self._is_called_off = True

    @contextlib.contextmanager
    def spent_here(self) -> Iterator[None]:
        """The time begins; what is called inside, in this thread, looks at this budget."""
        self._until = self._clock() + self._seconds
        token = _current.set(self)
        try:
            self.check()
            yield
        finally:
            _current.reset(token)

    def check(self) -> None:
        """Raise NotAwaited or TookTooLong where the work is not to go on."""
        if self._is_called_off:
            raise NotAwaited("nobody waits for this any more")
        if self._clock() > self._until:
            raise TookTooLong(f"this takes longer than {self._seconds:g} s, the most that is allowed")


_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


def check_budget() -> None:
    """Raise where the work that this thread does is not to go on; for loops and before reads."""
    budget = _current.get()
    if budget is not None:
        budget.check()
