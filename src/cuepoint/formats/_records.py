"""JSON objects of a file, with accessors that check a value and say where a wrong one stands."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cuepoint.formats.opened import FormatError, opened

LONGEST_LINE = 1 << 28
"""Bytes of a line beyond which a file is taken for something else than lines."""

_IDS = "a text that is not empty, or a whole number"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Record:
    """An object of a file. Its accessors raise FormatError, naming file, line, field and value."""

    path: Path
    fields: dict[str, Any]
    line: int | None = None
    prefix: str = ""

    def wrong(self, key: str, problem: str, value: Any = None, accepted: str = "") -> FormatError:
        """The error that a field of this record has."""
        return FormatError(
            self.path, problem, line=self.line, field=self.prefix + key, value=value, accepted=accepted
        )

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.fields.get(key) is not None

    def value(self, key: str, accepted: str) -> Any:
        """The field as it is."""
        if key not in self.fields:
            raise self.wrong(key, "is missing", accepted=accepted)
        return self.fields[key]

    def id(self, key: str) -> str:
        """An id; whole numbers become text."""
        return self.as_id(key, self.value(key, _IDS))

    def as_id(self, key: str, value: Any) -> str:
        """An id that stands at `key`; whole numbers become text."""
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "is no id:", value, _IDS)
        return self.as_text(key, value)

    def text(self, key: str) -> str:
        """A text, which may be empty."""
        return self.as_text(key, self.value(key, "a text"))

    def as_text(self, key: str, value: Any) -> str:
        """A text that stands at `key`."""
        if not isinstance(value, str):
            raise self.wrong(key, "is no text:", value, "a text")
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise self.wrong(key, "is no valid Unicode:", value, "text without lone surrogates")
        return value

    def number(self, key: str, least: float = -math.inf) -> float:
        """A finite number of at least `least`."""
        return self.as_number(key, self.value(key, "a finite number"), least)

    def as_number(self, key: str, value: Any, least: float = -math.inf) -> float:
        """A finite number of at least `least` that stands at `key`."""
        accepted = "a finite number" if least == -math.inf else f"a finite number of at least {least:g}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, "is no number:", value, accepted)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.wrong(key, "is not finite:", number, accepted)
        if number < least:
            raise self.wrong(key, "is too small:", value, accepted)
        return number

    def array(self, key: str, accepted: str = "a list") -> list[Any]:
        """A list."""
        return self.as_array(key, self.value(key, accepted), accepted)

    def as_array(self, key: str, value: Any, accepted: str = "a list") -> list[Any]:
        """A list that stands at `key`."""
        if not isinstance(value, list):
            raise self.wrong(key, "is no list:", value, accepted)
        return value

    def as_times(self, key: str, value: Any) -> tuple[float, float]:
        """[start, end] that stands at `key`: two finite numbers in any order."""
        accepted = "[start, end]"
        if len(self.as_array(key, value, accepted)) != 2:
            raise self.wrong(key, "is no pair:", value, accepted)
        return self.as_number(key + "[0]", value[0]), self.as_number(key + "[1]", value[1])

    def record(self, key: str, value: Any) -> Record:
        """The object that stands at `key`."""
        if not isinstance(value, dict):
            raise self.wrong(key, "is no object:", value, "an object")
        return Record(self.path, value, self.line, f"{self.prefix}{key}.")

    def records(self, key: str) -> Iterator[Record]:
        """The objects of a list."""
        for number, value in enumerate(self.array(key, "a list of objects")):
            yield self.record(f"{key}[{number}]", value)

    def check_span(self, start: float, end: float, key: str = "start", *, empty: bool = False) -> None:
        """Refuse a span that is negative, reversed or (unless `empty`) without length."""
        if start < 0:
            raise self.wrong(key, "is negative:", start, "seconds, 0 or more")
        if start > end or (start == end and not empty):
            raise self.wrong(
                key,
                f"{start!r} is not before the end {end!r}",
                accepted="start < end" if not empty else "start <= end",
            )


def numbered_lines(stream: IO[bytes], path: Path, first: int = 1) -> Iterator[tuple[int, bytes]]:
    """(line number, line without blanks around it) of those that are not blank; a BOM is dropped."""
    number = first - 1
    while raw := stream.readline(LONGEST_LINE):
        number += 1
        if len(raw) >= LONGEST_LINE:
            raise FormatError(path, f"has more than {LONGEST_LINE >> 20} MiB in one line", line=number)
        if number == 1:
            raw = raw.removeprefix(_BOM)
        if raw := raw.strip(b" \t\r\n"):
            yield number, raw


def line_record(path: Path, number: int, raw: bytes) -> Record:
    """A line as a JSON object. Raises FormatError for anything else."""
    try:
        value = json.loads(raw.decode("utf-8"))  # NaN and Infinity are left to the field that has them
    except UnicodeDecodeError as error:
        raise FormatError(path, f"is not UTF-8 text (byte {error.start} of the line)", line=number) from None
    except json.JSONDecodeError as error:
        problem = f"is not JSON ({error.msg}, column {error.colno})"
        raise FormatError(path, problem, line=number, accepted="a JSON object a line") from None
    except RecursionError:
        raise FormatError(path, "is nested too deeply to be read", line=number) from None
    except ValueError:  # Python refuses whole numbers of thousands of digits
        raise FormatError(path, "holds a number of too many digits", line=number) from None
    if not isinstance(value, dict):
        raise FormatError(path, "is no object:", line=number, value=value, accepted="a JSON object a line")
    return Record(path, value, number)


def records_of(path: Path) -> Iterator[Record]:
    """The objects of a file of JSON lines; blank lines are passed over."""
    with opened(path) as stream:
        for number, raw in numbered_lines(stream, path):
            yield line_record(path, number, raw)
