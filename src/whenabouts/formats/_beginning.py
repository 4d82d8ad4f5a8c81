"""How a file begins as JSON, also where only its first bytes are at hand."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from whenabouts.formats.opened import Opening

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|"|[\[\]{},]', re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}
_DEEPEST = 100


@lru_cache(maxsize=4)
def first_value(opening: Opening) -> Any:
    """The first JSON value of a file; of one that reaches beyond the opening, what is there of it.

    None where the file does not begin with an object or a list.
    """
    text = opening.head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None if opening.whole else _completed(text)


def _completed(text: str) -> Any:
    """The value that begins here, cut after its last whole member and closed."""
    open_brackets: list[str] = []
    keep, closing = 0, ""
    for token in _TOKEN.finditer(text):
        sign = token.group()
        if sign == '"':  # a string that the cut goes through: what comes after this is prose
            break
        if sign in _CLOSING:
            open_brackets.append(_CLOSING[sign])
        elif sign in ("}", "]"):
            if not open_brackets or open_brackets.pop() != sign:
                return None
        elif sign != ",":
            continue
        if len(open_brackets) < _DEEPEST:
            keep = token.start() if sign == "," else token.end()
            closing = "".join(reversed(open_brackets))
    try:
        return json.loads(text[:keep] + closing)
    except (ValueError, RecursionError):
        return None


def first_object(opening: Opening) -> dict[str, Any]:
    """The first JSON value where it is an object, else {}."""
    value = first_value(opening)
    return value if isinstance(value, dict) else {}


def first_entry(value: Any) -> Any:
    """The first element of a list, the first value of an object, None where there is none."""
    if isinstance(value, dict):
        value = list(value.values())[:1]
    return value[0] if isinstance(value, list) and value else None
