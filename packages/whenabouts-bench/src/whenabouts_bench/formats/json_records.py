"""Check JSON against declared types; errors name the file, line and field of a wrong value.

Readers declare what they accept as `msgspec.Struct`s. The text that an error gives as accepted is the type's
`title`; unknown fields are ignored.
"""

from __future__ import annotations

import math
import re
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from operator import getitem
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import msgspec
from msgspec import Meta

from whenabouts.intake.files import (
    ABSENT,
    FormatError,
    check_values,
    json_error,
    loads_unique,
    open_unpacked,
    parse_json,
    read_document,
)

T = TypeVar("T")

LONGEST_LINE = 1 << 28
"""The limit of bytes in a line; longer ones mean that the file is not JSON lines."""

_BOM = b"\xef\xbb\xbf"
_MOST = sys.float_info.max

Finite = Annotated[float, Meta(ge=-_MOST, le=_MOST, title="a finite number")]
NotNegative = Annotated[float, Meta(ge=0, le=_MOST, title="a finite number of at least 0")]
Positive = Annotated[float, Meta(gt=0, le=_MOST, title="a finite number above 0")]
Share = Annotated[float, Meta(ge=0, le=1, title="a number from 0 to 1")]
Cosine = Annotated[float, Meta(ge=-1.001, le=1.001, title="a cosine, -1 to 1")]
"""With a tolerance for rounding."""
Text = Annotated[str, Meta(title="a text")]
Words = Annotated[str, Meta(pattern=r"\S", title="a text that is not empty")]
Id = Annotated[
    int | Annotated[str, Meta(min_length=1)], Meta(title="a text that is not empty, or a whole number")
]
"""`str(value)` is the id."""
Times = Annotated[tuple[Finite, Finite], Meta(title="[start, end], two finite numbers")]

_PROBLEMS = {
    "float": "is not a number:",
    "int": "is not a number:",
    "str": "is not a text:",
    "array": "is not a list:",
    "object": "is not an object:",
    "int | str": "is not an id:",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of a value: file, line, field."""

    path: Path | str
    line: int | None = None
    field: str = ""

    def at(self, *keys: str | int) -> Origin:
        """A place within: fields by name, list entries by index."""
        field = self.field
        for key in keys:
            field += f"[{key}]" if isinstance(key, int) else f".{key}" if field else key
        return Origin(self.path, self.line, field)

    def error(self, problem: str, value: Any = ABSENT, accepted: str = "") -> FormatError:
        """An error about this place; a problem ending in a colon is followed by the value."""
        if value is None:
            problem, value = problem + " null" * problem.endswith(":"), ABSENT
        return FormatError(
            self.path, problem, line=self.line, field=self.field, value=value, accepted=accepted
        )

    @overload
    def convert(self, value: Any, type_: type[T], accepted: str = "", *, strict: bool = True) -> T: ...
    @overload
    def convert(self, value: Any, type_: Any, accepted: str = "", *, strict: bool = True) -> Any: ...
    def convert(self, value: Any, type_: Any, accepted: str = "", *, strict: bool = True) -> Any:
        """The value as a type; without `strict` a text may represent a number.

        Raises FormatError with file, line, field, value and what is accepted.
        """
        try:
            return msgspec.convert(value, type_, strict=strict)
        except msgspec.ValidationError as error:
            raise self._refused(value, type_, str(error), accepted) from None

    def as_id(self, value: Any) -> str:
        """An id; an integer becomes text."""
        return str(self.convert(value, Id))

    def object(self, value: Any, accepted: str = "an object") -> dict[str, Any]:
        """A JSON object."""
        if not isinstance(value, dict):
            raise self.error("is not an object:", value, accepted)
        return value

    def array(self, value: Any, accepted: str = "a list") -> list[Any]:
        """A JSON list."""
        if not isinstance(value, list):
            raise self.error("is not a list:", value, accepted)
        return value

    def check_span(self, start: float, end: float, *, empty: bool = False) -> None:
        """Raise FormatError if a span is negative, reversed or (unless `empty`) empty."""
        if start < 0:
            raise self.error("is negative:", start, "seconds, 0 or more")
        if start > end or (start == end and not empty):
            accepted = "start <= end" if empty else "start < end"
            raise self.error(f"{start!r} is not before the end {end!r}", accepted=accepted)

    def _refused(self, value: Any, type_: Any, message: str, accepted: str) -> FormatError:
        """A msgspec error as a FormatError with the value and what its type accepts."""
        message, _, place = message.partition(" - at `$")
        keys = [int(index) if index else name for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", place)]
        shown: Any = reduce(getitem, keys, value)
        if missing := re.search(r"missing required field `(.*)`", message):
            fields = ", ".join(shown)[:80] or "nothing"
            keys.append(missing[1])
            problem, shown = f"is missing (found: {fields!r})", ABSENT
        else:
            problem, shown = _problem(message, shown)
        title = _title(type_, tuple(keys))
        return self.at(*keys).error(problem, shown, title if keys or not accepted else accepted)


def _problem(message: str, value: Any) -> tuple[str, Any]:
    """(problem, value to show) of a value that msgspec refuses."""
    if "enum" in message:
        return "is", value
    kinds = (re.search("`(.*?)`", message) or ["", ""])[1].removesuffix(" | null")
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            return "is not finite:", number
        if ", got" in message:
            return ("is not a whole number:" if kinds == "int" else _PROBLEMS.get(kinds, "is")), value
        if "<=" in message:
            return "is too large:", value
        return ("is too small:" if number or ">=" in message else "is"), value
    if length := re.search(r"length (\d+)", message) if kinds == "array" else None:
        return ("is not a pair:" if length[1] == "2" else f"does not have {length[1]} values:"), value
    if ", got" in message:
        return _PROBLEMS.get(kinds, "is"), value
    if "regex" in message:
        return ("is" if value.strip() else "is empty:"), value
    if "length" in message:
        return ("is empty:" if kinds == "array" else "is not an id:"), value
    return "is not a number:", value


@cache
def _title(type_: Any, keys: tuple[str | int, ...]) -> str:
    """The values that the type at a place accepts: its title, or that of the enclosing tuple."""
    title, is_in_tuple = "", False
    while True:
        if get_origin(type_) is Annotated:
            type_, *metas = get_args(type_)
            titles = [meta.title for meta in metas if isinstance(meta, Meta) and meta.title]
            title = titles[0] if titles and not is_in_tuple else title
            is_in_tuple = is_in_tuple or (bool(titles) and get_origin(type_) is tuple)
        elif get_origin(type_) in (Union, types.UnionType) and types.NoneType in get_args(type_):
            type_ = next(option for option in get_args(type_) if option is not types.NoneType)
        elif not keys:
            if title or get_origin(type_) is not list:
                return title or {str: "a text", int: "a whole number"}.get(type_, "an object")
            inner = _title(get_args(type_)[0], ())
            return "a list" if inner == "an object" else f"a list of {inner}"
        else:
            key, keys, parts = keys[0], keys[1:], get_args(type_)
            title = title if is_in_tuple else ""
            if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
                fields = get_type_hints(type_, include_extras=True)
                type_ = fields[key] if isinstance(key, str) else list(fields.values())[key]
            else:
                type_ = parts[int(key)] if get_origin(type_) is tuple else parts[0]


def check_length(origin: Origin, name: str, entries: list[Any], other: str, count: int) -> None:
    """Raise FormatError if a list does not have `count` entries, as the list `other` has."""
    if len(entries) != count:
        problem = f"has {len(entries)} entries and {other} has {count}:"
        raise origin.at(name).error(problem, entries, f"a list of {count} entries, one for each of {other}")


def read_text(path: Path) -> str:
    """A file's text, without BOM. Raises FormatError, with the line, if it is not UTF-8."""
    data = read_document(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem, line = f"is not UTF-8 text (byte {error.start})", data.count(b"\n", 0, error.start) + 1
        raise FormatError(path, problem, line=line, accepted="text saved as UTF-8") from None


def names_of_numbers(origin: Origin, entries: Mapping[str, Any], accepted: str) -> dict[int, str]:
    """Number -> name, of {name: number} or {name: [seconds, number]}.

    Raises FormatError for another value, and for a number of two names.
    """
    names: dict[int, str] = {}
    for name, value in entries.items():
        number = value[1] if isinstance(value, list) and len(value) == 2 else value
        if type(number) is not int:
            raise origin.at(name).error("is not the number of a video:", value, accepted)
        if names.setdefault(number, name) != name:
            raise origin.at(name).error(f"is also the number of {names[number]!r}:", number, accepted)
    return names


def numbered_lines(stream: IO[bytes], path: Path, first: int = 1) -> Iterator[tuple[int, bytes]]:
    """(line number, stripped line) of non-blank lines, without BOM."""
    number = first - 1
    while raw := stream.readline(LONGEST_LINE):
        number += 1
        if len(raw) >= LONGEST_LINE:
            raise FormatError(path, f"has more than {LONGEST_LINE >> 20} MiB in one line", line=number)
        if number == 1:
            raw = raw.removeprefix(_BOM)
        if raw := raw.strip(b" \t\r\n"):
            yield number, raw


def parse_line(path: Path, number: int, raw: bytes) -> dict[str, Any]:
    """A line as a JSON object. Raises FormatError, also for a repeated key."""
    origin = Origin(path, number)
    try:
        # NaN and Infinity are left to the field that has them.
        value = loads_unique(raw.decode("utf-8"), path, number)
    except (ValueError, RecursionError) as error:
        raise json_error(path, error, number, "a JSON object a line") from None
    check_values(value, raw, path, number)
    return origin.object(value, "a JSON object a line")


def read_records(path: Path, accepted: str = "") -> Iterator[tuple[Origin, dict[str, Any]]]:
    """The objects of JSON lines, each with its line; blank lines are skipped.

    Raises FormatError for a line that is not an object; with `accepted`, also for an empty file.
    """
    empty = True
    with open_unpacked(path) as stream:
        for number, raw in numbered_lines(stream, path):
            empty = False
            yield Origin(path, number), parse_line(path, number, raw)
    if accepted and empty:
        raise FormatError(path, "holds no annotations", accepted=accepted)


def read_list(path: Path, accepted: str = "a list") -> Iterator[tuple[Origin, Any]]:
    """The entries of a JSON list, each with its place, decoded one at a time.

    Decoded at once, millions of pairs would take ten times the memory of their text. Raises FormatError as
    `read_json` does, and if the value is not a list.
    """
    data = read_document(path)
    try:
        entries = msgspec.json.decode(data.removeprefix(_BOM), type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        entries = Origin(path).array(parse_json(path, data), accepted)  # says what is wrong
    for number, entry in enumerate(entries):
        value = parse_json(path, bytes(entry)) if isinstance(entry, msgspec.Raw) else entry
        yield Origin(path, field=f"[{number}]"), value
