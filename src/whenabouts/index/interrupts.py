"""Ctrl-C at a safe moment."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until the block is done; a second one does not wait.

    LanceDB writes in a thread of its own: an interrupt would leave the write going on while this thread
    believes that it has ended, and begins another.
    """
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    asked: list[FrameType | None] = []

    def remember(number: int, frame: FrameType | None) -> None:
        if asked:
            previous(number, frame)
        asked.append(frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if asked:
        previous(signal.SIGINT, asked[0])
