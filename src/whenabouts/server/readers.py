"""Handles on one corpus for threads that read at the same time (see `Corpus.beside`)."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator

from whenabouts.corpus import Corpus


class Readers:
    """`count` handles on a corpus, lent to one thread at a time each."""

    def __init__(self, corpus: Corpus, count: int) -> None:
        self._idle: queue.SimpleQueue[Corpus] = queue.SimpleQueue()
        for _ in range(count):
            self._idle.put(corpus.beside())

    @contextlib.contextmanager
    def lent(self) -> Iterator[Corpus]:
        """A handle, as fresh as the corpus is on disk; waits while all are lent."""
        corpus = self._idle.get()
        try:
            corpus.refresh()
            yield corpus
        finally:
            self._idle.put(corpus)
