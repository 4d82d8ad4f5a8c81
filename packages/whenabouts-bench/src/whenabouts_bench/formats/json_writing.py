"""Helpers of writers: ids and numbers, texts and durations by id, JSON lines and members of lists."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from whenabouts.intake.files import FormatError, write_atomically
from whenabouts.types import UsageError
from whenabouts_bench.formats.annotations import Annotations

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def id_as_number(identifier: str) -> int | str:
    """The id as an integer if it is one of at most 18 digits without leading zeros, else the text."""
    short = identifier.isascii() and identifier.isdigit() and len(identifier) <= 18
    return int(identifier) if short and str(int(identifier)) == identifier else identifier


def whole_as_int(number: float) -> int | float:
    """An integer if the number is whole and at most 2^53 in size (exact in every reader), else the number."""
    return int(number) if number.is_integer() and abs(number) <= 1 << 53 else number


def query_texts(annotations: Annotations | None) -> dict[str, str]:
    """Query id -> text; empty without annotations."""
    return {query.id: query.text for query in annotations.queries} if annotations else {}


def video_durations(annotations: Annotations) -> dict[str, float]:
    """Video id -> seconds, where known."""
    return {video.id: video.duration for video in annotations.videos if video.duration is not None}


def write_json_value(stream: IO[bytes], value: Any) -> None:
    """Write one JSON value. Raises UsageError if it cannot be encoded."""
    try:
        stream.write(_encode(value).encode())
    except (ValueError, TypeError) as error:
        raise UsageError(f"cannot be written as JSON ({error}): {str(value)[:80]!r}") from None


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines, atomically. Raises FormatError for a value that JSON cannot hold."""
    with write_atomically(path) as stream:
        write_lines_to(stream, path, lines)


def write_lines_to(stream: IO[bytes], path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines to a stream. Raises FormatError as `write_lines` does; it names `path`."""
    for line in lines:
        try:
            stream.write(_encode(line).encode() + b"\n")
        except UnicodeEncodeError:
            problem = "cannot be written: text that is not valid Unicode:"
            raise FormatError(path, problem, value=line) from None
        except (ValueError, TypeError) as error:
            raise FormatError(path, f"cannot be written ({error}):", value=line) from None


class ListWriter:
    """Writes the members of a JSON list or object one by one; the caller writes the brackets."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._between = b""

    def add(self, value: Any, key: str | None = None) -> None:
        """Write an entry of a list or, with `key`, a member of an object."""
        self._stream.write(self._between)
        self._between = b",\n"
        if key is not None:
            write_json_value(self._stream, key)
            self._stream.write(b": ")
        write_json_value(self._stream, value)
