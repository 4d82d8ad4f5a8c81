"""Read, merge and change ("training.epochs=3") TOML tables, convert them to dataclasses, and write them.

Errors name the file, the key, the value and what is accepted.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from whenabouts.intake.files import FormatError, parse_toml, read_document
from whenabouts.types import UsageError, did_you_mean
from whenabouts_systems.models.settings import value_as

Made = TypeVar("Made")


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file. Raises FormatError, with the line, if it is missing or not TOML."""
    return parse_toml(path, read_document(path), "an experiment, see docs/training.md")


def converted(table: Mapping[str, Any], kind: type[Made], where: str) -> Made:
    """A dataclass with the values of a table, which errors call `where` ("a.toml [training]").

    Lists become tuples, and whole numbers floats if the field needs one. Raises UsageError for an unknown key
    (with the nearest known one), for a value of a wrong type or range, and for what the class refuses.
    """
    hints = get_type_hints(kind, include_extras=True)
    options = [option for option in dataclasses.fields(kind) if option.init]  # type: ignore[arg-type]
    refuse_unknown(table, [option.name for option in options], where)
    values = {key: value_of(value, hints[key], f"{where} {key}") for key, value in table.items()}
    for option in options:
        has_default = option.default is not dataclasses.MISSING or callable(option.default_factory)
        if option.name not in values and not has_default:
            raise UsageError(f"{where}: {option.name} is missing")
    try:
        return kind(**values)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


def value_of(value: Any, hint: Any, where: str) -> Any:
    """A value converted to a type; "none" becomes None, which TOML lacks.

    Raises UsageError with the value and what is accepted.
    """
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
        return converted(value, hint, where)
    if value == "none" and types.NoneType in get_args(hint):
        return None
    return value_as(value, hint, where)


def refuse_unknown(keys: Iterable[str], names: Iterable[str], where: str) -> None:
    """Raise UsageError for the first key that is not in `names`, with the nearest name."""
    names = list(names)
    for key in keys:
        if key not in names:
            meant = did_you_mean(key, names) or "."
            raise UsageError(f"{where}: there is no {key!r}{meant} There are: {', '.join(names)}")


def set_values(table: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """A copy of nested tables with "a.b=VALUE" applied; VALUE is TOML, else plain text.

    >>> set_values({"training": {"epochs": 100}}, ["training.epochs=3", "model.system=xml"])
    {'training': {'epochs': 3}, 'model': {'system': 'xml'}}

    Raises UsageError for a setting that is not KEY=VALUE, and for a key inside a value that is not a table.
    """
    changed = copy.deepcopy(dict(table))
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--set {setting!r}: accepted: KEY=VALUE, such as training.epochs=3")
        *path, key = (part.strip() for part in name.split("."))
        table_of_key = changed
        for part in path:
            table_of_key = table_of_key.setdefault(part, {})
            if not isinstance(table_of_key, dict):
                raise UsageError(f"--set {setting!r}: {part!r} is a value, and has no {key!r}")
        table_of_key[key] = toml_value(text.strip())
    return changed


def toml_value(text: str) -> Any:
    """Parse a TOML value; text that is not TOML is returned unchanged.

    >>> toml_value("3"), toml_value("true"), toml_value("bertadam")
    (3, True, 'bertadam')
    """
    try:
        return parse_toml("--set", f"value = {text}".encode())["value"]
    except FormatError:
        return text


def merged(table: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of nested tables in which the values of `over` replace those of `table`."""
    both = copy.deepcopy(dict(table))
    for key, value in over.items():
        inner = both.get(key)
        both[key] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return both


def toml_of(table: Mapping[str, Any]) -> str:
    """Nested tables as a TOML file; None is written as "none".

    >>> print(toml_of({"title": "a", "model": {"heads": 4, "scale": None}}), end="")
    title = "a"
    <BLANKLINE>
    [model]
    heads = 4
    scale = "none"
    """
    return "\n".join(_table_lines(table, ())).rstrip() + "\n"


def _table_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    values = {key: value for key, value in table.items() if key not in inner}
    if path and (values or not inner):
        yield f"[{'.'.join(map(_key, path))}]"
    for key, value in values.items():
        yield f"{_key(key)} = {_written(value)}"
    if values or (path and not inner):
        yield ""
    for key, value in inner.items():
        yield from _table_lines(value, (*path, key))


def _key(text: str) -> str:
    is_bare = text.replace("-", "_").isidentifier() and text.isascii()
    return text if is_bare else _written(text)


def _written(value: Any) -> str:
    """A value in TOML: as in JSON, but TOML needs the character 127 escaped."""
    text = json.dumps("none" if value is None else value, ensure_ascii=False, default=str)
    return text.replace("\x7f", "\\u007f")
