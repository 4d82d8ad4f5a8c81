"""Questions that wait in a line: what their answers share is made for several of them at once.

Nothing waits for others to come: an idle thread takes a question at once. While all are busy a line forms,
and who is next also makes what those behind need. Each is then answered by itself, by the first thread that
is free: it keeps its turn, its budget and its client, and fails alone.
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
"""Questions that something is made for at once, at most."""

Shared = TypeVar("Shared")


@dataclass(slots=True, eq=False)
class _Question(Generic[Shared]):
    """What is asked: the `query` ("": nothing is shared), and `read`, which answers with what is shared."""

    query: str
    read: Callable[[Shared | None], Any]
    budget: Budget
    answer: Future[Any] = field(default_factory=Future)
    shared: Future[Shared | None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it waits for something that nobody makes yet."""
        return bool(self.query) and self.shared is None and not self.answer.cancelled()


class BlockExecutor(BoundedExecutor, Generic[Shared]):
    """A bounded executor of questions; `share` makes what up to `LONGEST_BLOCK` queries need, in one go."""

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
        """What `read` returns, given what was shared of `query`; called off when its client leaves.

        It is given None where nothing could be shared: then it makes what it needs.
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
        """Whose turn it is, and the block that something is to be made for, if it has nothing yet."""
        with self._line_lock:
            question = self._line.popleft()
            if not question.is_open:
                return question, []
            others = (other for other in self._line if other.is_open)
            block = [question, *itertools.islice(others, LONGEST_BLOCK - 1)]
            shared: Future[Shared | None] = Future()
            for waiting in block:
                waiting.shared = shared
            return question, block

    def _share_with(self, block: Sequence[_Question[Shared]]) -> None:
        shared = block[0].shared
        assert shared is not None
        try:
            shared.set_result(self._share([question.query for question in block]))
        except Exception:  # each meets it by itself, or does without
            shared.set_result(None)

    def close(self) -> None:
        """Let questions that are being answered end, and drop those that wait."""
        super().close()
        with self._line_lock:
            for question in self._line:
                question.answer.cancel()
