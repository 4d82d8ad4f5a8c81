"""Lines of a run, decoded fast; what the fast decoder refuses is read again with care.

The careful reading (`jsonl.answers`) is the definition: the fast one accepts no more than it and gives the
same, and a line that it refuses is accepted or blamed by the careful one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from cuepoint.formats._records import line_record


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


def decoder(path: Path) -> Callable[[int, bytes], RunLine]:
    """A function (line number, line) -> answers, times and video ids not yet checked; raises FormatError."""
    decode = msgspec.json.Decoder(RunLine).decode

    def read(number: int, raw: bytes) -> RunLine:
        try:
            raw.isascii() or raw.decode()
            line = decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return with_care(path, number, raw)
        return line if line.query_id else with_care(path, number, raw)

    return read


def with_care(path: Path, number: int, raw: bytes) -> RunLine:
    """The same by the careful reading."""
    from cuepoint.formats.jsonl import answers

    query_id, rows = answers(line_record(path, number, raw))
    return RunLine(query_id, [RunMoment(video, score, start, end) for video, start, end, score in rows])
