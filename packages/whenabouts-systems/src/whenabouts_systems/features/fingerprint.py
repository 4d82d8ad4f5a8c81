"""Fingerprints of features: how they were made. Without them, two files of equal shape look the same."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_bench.formats.json_records import Origin, Positive, Words

_TYPES = {
    "encoder": Words,
    "weights_sha256": Annotated[
        str, Meta(pattern="^[0-9a-f]{64}$", title="64 hexadecimal digits, lower case")
    ],
    "normalisation": Words,
    "version": Words,
    "frame_rate": Positive,
    "clip_seconds": Positive,
}
_NUMBERS = ("frame_rate", "clip_seconds")
_MEASURED = ("dtype", "width")
_MOST_EXTRAS = 64
_LONGEST = 1000


class FeatureMismatch(WhenaboutsError):
    """Two things were not made from the same features; `differences` lists what differs."""

    def __init__(self, names: tuple[str, str], differences: str) -> None:
        super().__init__(f"{names[0]} and {names[1]} were not made from the same features: {differences}")
        self.differences = differences


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The facts that determine the numbers of features; None means unknown.

    - `encoder`: the name of the network; `weights_sha256`: the hash of its weights.
    - `frame_rate`: frames per second that it saw; `clip_seconds`: the length of a row.
    - `normalisation`: how rows were processed afterwards, in words; `version`: the extracting program's.
    - `dtype`, `width`: of the stored rows, so always known for a file.
    - `extra`: further facts.
    - `content`: the hash of ids and rows. It identifies a file and not how it was made, so comparisons of
      fingerprints ignore it.
    """

    encoder: str | None = None
    weights_sha256: str | None = None
    frame_rate: float | None = None
    clip_seconds: float | None = None
    normalisation: str | None = None
    dtype: str | None = None
    width: int | None = None
    version: str | None = None
    extra: Mapping[str, str | int | float | bool] = field(
        default_factory=lambda: MappingProxyType({}), hash=False
    )
    content: str | None = None

    @property
    def unknown(self) -> tuple[str, ...]:
        """The names of unknown fields that determine the numbers."""
        return tuple(name for name in FIELDS if getattr(self, name) is None)

    def with_facts(self, facts: Mapping[str, Any], place: str | Path) -> Fingerprint:
        """The same fingerprint with more facts; names that are not fields go to `extra`.

        Raises FormatError, naming `place`, for a value that does not fit its field.
        """
        fields: dict[str, Any] = {}
        extra = dict(self.extra)
        for name, value in facts.items():
            if name in _TYPES:
                fields[name] = _checked(place, name, value)
            elif name not in (*_MEASURED, "content", "extra") and len(extra) < _MOST_EXTRAS:
                extra[name] = _plain(value)
        return dataclasses.replace(self, **fields, extra=MappingProxyType(extra))

    def to_json(self) -> dict[str, Any]:
        """The content of `fingerprint.json`; unknown fields are null."""
        shown = {name: getattr(self, name) for name in FIELDS}
        return {**shown, "extra": dict(self.extra), "content": self.content}

    def lines(self) -> list[str]:
        """Lines of text, with "unknown" for unknown fields."""
        shown = [(name.replace("_", " "), getattr(self, name)) for name in FIELDS if name not in _MEASURED]
        lines = [f"{name:16}{'unknown' if value is None else _shown(value)}" for name, value in shown]
        lines += [f"{name:15} {_shown(value)}" for name, value in self.extra.items()]
        return [*lines, f"{'content':16}{self.content or 'not hashed'}"]


FIELDS = tuple(fact.name for fact in dataclasses.fields(Fingerprint) if fact.name not in ("extra", "content"))
"""The fields that comparisons of fingerprints use."""


def require_same(
    a: Fingerprint, b: Fingerprint, names: tuple[str, str] = ("the first", "the second"), strict: bool = False
) -> tuple[str, ...]:
    """Require equal fingerprints; return the fields that could not be compared because one is unknown.

    Raises FeatureMismatch, naming both and all differing fields; with `strict` also if only one of the two
    knows a field. Fields that neither knows never differ.
    """
    pairs = {name: (getattr(a, name), getattr(b, name)) for name in FIELDS}
    different = [
        name for name, (x, y) in pairs.items() if x is not None and y is not None and not _same(x, y)
    ]
    one_sided = [name for name, (x, y) in pairs.items() if (x is None) != (y is None)]
    wrong = different + (one_sided if strict else [])
    if wrong:
        differences = "; ".join(
            f"{name.replace('_', ' ')}: {_or_unknown(pairs[name][0])} in {names[0]}, "
            f"{_or_unknown(pairs[name][1])} in {names[1]}"
            for name in wrong
        )
        raise FeatureMismatch(names, differences)
    return tuple(name for name, (x, y) in pairs.items() if x is None or y is None)


def setting(text: str) -> tuple[str, str | float]:
    """Parse `key=value` of the command line; numeric fields become numbers.

    >>> setting("frame_rate=3")
    ('frame_rate', 3.0)
    """
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not value or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
        names = ", ".join(_TYPES)
        raise UsageError(f"{text!r} is not a setting; give KEY=VALUE with one of {names}, or another key")
    if name in (*_MEASURED, "content", "extra"):
        raise UsageError(f"{text!r}: {name} is measured and cannot be set")
    if name in _NUMBERS:
        return name, _checked("--set", name, value)
    return name, value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-6)
    return bool(a == b)


def _or_unknown(value: Any) -> str:
    return "unknown" if value is None else _shown(value)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _checked(place: str | Path, name: str, value: Any) -> Any:
    """A value of a field of `Fingerprint`. Raises FormatError if it does not fit the field."""
    if value is not None:
        value = _plain(value)
        value = value if name in _NUMBERS else str(value).strip()
    elif name not in _NUMBERS:
        return None
    return Origin(place).at(name).convert(value, _TYPES[name], strict=False)


def _plain(value: Any) -> str | int | float | bool:
    """A value of a file's attributes in a form that JSON can hold."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        value = str(value)
    return value if isinstance(value, (bool, int, float)) else str(value)[:_LONGEST]
