"""Tables of a settings file as frozen dataclasses; what is wrong is named by file, key and value."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from whenabouts.formats.files import FormatError, open_unpacked
from whenabouts.types import UsageError

Made = TypeVar("Made")


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file. Raises FormatError for one that is missing or is no TOML, with the line."""
    with open_unpacked(path) as stream:
        data = stream.read()
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FormatError(path, f"is not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise FormatError(
            path, f"is not TOML: {error}", accepted="an experiment, see docs/training.md"
        ) from None


def made_of(kind: type[Made], table: Mapping[str, Any], where: str) -> Made:
    """A dataclass with the values of a table; `where` is how errors call it ("a.toml [training]").

    A list becomes a tuple, a whole number a float where one is asked for. Raises UsageError for a key that
    the class does not have (with the nearest that it has) and a value of another type, and for what the
    class itself refuses.
    """
    hints = get_type_hints(kind)
    names = [one.name for one in dataclasses.fields(kind) if one.init]  # type: ignore[arg-type]
    for key in table:
        if key not in names:
            raise unknown(where, key, names)
    values = {key: fitted(value, hints[key], f"{where} {key}") for key, value in table.items()}
    missing = [one.name for one in dataclasses.fields(kind) if _is_needed(one) and one.name not in values]  # type: ignore[arg-type]
    if missing:
        raise UsageError(f"{where}: {missing[0]} is missing")
    try:
        return kind(**values)
    except (UsageError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from error


def unknown(where: str, key: str, names: Iterable[str]) -> UsageError:
    """The error for a key that is not there, with the nearest that is."""
    known = list(names)
    near = difflib.get_close_matches(key, known, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    return UsageError(f"{where}: there is no {key!r}{meant} There are: {', '.join(known)}")


def fitted(value: Any, kind: Any, where: str) -> Any:
    """A value as a type asks for it; UsageError says what was found and what is accepted."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(value, inner, where)
    if origin is Literal:
        if value not in inner or type(value) not in {type(one) for one in inner}:
            raise UsageError(f"{where} is {value!r}; accepted: {', '.join(map(repr, inner))}")
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(fitted(one, inner[0], f"{where}[{at}]") for at, one in enumerate(value))
    if (
        origin is not None
        and isinstance(origin, type)
        and issubclass(origin, Mapping)
        and isinstance(value, Mapping)
    ):
        return {key: fitted(one, inner[1], f"{where}.{key}") for key, one in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and isinstance(value, Mapping):
        return made_of(kind, value, where)
    return _plain(value, kind, where)


def _one_of(value: Any, kinds: tuple[Any, ...], where: str) -> Any:
    """The value as the first of some types that takes it; "none" is None, which TOML lacks."""
    if types.NoneType in kinds and (value is None or value == "none"):
        return None
    rest = [one for one in kinds if one is not types.NoneType]
    for kind in rest[:-1]:
        try:
            return fitted(value, kind, where)
        except UsageError:
            continue
    if types.NoneType in kinds and rest[-1] in _NAMES:
        return _plain(value, rest[-1], where, ', or "none"')
    try:
        return fitted(value, rest[-1], where)
    except UsageError:
        if len(rest) == 1 or isinstance(value, list | tuple | Mapping):
            raise
    accepted = ", or ".join(_NAMES.get(kind, _described(kind)) for kind in rest)
    raise UsageError(f"{where} is {value!r}; accepted: {accepted}")


_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _plain(value: Any, kind: Any, where: str, or_else: str = "") -> Any:
    if kind is Any:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    accepted = _NAMES.get(kind, _described(kind))
    raise UsageError(f"{where} is {value!r}; accepted: {accepted}{or_else}")


def _described(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple:
        return f"a list, each {_NAMES.get(inner[0], _described(inner[0]))}"
    return "a table" if origin is not None or dataclasses.is_dataclass(kind) else str(kind)


def _is_needed(one: dataclasses.Field[Any]) -> bool:
    return one.init and one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING


def set_values(table: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """A copy of nested tables with "a.b=VALUE" applied; VALUE is TOML, or text where it is no TOML.

    >>> set_values({"training": {"epochs": 100}}, ["training.epochs=3", "model.system=xml"])
    {'training': {'epochs': 3}, 'model': {'system': 'xml'}}

    Raises UsageError for what is no KEY=VALUE and for a key inside something that is no table.
    """
    changed = _copied(table)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--set {setting!r}: accepted: KEY=VALUE, such as training.epochs=3")
        *path, key = (part.strip() for part in name.split("."))
        place = changed
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise UsageError(f"--set {setting!r}: {part!r} is a value, and has no {key!r}")
        place[key] = toml_value(text.strip())
    return changed


def toml_value(text: str) -> Any:
    """A value as TOML writes it; else the text itself.

    >>> toml_value("3"), toml_value("true"), toml_value("bertadam")
    (3, True, 'bertadam')
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def merged(table: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of nested tables in which the values of `over` replace those of `table`."""
    both = _copied(table)
    for key, value in over.items():
        mine = both.get(key)
        both[key] = merged(mine, value) if isinstance(mine, dict) and isinstance(value, Mapping) else value
    return both


def _copied(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in table.items()}


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


def _table_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> typing.Iterator[str]:
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
    return (
        text
        if text and all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in text)
        else _quoted(text)
    )


def _quoted(text: str) -> str:
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    return letter if letter.isprintable() else f"\\U{ord(letter):08X}"


def _written(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_written, value)) + "]"
    return _quoted(str(value))
