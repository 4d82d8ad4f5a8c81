"""Fields of a JSON record, checked: what a reader gets is what it asked for, or one line says why not."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cuepoint.formats.opened import FormatError, opened


def read_json_without_repeats(path: Path) -> Any:
    """The one JSON value of a file in which no object has a key twice.

    Readers of JSON keep the last of two equal keys and say nothing; in an object of videos, the first one's
    sentences would be gone. Raises FormatError for that, and with the line where it stops being JSON.
    """
    with opened(path) as stream:
        data = stream.read()
    try:
        return json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=lambda pairs: _without_repeats(path, pairs),
        )
    except UnicodeDecodeError as error:
        raise FormatError(path, f"is not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        problem = f"is not JSON ({error.msg}, column {error.colno})"
        raise FormatError(path, problem, line=error.lineno) from None
    except RecursionError:
        raise FormatError(path, "is nested too deeply to be read") from None
    except ValueError as error:
        # Python refuses to read whole numbers of thousands of digits.
        raise FormatError(path, f"holds a number that cannot be read ({error})") from None


def _without_repeats(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise FormatError(path, "the key comes twice:", value=twice, accepted="each key once in its object")
    return record


def field_of(path: Path, record: Mapping[str, Any], key: str, where: str, line: int | None = None) -> Any:
    """The value under a key that a record must have."""
    if key not in record:
        found = ", ".join(map(str, record)) or "nothing"
        raise FormatError(
            path, "is missing", line=line, field=_named(where, key), accepted=f"{key} (found: {found[:80]})"
        )
    return record[key]


def object_at(path: Path, value: Any, where: str, accepted: str) -> dict[str, Any]:
    """The value, which must be a JSON object."""
    if not isinstance(value, dict):
        raise FormatError(
            path, f"is {kind_of(value)}, no object:", field=where, value=value, accepted=accepted
        )
    return value


def list_at(path: Path, value: Any, where: str, accepted: str, length: int | None = None) -> list[Any]:
    """The value, which must be a JSON list, of that length where one is given."""
    if not isinstance(value, list):
        raise FormatError(path, f"is {kind_of(value)}, no list:", field=where, value=value, accepted=accepted)
    if length is not None and len(value) != length:
        raise FormatError(path, f"has {len(value)} entries:", field=where, value=value, accepted=accepted)
    return value


def text_at(path: Path, value: Any, where: str, accepted: str = "a text that is not empty") -> str:
    """The value, which must be text with something in it; blanks around it are cut off."""
    if not isinstance(value, str):
        raise FormatError(path, f"is {kind_of(value)}, no text:", field=where, value=value, accepted=accepted)
    if not value.strip():
        raise FormatError(path, "is empty", field=where, accepted=accepted)
    return value.strip()


def number_at(
    path: Path, value: Any, where: str, accepted: str, *, least: float = -math.inf, line: int | None = None
) -> float:
    """The value, which must be a finite number, `least` or more."""
    problem = "is no number:"
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number) and number >= least:
            return number
        problem = "is out of range:"
    raise FormatError(path, problem, line=line, field=where, value=value, accepted=accepted)


def whole_number_at(path: Path, value: Any, where: str, accepted: str, *, least: int = 0) -> int:
    """The value, which must be a whole number, `least` or more."""
    number = number_at(path, value, where, accepted, least=least)
    if number != int(number):
        raise FormatError(path, "is no whole number:", field=where, value=value, accepted=accepted)
    return int(number)


def kind_of(value: Any) -> str:
    """What JSON calls the kind of a value, with its article."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")


def _named(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
