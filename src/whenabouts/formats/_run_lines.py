"""Lines of a run, decoded fast; what the fast decoder refuses is read again with care.

The careful reading (`jsonl.with_care`) is the definition: the fast one accepts no more than it and gives the
same, and a line that it refuses is accepted or blamed by the careful one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

Decode = Callable[[int, bytes], "RunLine"]
"""(line number, line) -> answers; raises FormatError."""


class RunMoment(msgspec.Struct, gc=False):
    """A moment of an answer; start and end are both there or both None."""

    video_id: str
    score: float
    start: float | None = None
    end: float | None = None


class RunLine(msgspec.Struct, gc=False):
    """The answers to a query."""

    query_id: str
    moments: list[RunMoment]
    confidence: float | None = None


def decoder(with_care: Decode) -> Decode:
    """The fast reading, times and video ids not yet checked; what it refuses goes to the careful one."""
    decode = msgspec.json.Decoder(RunLine).decode

    def read(number: int, raw: bytes) -> RunLine:
        try:
            raw.isascii() or raw.decode()
            line = decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return with_care(number, raw)
        return line if line.query_id else with_care(number, raw)

    return read
