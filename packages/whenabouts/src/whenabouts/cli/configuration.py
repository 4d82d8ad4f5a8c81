"""Options from files: `whenabouts.toml` in the current folder, and the user's (docs/configuration.md).

An option's value is that of the command line, else of its environment variable, else of the folder's file,
else of the user's file, else its default. A list on the command line replaces one in a file.
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
# What may stand above the tables: options that many verbs share. Others are of one verb.
FOR_ALL_VERBS = ("corpus", "device", "json", "table")
# What a person agrees to: what leaves the machine, who is let in, what is replaced. The current folder may
# be a stranger's, so its file may not say these.
_LET_IN = (
    *(
        "allow",
        "change-people",
        "files",
        "guests",
        "host",
        "show-paths",
        "token",
        "token-file",
        "trust-proxy",
    ),
)
# Where videos, words or a key go: a Ray cluster may also run its owner's code here.
_SENT_TO = ("address", "check", "http", "page", "ray", "rewrite", "send-frames", "send-query")
CONSENT = frozenset((*_LET_IN, *_SENT_TO, "force", "yes"))
_ENVIRONMENT = {
    "corpus": "WHENABOUTS_CORPUS",
    "token": "WHENABOUTS_TOKEN",
    "max-pixels": "WHENABOUTS_MAX_PIXELS",
}


@dataclass(frozen=True, slots=True)
class _Setting:
    """A key's value; `rank` 0 is the table that wins over all others, `table` names it for people."""

    file: Path
    table: str
    key: str
    value: Any
    rank: int

    def wrong(self, accepted: str) -> UsageError:
        return UsageError(f"{self.file}: {self.table}{self.key} is {self.value!r}; accepted: {accepted}")


@dataclass(frozen=True, slots=True)
class _Level:
    """A verb or a verb under it, with the settings of its options and the defaults they would have."""

    parser: argparse.ArgumentParser
    settings: Mapping[str, _Setting]
    defaults: Mapping[str, Any]


def configuration_files() -> list[Path]:
    """The files that are there; the one that wins stands first."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(named) if Path(named).is_absolute() else Path("~/.config").expanduser()
    return [path for path in (Path(NAME), base / "whenabouts" / NAME) if path.exists()]


def parse_with_files(
    parser: argparse.ArgumentParser, arguments: Sequence[str], verb: str | None
) -> argparse.Namespace:
    """The options of a command line, those that it leaves out from the files.

    Raises UsageError for a file that is no TOML, a key that is no option, or a value that it cannot have.
    """
    words = list(arguments)
    before = words[: words.index("--")] if "--" in words else words
    verbs = _parsers_under(parser)
    if verb not in verbs or {"-h", "--help", "--no-config"} & set(before):
        return parser.parse_args(arguments)
    files = [(path, _read(path, verbs)) for path in configuration_files()]
    if not files:
        return parser.parse_args(arguments)
    levels = {level.parser: level for level in _levels(verbs[verb], verb, files)}
    options = parser.parse_args(arguments)
    called: list[argparse.ArgumentParser] = []
    chosen: argparse.ArgumentParser | None = verbs[verb]
    while chosen is not None:
        called.append(chosen)
        chosen = _chosen_under(chosen, options)
    # The innermost first: it may have an option of its parent's, whose table then comes second.
    for parser_called in reversed(called):
        _fill(options, levels[parser_called])
    return options


def _read(path: Path, verbs: Mapping[str, Any]) -> dict[str, Any]:
    from whenabouts.intake.files import FormatError, parse_toml  # few runs have settings to read

    try:
        document = parse_toml(path, read_regular(path, _MOST_BYTES))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; or give --no-config") from error
    except FormatError as error:
        raise UsageError(str(error)) from None
    for key, value in document.items():
        if isinstance(value, dict) and key not in verbs:
            raise UsageError(f"{path}: [{key}] is no verb; tables are named {', '.join(verbs)}")
        if not isinstance(value, dict) and key not in FOR_ALL_VERBS:
            raise UsageError(
                f"{path}: {key} stands above the tables, where {', '.join(FOR_ALL_VERBS)} may stand; "
                "write it in the table of its verb, such as [search]"
            )
    return document


def _levels(
    parser: argparse.ArgumentParser, name: str, files: Sequence[tuple[Path, Mapping[str, Any]]]
) -> Iterator[_Level]:
    """A verb and all verbs under it; their parsers have no defaults any more, so that None is "not given"."""
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
                    f"{file}: {title}{key} may not stand in the file of a folder, which may be a stranger's; "
                    f"give --{key} on the command line, or write it in ~/.config/whenabouts/{NAME}"
                )
            if key in options:
                settings.setdefault(key, _Setting(file, title, key, value, rank))
            elif title:
                raise UsageError(
                    f"{file}: {title}{key} is no option of `whenabouts {name.replace('.', ' ')}`, which has "
                    + ", ".join(sorted([*options, *under]))
                )
    _check_groups(parser, settings)
    defaults = {key: action.default for key, action in options.items()}
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
    """Whether a value names an address of the network, as `model` may name a chat endpoint."""
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    return any("://" in text and not text.startswith(("s3://", "file://")) for text in texts)


def _tables(
    name: str, files: Sequence[tuple[Path, Mapping[str, Any]]]
) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """What concerns a verb, what wins first: of each file its own table, then what stands above it."""
    for file, document in files:
        table: Any = document
        for word in name.split("."):
            table = table.get(word, {})
            if not isinstance(table, dict):
                raise UsageError(f"{file}: {name} is {table!r}; it is a verb: write [{name}]")
        yield file, f"[{name}] ", table
        yield file, "", {key: value for key, value in document.items() if key in FOR_ALL_VERBS}


def _check_groups(parser: argparse.ArgumentParser, settings: dict[str, _Setting]) -> None:
    """Of options that exclude each other, keep the one whose table wins."""
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
    """Give what the command line left out its value from the files, else its default."""
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
    for key, action in left_out.items():
        value = level.defaults[key]
        if getattr(options, action.dest, None) is not None or value is argparse.SUPPRESS:
            continue
        if isinstance(value, str) and action.type is not None:
            value = level.parser._get_value(action, value)
        setattr(options, action.dest, value)


def _is_excluded(
    options: argparse.Namespace, parser: argparse.ArgumentParser, action: argparse.Action
) -> bool:
    """Whether the command line gives an option that excludes this one."""
    return any(
        getattr(options, other.dest, None) not in (None, False)
        for group in parser._mutually_exclusive_groups
        if action in group._group_actions
        for other in group._group_actions
        if other is not action
    )


def _value(action: argparse.Action, setting: _Setting) -> Any:
    """What argparse would have made of a value; None for a switch that is off."""
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
    if isinstance(value, date):
        value = value.isoformat()
    if not isinstance(value, str):
        raise setting.wrong("text in quotes")
    if action.choices is not None and value not in action.choices:
        raise setting.wrong(", ".join(map(str, action.choices)))
    value = str(Path(value).expanduser()) if value.startswith("~/") else value
    if not callable(action.type):
        return value
    try:
        return action.type(value)
    except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
        raise setting.wrong(f"what {action.option_strings[-1]} takes: {error}") from None


def _options_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [
        action
        for action in parser._actions
        if action.option_strings and not isinstance(action, argparse._HelpAction)
    ]


def _key(action: argparse.Action) -> str:
    """An option's key in a file: as on the command line, without the dashes."""
    return min(action.option_strings, key=lambda option: not option.startswith("--")).lstrip("-")


def _parsers_under(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The verbs of a parser, by name."""
    return {
        name: child
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, child in action.choices.items()
    }


def _chosen_under(
    parser: argparse.ArgumentParser, options: argparse.Namespace
) -> argparse.ArgumentParser | None:
    """The parser of the verb that was called under one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            chosen = getattr(options, action.dest, None)
            return None if chosen is None else action.choices[chosen]
    return None
