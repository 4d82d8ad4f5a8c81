"""A function in a process apart, which may crash, hang or grow without ending the attack."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from whenabouts.intake.lacks import MachineLack
from whenabouts.resident import forget_peak, peak_bytes, resident_bytes
from whenabouts.types import WhenaboutsError

_ADDRESS_SPACE = 8 << 30


class Apart:
    """Calls `read` of a module-level function in a process; another one is started where it died."""

    def __init__(self, read: Callable[[Any], object], most_bytes: int, seconds: float = 120.0) -> None:
        self._read, self._most, self._seconds = read, most_bytes, seconds
        self._process: Any = None

    def __call__(self, argument: Any) -> tuple[str, list[str]]:
        """What came of it ("read", "refused", "found"), and the findings."""
        if self._process is None or not self._process.is_alive():
            self._start()
        self._pipe.send(argument)
        if not self._pipe.poll(self._seconds):
            self._process.kill()
            self._process.join()
            return "found", [f"no end within {self._seconds:.0f} s"]
        try:
            kind, text = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            return "found", [f"the process ended with {self._process.exitcode}"]
        return kind, [text] if kind == "found" else []

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, self._read, self._most), daemon=True)
        self._process.start()
        other.close()


def _serve(pipe: Connection, read: Callable[[Any], object], most_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            argument = pipe.recv()
        except (EOFError, OSError):
            return
        forget_peak()
        before = resident_bytes()
        try:
            read(argument)
            answer = ("read", "")
        except MachineLack as error:
            answer = ("found", f"a lack of memory: {error}")
        except WhenaboutsError as error:
            text = str(error)
            answer = (
                ("refused", "")
                if text.isprintable() and len(text) < 3000
                else ("found", f"says {text!r:.300}")
            )
        except BaseException as error:
            import traceback

            place = traceback.extract_tb(error.__traceback__)[-1]
            answer = (
                "found",
                f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"[:1000],
            )
        grown = peak_bytes() - before
        if answer[0] != "found" and grown > most_bytes:
            answer = ("found", f"took {grown >> 20} MB")
        try:
            pipe.send(answer)
        except OSError:  # the attack has ended
            return
