"""TOML tables: read, merged, changed by settings such as "training.epochs=3", made into dataclasses, written.

Whatever is wrong is named by file, key and value, with what is accepted.
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
    """The tables of a file. Raises FormatError for one that is missing or is no TOML, with the line."""
    return parse_toml(path, read_document(path), "an experiment, see docs/training.md")


def converted(table: Mapping[str, Any], kind: type[Made], where: str) -> Made:
    """A dataclass with the values of a table; `where` is how errors call it ("a.toml [training]").

    A list becomes a tuple, a whole number a float where the field is one. Raises UsageError for a key that
    the class does not have (with the nearest that it has), for a value of another type or range, and for
    what the class itself refuses.
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
    """A value as a type asks for it; "none" is None, which TOML lacks.

    Raises UsageError, which says what was found and what is accepted.
    """
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
        return converted(value, hint, where)
    if value == "none" and types.NoneType in get_args(hint):
        return None
    return value_as(value, hint, where)


def refuse_unknown(keys: Iterable[str], names: Iterable[str], where: str) -> None:
    """Raise UsageError for the first key that does not exist, with the nearest that does."""
    names = list(names)
    for key in keys:
        if key not in names:
            meant = did_you_mean(key, names) or "."
            raise UsageError(f"{where}: there is no {key!r}{meant} There are: {', '.join(names)}")


def set_values(table: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """A copy of nested tables with "a.b=VALUE" applied; VALUE is TOML, or text where it is no TOML.

    >>> set_values({"training": {"epochs": 100}}, ["training.epochs=3", "model.system=xml"])
    {'training': {'epochs': 3}, 'model': {'system': 'xml'}}

    Raises UsageError for what is no KEY=VALUE and for a key inside something that is no table.
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
    """A value as TOML writes it; else the text itself.

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
        mine = both.get(key)
        both[key] = merged(mine, value) if isinstance(mine, dict) and isinstance(value, Mapping) else value
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
    own = {key: value for key, value in table.items() if key not in inner}
    if path and (own or not inner):
        yield f"[{'.'.join(map(_key, path))}]"
    for key, value in own.items():
        yield f"{_key(key)} = {_written(value)}"
    if own or (path and not inner):
        yield ""
    for key, value in inner.items():
        yield from _table_lines(value, (*path, key))


def _key(text: str) -> str:
    is_bare = text.replace("-", "_").isidentifier() and text.isascii()
    return text if is_bare else _written(text)


def _written(value: Any) -> str:
    """A value as TOML writes it: as JSON does, but that TOML wants the character 127 escaped."""
    text = json.dumps("none" if value is None else value, ensure_ascii=False, default=str)
    return text.replace("\x7f", "\\u007f")
