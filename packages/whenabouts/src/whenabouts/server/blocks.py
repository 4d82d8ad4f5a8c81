"""Prepares waiting questions in one batch, for example by encoding their queries together.

No question waits for others to arrive: an idle thread takes it at once. While all threads are busy a queue
forms, and the next question's thread also prepares what those behind it need. Each question is still answered
separately, by the first free thread, with its own turn, time budget, client and errors.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from whenabouts.budget import Budget
from whenabouts.server.work import BoundedExecutor, Leaving, Result, stays

LONGEST_BLOCK = 16
"""The most questions in one batch."""

Shared = TypeVar("Shared")


@dataclass(slots=True, eq=False)
class _Question(Generic[Shared]):
    """A `query` ("": nothing to share) and `read`, which answers it given the shared preparation."""

    query: str
    read: Callable[[Shared | None], Any]
    budget: Budget
    answer: Future[Any] = field(default_factory=Future)
    shared: Future[Shared | None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether this question can still join a batch."""
        return bool(self.query) and self.shared is None and not self.answer.cancelled()


class BlockExecutor(BoundedExecutor, Generic[Shared]):
    """A bounded executor of questions. `share` prepares for up to `LONGEST_BLOCK` queries at once."""

    def __init__(
        self,
        kind: str,
        running: int,
        waiting: int,
        wait_seconds: float,
        most_seconds: float,
        share: Callable[[Sequence[str]], Shared],
    ) -> None:
        super().__init__(kind, running, waiting, wait_seconds, most_seconds)
        self._share = share
        self._line: deque[_Question[Shared]] = deque()
        self._line_lock = threading.Lock()

    async def ask(
        self, query: str, read: Callable[[Shared | None], Result], leaving: Leaving = stays
    ) -> Result:
        """The result of `read`, given what was prepared for `query`; cancelled if its client leaves.

        `read` gets None if preparing failed, and then prepares for itself.
        """
        return await self._awaited(partial(self._lined_up, query, read), leaving)

    def _lined_up(
        self, query: str, read: Callable[[Shared | None], Result], budget: Budget
    ) -> Future[Result]:
        question: _Question[Shared] = _Question(query, read, budget)
        with self._line_lock:
            self._line.append(question)
        self._threads.submit(self._answer_next)
        return question.answer

    def _answer_next(self) -> None:
        question, block = self._next()
        if block:
            self._share_with(block)
        if not question.answer.set_running_or_notify_cancel():
            return
        try:
            shared = None if question.shared is None else question.shared.result()
            question.answer.set_result(self._timed(partial(question.read, shared), question.budget))
        except BaseException as error:
            question.answer.set_exception(error)

    def _next(self) -> tuple[_Question[Shared], list[_Question[Shared]]]:
        """The next question, and the batch to prepare with it; empty if another thread prepares it."""
        with self._line_lock:
            question = self._line.popleft()
            if not question.is_open:
                return question, []
            waiting_too = (question for question in self._line if question.is_open)
            block = [question, *itertools.islice(waiting_too, LONGEST_BLOCK - 1)]
            shared: Future[Shared | None] = Future()
            for waiting in block:
                waiting.shared = shared
            return question, block

    def _share_with(self, block: Sequence[_Question[Shared]]) -> None:
        shared = block[0].shared
        assert shared is not None
        try:
            shared.set_result(self._share([question.query for question in block]))
        except Exception:  # each question meets the error itself, or does without
            shared.set_result(None)

    def close(self) -> None:
        """Finish the questions being answered, and drop those that wait."""
        super().close()
        with self._line_lock:
            for question in self._line:
                question.answer.cancel()
