"""What made some features: without it, two files of the same shape look the same."""

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
    """Features that something else was made from; the message names both, `differences` what differs."""

    def __init__(self, names: tuple[str, str], differences: str) -> None:
        super().__init__(f"{names[0]} and {names[1]} were not made from the same features: {differences}")
        self.differences = differences


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What decides about the numbers of some features. None means that nobody wrote it down.

    `encoder` is the name of the network; `weights_sha256` the hash of its weights; `frame_rate` the frames
    per second it saw; `clip_seconds` the length of a row; `normalisation` what was done to a row afterwards,
    in words; `version` that of the program that extracted. `dtype` and `width` are those of the stored rows
    and so are always known of a file. `extra` is what else was written down. `content` is the hash of ids
    and rows: it tells files apart, not what made them, and does not count when two fingerprints are held
    against each other.
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
        """Names of the fields that decide about the numbers and are not known."""
        return tuple(name for name in FIELDS if getattr(self, name) is None)

    def with_facts(self, facts: Mapping[str, Any], place: str | Path) -> Fingerprint:
        """The same with facts added; a name that is no field goes to `extra`.

        Raises FormatError, naming `place`, for a value that cannot be what its name says.
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
        """As it is written to `fingerprint.json`; unknown fields are null."""
        shown = {name: getattr(self, name) for name in FIELDS}
        return {**shown, "extra": dict(self.extra), "content": self.content}

    def lines(self) -> list[str]:
        """For people; what is unknown is said to be."""
        shown = [(name.replace("_", " "), getattr(self, name)) for name in FIELDS if name not in _MEASURED]
        lines = [f"{name:16}{'unknown' if value is None else _shown(value)}" for name, value in shown]
        lines += [f"{name:16}{_shown(value)}" for name, value in self.extra.items()]
        return [*lines, f"{'content':16}{self.content or 'not hashed'}"]


FIELDS = (
    "encoder",
    "weights_sha256",
    "frame_rate",
    "clip_seconds",
    "normalisation",
    "dtype",
    "width",
    "version",
)
"""What two fingerprints are compared in."""


def require_same(
    a: Fingerprint, b: Fingerprint, names: tuple[str, str] = ("the first", "the second"), strict: bool = False
) -> tuple[str, ...]:
    """Names of the fields that could not be compared, because one of the two does not know them.

    Raises FeatureMismatch, naming both and every field in which they differ; with `strict` also where a
    field is known of one only. A field that neither knows is never held against them.
    """
    pairs = {name: (getattr(a, name), getattr(b, name)) for name in FIELDS}
    different = [
        name for name, (x, y) in pairs.items() if x is not None and y is not None and not _same(x, y)
    ]
    unsure = [name for name, (x, y) in pairs.items() if (x is None) != (y is None)]
    wrong = different + (unsure if strict else [])
    if wrong:
        differences = "; ".join(
            f"{name.replace('_', ' ')}: {_or_unknown(pairs[name][0])} in {names[0]}, "
            f"{_or_unknown(pairs[name][1])} in {names[1]}"
            for name in wrong
        )
        raise FeatureMismatch(names, differences)
    return tuple(name for name, (x, y) in pairs.items() if x is None or y is None)


def setting(text: str) -> tuple[str, str | float]:
    """Name and value of a `key=value` of the command line; a number where the field is one.

    >>> setting("frame_rate=3")
    ('frame_rate', 3.0)
    """
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not value or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
        names = ", ".join(_TYPES)
        raise UsageError(f"{text!r} is no setting; give KEY=VALUE with one of {names}, or a key of your own")
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
    """A value of a field of `Fingerprint`. Raises FormatError for one that cannot be what its name says."""
    if value is not None:
        value = _plain(value)
        value = value if name in _NUMBERS else str(value).strip()
    elif name not in _NUMBERS:
        return None
    return Origin(place).at(name).convert(value, _TYPES[name], strict=False)


def _plain(value: Any) -> str | int | float | bool:
    """A value that JSON can hold, of what may stand in a file's attributes."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        value = str(value)
    return value if isinstance(value, (bool, int, float)) else str(value)[:_LONGEST]
