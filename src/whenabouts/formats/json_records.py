"""JSON objects of a file, with accessors that check a value and say where a wrong one stands."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from whenabouts.formats.files import ABSENT, FormatError, json_error, open_unpacked, read_json

LONGEST_LINE = 1 << 28
"""Bytes of a line beyond which a file is taken for something else than lines."""

_IDS = "a text that is not empty, or a whole number"
_WORDS = "a text that is not empty"
_TIMES = "[start, end], two finite numbers"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Record:
    """An object of a file. Its accessors raise FormatError, naming file, line, field and value.

    `number(key)` reads a field that must be there; `as_number(key, value)` checks a value that stands at
    `key`, which may be a place inside a field: "times[2]".
    """

    path: Path
    fields: dict[str, Any]
    line: int | None = None
    prefix: str = ""

    def wrong(self, key: str, problem: str, value: Any = ABSENT, accepted: str = "") -> FormatError:
        """The error that a field of this record has, or the record itself, whose key is "".

        A problem that ends in a colon is followed by the value.
        """
        if value is None and problem.endswith(":"):
            problem += " null"
        given = {} if value is None else {"value": value}
        field = self.prefix + key if key else self.prefix.removesuffix(".")
        return FormatError(self.path, problem, line=self.line, field=field, accepted=accepted, **given)

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.fields.get(key) is not None

    def value(self, key: str, accepted: str) -> Any:
        """The field as it is."""
        if key not in self.fields:
            found = ", ".join(self.fields)[:80] or "nothing"
            raise self.wrong(key, f"is missing (found: {found!r})", accepted=accepted)
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

    def as_text(self, key: str, value: Any, accepted: str = "a text") -> str:
        """A text that stands at `key`."""
        if not isinstance(value, str):
            raise self.wrong(key, "is no text:", value, accepted)
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise self.wrong(key, "is no valid Unicode:", value, "text without lone surrogates")
        return value

    def words(self, key: str) -> str:
        """A text with something in it, without the blanks around it."""
        return self.as_words(key, self.value(key, _WORDS))

    def as_words(self, key: str, value: Any) -> str:
        """A text with something in it that stands at `key`, without the blanks around it."""
        if not (text := self.as_text(key, value, _WORDS).strip()):
            raise self.wrong(key, "is empty:", value, _WORDS)
        return text

    def number(self, key: str, least: float = -math.inf) -> float:
        """A finite number of at least `least`."""
        return self.as_number(key, self.value(key, _numbers(least)), least)

    def as_number(self, key: str, value: Any, least: float = -math.inf, accepted: str = "") -> float:
        """A finite number of at least `least` that stands at `key`."""
        accepted = accepted or _numbers(least)
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

    def positive(self, key: str) -> float:
        """A finite number above 0."""
        accepted = "a finite number above 0"
        value = self.value(key, accepted)
        if (number := self.as_number(key, value, 0, accepted)) == 0:
            raise self.wrong(key, "is", value, accepted)
        return number

    def as_whole(self, key: str, value: Any, least: int, accepted: str = "") -> int:
        """A whole number of at least `least` that stands at `key`; 2.0 is one."""
        accepted = accepted or f"a whole number of at least {least}"
        number = self.as_number(key, value, least, accepted)
        if number != int(number):
            raise self.wrong(key, "is no whole number:", value, accepted)
        return int(number)

    def array(self, key: str, accepted: str = "a list") -> list[Any]:
        """A list."""
        return self.as_array(key, self.value(key, accepted), accepted)

    def as_array(self, key: str, value: Any, accepted: str = "a list") -> list[Any]:
        """A list that stands at `key`."""
        if not isinstance(value, list):
            raise self.wrong(key, "is no list:", value, accepted)
        return value

    def array_along(self, key: str, other: str, entry: str = "entries") -> list[Any]:
        """A list with an entry for each entry of the list `other`; `entry` says what they are."""
        count = len(self.array(other))
        accepted = f"a list of {count} {entry}, one for each of {other}"
        values = self.array(key, accepted)
        if len(values) != count:
            raise self.wrong(key, f"has {len(values)} entries and {other} has {count}:", values, accepted)
        return values

    def as_pair(self, key: str, value: Any, accepted: str) -> tuple[Any, Any]:
        """A list of two that stands at `key`."""
        if len(self.as_array(key, value, accepted)) != 2:
            raise self.wrong(key, "is no pair:", value, accepted)
        return value[0], value[1]

    def as_times(self, key: str, value: Any, accepted: str = _TIMES) -> tuple[float, float]:
        """[start, end] that stands at `key`: two finite numbers in any order."""
        start, end = self.as_pair(key, value, accepted)
        return (
            self.as_number(key + "[0]", start, accepted=accepted),
            self.as_number(key + "[1]", end, accepted=accepted),
        )

    def record(self, key: str, accepted: str = "an object") -> Record:
        """An object."""
        return self.as_record(key, self.value(key, accepted), accepted)

    def as_record(self, key: str, value: Any, accepted: str = "an object") -> Record:
        """The object that stands at `key`."""
        if not isinstance(value, dict):
            raise self.wrong(key, "is no object:", value, accepted)
        return Record(self.path, value, self.line, f"{self.prefix}{key}." if key else self.prefix)

    def records(self, key: str, accepted: str = "a list of objects") -> Iterator[Record]:
        """The objects of a list."""
        for number, value in enumerate(self.array(key, accepted)):
            yield self.as_record(f"{key}[{number}]", value, accepted)

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


def _numbers(least: float) -> str:
    return "a finite number" if least == -math.inf else f"a finite number of at least {least:g}"


def read_document(path: Path) -> Record:
    """The JSON value of a file, whatever its kind, as the field "" of a record."""
    return Record(path, {"": read_json(path)})


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


def parse_line(path: Path, number: int, raw: bytes) -> Record:
    """A line as a JSON object. Raises FormatError for anything else."""
    try:
        value = json.loads(raw.decode("utf-8"))  # NaN and Infinity are left to the field that has them
    except (ValueError, RecursionError) as error:
        raise json_error(path, error, number, "a JSON object a line") from None
    if not isinstance(value, dict):
        raise FormatError(path, "is no object:", line=number, value=value, accepted="a JSON object a line")
    return Record(path, value, number)


def read_records(path: Path, wanted: str = "") -> Iterator[Record]:
    """The objects of a file of JSON lines; blank lines are passed over.

    Raises FormatError where a line is none, and for a file without any, where it says what is `wanted`.
    """
    found = False
    with open_unpacked(path) as stream:
        for number, raw in numbered_lines(stream, path):
            found = True
            yield parse_line(path, number, raw)
    if wanted and not found:
        raise FormatError(path, "holds no annotations", accepted=wanted)
