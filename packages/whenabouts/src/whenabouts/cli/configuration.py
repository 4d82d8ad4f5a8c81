"""Reads options from files: `whenabouts.toml` in the current folder, and the user's (docs/configuration.md).

An option's value comes from the command line, else its environment variable, else the folder's file, else the
user's file, else its default. A list on the command line replaces one in a file.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from whenabouts.intake.opening import read_regular
from whenabouts.types import UsageError

NAME = "whenabouts.toml"
_MOST_BYTES = 1 << 20
# Options that many verbs share, which a file may set above its tables.
FOR_ALL_VERBS = ("corpus", "device", "json", "table")
# Options that need the user's consent: what leaves the machine, who may connect, what is overwritten. The
# folder's file may not set them, because someone else may have written it.
_LET_IN = (
    "allow", "change-people", "files", "guests", "host", "show-paths", "token", "token-file", "trust-proxy",
)  # fmt: skip
# Where videos, words or a key are sent. A Ray cluster may also run its owner's code here.
_SENT_TO = ("address", "check", "http", "page", "ray", "rewrite", "send-frames", "send-query")
CONSENT = frozenset((*_LET_IN, *_SENT_TO, "force", "prune", "yes"))
_ENVIRONMENT = {
    "corpus": "WHENABOUTS_CORPUS",
    "token": "WHENABOUTS_TOKEN",
    "max-pixels": "WHENABOUTS_MAX_PIXELS",
}


@dataclass(frozen=True, slots=True)
class _Setting:
    """A key's value in a file. `rank` 0 is the table that wins; `table` is the table's name in messages."""

    file: Path
    table: str
    key: str
    value: Any
    rank: int

    def wrong(self, accepted: str) -> UsageError:
        return UsageError(f"{self.file}: {self.table}{self.key} is {self.value!r}; accepted: {accepted}")


@dataclass(frozen=True, slots=True)
class _Level:
    """A verb or inner verb, with the settings of its options, and the defaults by destination."""

    parser: argparse.ArgumentParser
    settings: Mapping[str, _Setting]
    defaults: Mapping[str, Any]


def configuration_files() -> list[Path]:
    """The configuration files that exist, highest priority first."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(named) if Path(named).is_absolute() else Path("~/.config").expanduser()
    return [path for path in (Path(NAME), base / "whenabouts" / NAME) if path.exists()]


def parse_with_files(
    parser: argparse.ArgumentParser, arguments: Sequence[str], verb: str | None
) -> argparse.Namespace:
    """Parse a command line, and take options it leaves out from the files.

    Raises UsageError for a file that is not TOML, an unknown option, or an invalid value.
    """
    words = list(arguments)
    before = words[: words.index("--")] if "--" in words else words
    verbs = _parsers_under(parser)
    outer = words[: words.index(verb)] if verb in verbs else []
    # argparse also accepts abbreviations, such as --no-conf.
    is_off = any(word[:3] == "--n" and "--no-config".startswith(word) for word in outer)
    if verb not in verbs or is_off or {"-h", "--help"} & set(before):
        return parser.parse_args(arguments)
    files = [(path, _read(path, verbs)) for path in configuration_files()]
    if not files:
        return parser.parse_args(arguments)
    levels = {level.parser: level for level in _levels(verbs[verb], verb, files)}
    options = parser.parse_args(arguments)
    _fill_called(options, verbs[verb], levels)
    return options


def _fill_called(
    options: argparse.Namespace,
    parser: argparse.ArgumentParser,
    levels: Mapping[argparse.ArgumentParser, _Level],
) -> None:
    """Set the missing options of a verb and of the inner verb that was called."""
    # The inner verb first: it may share an option with its parent, whose table comes second.
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and (word := getattr(options, action.dest, None)):
            _fill_called(options, action.choices[word], levels)
    _fill(options, levels[parser])


def _read(path: Path, verbs: Mapping[str, Any]) -> dict[str, Any]:
    from whenabouts.intake.files import FormatError, parse_toml  # few runs have such a file

    try:
        document = parse_toml(path, read_regular(path, _MOST_BYTES))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; or give --no-config") from error
    except FormatError as error:
        raise UsageError(str(error)) from None
    for key, value in document.items():
        if isinstance(value, dict) and key not in verbs:
            raise UsageError(f"{path}: [{key}] is not a verb; a table may be {', '.join(verbs)}")
        if not isinstance(value, dict) and key not in FOR_ALL_VERBS:
            raise UsageError(
                f"{path}: {key} is above the tables, where only {', '.join(FOR_ALL_VERBS)} may be; "
                "move it into the table of its verb, such as [search]"
            )
    return document


def _levels(
    parser: argparse.ArgumentParser, name: str, files: Sequence[tuple[Path, Mapping[str, Any]]]
) -> Iterator[_Level]:
    """A verb and its inner verbs. Clears their parsers' defaults, so that None means "not given"."""
    options = {_key(action): action for action in _options_of(parser)}
    under = _parsers_under(parser)
    tables = list(_tables(name, files))
    settings: dict[str, _Setting] = {}
    for rank, (file, title, table) in enumerate(tables):
        for key, value in table.items():
            if key in under:
                continue
            if key in options and file == Path(NAME) and (key in CONSENT or _has_address(value)):
                raise UsageError(
                    f"{file}: {title}{key} is not allowed in a folder's file, which someone else may "
                    f"have written; give --{key} on the command line, or set it in "
                    f"~/.config/whenabouts/{NAME}"
                )
            if key in options:
                settings.setdefault(key, _Setting(file, title, key, value, rank))
            elif title:
                raise UsageError(
                    f"{file}: {title}{key} is not an option of `whenabouts {name.replace('.', ' ')}`, which "
                    "has " + ", ".join(sorted([*options, *under]))
                )
    _check_groups(parser, settings)
    # As in argparse, the first of several options with one destination decides its default.
    defaults = {action.dest: action.default for action in reversed(options.values())}
    for key, action in options.items():
        if action.default is not argparse.SUPPRESS:
            action.default = None
        action.required = action.required and key not in settings
    for group in parser._mutually_exclusive_groups:
        group.required = group.required and not {_key(a) for a in group._group_actions} & settings.keys()
    yield _Level(parser, settings, defaults)
    for word, child in under.items():
        yield from _levels(child, f"{name}.{word}", files)


def _has_address(value: Any) -> bool:
    """Whether a value contains a network address: `model` may name a chat endpoint, `corpus` a bucket."""
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    return any("://" in text and not text.startswith("file://") for text in texts)


def _tables(
    name: str, files: Sequence[tuple[Path, Mapping[str, Any]]]
) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """The tables for a verb, highest priority first: of each file its own table, then the top level."""
    for file, document in files:
        table: Any = document
        for word in name.split("."):
            table = table.get(word, {})
            if not isinstance(table, dict):
                raise UsageError(f"{file}: {name} is {table!r}, but it is a verb; write a table [{name}]")
        yield file, f"[{name}] ", table
        yield file, "", {key: value for key, value in document.items() if key in FOR_ALL_VERBS}


def _check_groups(parser: argparse.ArgumentParser, settings: dict[str, _Setting]) -> None:
    """Of options that exclude each other, keep the one with the highest priority."""
    for group in parser._mutually_exclusive_groups:
        members = [
            settings[key]
            for key in map(_key, group._group_actions)
            if key in settings and settings[key].value is not False
        ]
        if len(members) < 2:
            continue
        best = min(setting.rank for setting in members)
        winners = [setting for setting in members if setting.rank == best]
        if len(winners) > 1:
            first, second = winners[0], winners[1]
            raise UsageError(
                f"{first.file}: {first.table}{first.key} and {second.key} exclude each other; keep one"
            )
        for setting in members:
            if setting.rank != best:
                del settings[setting.key]


def _fill(options: argparse.Namespace, level: _Level) -> None:
    """Set options missing on the command line: from the environment, else the files, else their defaults."""
    left_out = {
        key: action
        for key, action in {_key(action): action for action in _options_of(level.parser)}.items()
        if getattr(options, action.dest, None) is None
    }
    for key, action in left_out.items():
        is_set = bool(os.environ.get(_ENVIRONMENT.get(key, "")))
        if key in level.settings and not is_set and not _is_excluded(options, level.parser, action):
            value = _value(action, level.settings[key])
            if value is not None:
                setattr(options, action.dest, value)
                options.from_files += (action.dest,)
    for action in left_out.values():
        value = level.defaults[action.dest]
        if getattr(options, action.dest, None) is not None or value is argparse.SUPPRESS:
            continue
        if isinstance(value, str) and action.type is not None:
            value = level.parser._get_value(action, value)
        setattr(options, action.dest, value)


def _is_excluded(
    options: argparse.Namespace, parser: argparse.ArgumentParser, action: argparse.Action
) -> bool:
    """Whether the command line has an option that excludes this one."""
    return any(
        getattr(options, other.dest, None) not in (None, False)
        for group in parser._mutually_exclusive_groups
        if action in group._group_actions
        for other in group._group_actions
        if other is not action
    )


def _value(action: argparse.Action, setting: _Setting) -> Any:
    """The value as argparse would parse it; None for `false` at an option without a --no- form."""
    value = setting.value
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise setting.wrong("true or false")
        if isinstance(action, argparse.BooleanOptionalAction):
            return value
        return action.const if value else None
    if action.nargs == "?" and isinstance(value, bool):
        return action.const if value else None
    if isinstance(action, argparse._AppendAction):
        return [_single(action, setting, item) for item in (value if isinstance(value, list) else [value])]
    return _single(action, setting, value)


def _single(action: argparse.Action, setting: _Setting, value: Any) -> Any:
    if action.type is int or action.type is float:
        if isinstance(value, bool) or not isinstance(value, (int, action.type)):
            raise setting.wrong("a whole number" if action.type is int else "a number")
        return action.type(value)
    is_number = callable(action.type) and isinstance(value, (int, float))
    text = value.isoformat() if isinstance(value, date) else str(value) if is_number else value
    if not isinstance(text, str):
        raise setting.wrong("text in quotes")
    if action.choices is not None and text not in action.choices:
        raise setting.wrong(", ".join(map(str, action.choices)))
    text = str(Path(text).expanduser()) if text.startswith("~/") else text
    try:
        parsed = action.type(text) if callable(action.type) else text
    except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
        raise UsageError(f"{setting.file}: {setting.table}{setting.key}: {error}") from None
    if is_number and not isinstance(parsed, (int, float)):
        raise setting.wrong("text in quotes")
    return parsed


def _options_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [
        action
        for action in parser._actions
        if action.option_strings and not isinstance(action, argparse._HelpAction)
    ]


def _key(action: argparse.Action) -> str:
    """An option's key in a file: its long name without dashes."""
    return min(action.option_strings, key=lambda option: not option.startswith("--")).lstrip("-")


def _parsers_under(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The inner verbs of a parser, by name."""
    return {
        name: child
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, child in action.choices.items()
    }
