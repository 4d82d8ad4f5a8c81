"""Types of settings with their ranges, and checks of values against them (msgspec).

The `Config` of each system, `Decoding` and `Inputs` are frozen dataclasses with fields of these types. Users
edit the files of these settings by hand, so values are checked before a layer is built.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from whenabouts.intake.files import ABSENT, FormatError, read_json
from whenabouts.types import UsageError

Size = Annotated[int, Meta(ge=1)]
"""A width, a length or a number of layers."""
Count = Annotated[int, Meta(ge=0)]
"""A number that may be 0, or the id of a token."""
Share = Annotated[float, Meta(ge=0, lt=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
_WIDTHS = "each with its width, a whole number, 1 or more"
Streams = Annotated[
    Mapping[str, Size], Meta(min_length=1, description=f"one stream at least: names, {_WIDTHS}")
]
"""Name of each stream -> width of its features."""
_Identifier = Annotated[str, Meta(pattern=r"^[^\W\d]\w*$")]
_NAMED = f"names of letters, digits and _, {_WIDTHS}"
NamedStreams = Annotated[
    Mapping[_Identifier, Size], Meta(min_length=1, description=f"one stream at least: {_NAMED}")
]
"""`Streams` whose names are also names of a model's parts."""
UpToTwoStreams = Annotated[
    Mapping[_Identifier, Size],
    Meta(min_length=1, max_length=2, description=f"one stream or two: {_NAMED}"),
]
AnyUpToTwoStreams = Annotated[
    Mapping[str, Size],
    Meta(min_length=1, max_length=2, description="one stream or two: names, each with its width, 1 or more"),
]

_NAMES = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a text"}
_KERNELS = ("encoder_kernel", "span_kernel", "map_kernel")
_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class SystemSettings:
    """The base of each system's `Config`. Raises UsageError when made with a setting that fits no model."""

    ignores_weights = False
    """Whether the loss ignores `Batch.weight`; an experiment with weights is then refused."""

    def __post_init__(self) -> None:
        check_settings(self, name_of_system(self))


@dataclass(frozen=True, kw_only=True)
class ProgramSetting(SystemSettings):
    """The setting that chooses the authors' program, including its faults, instead of the paper."""

    as_released: bool = False
    """Make the system of `released/<system>.py`; see `protocol.py`."""


def name_of_system(config: Any) -> str:
    """The name of the system of a `Config`, which is its module's name."""
    return type(config).__module__.rpartition(".")[2]


def check_settings(config: Any, system: str) -> None:
    """Raise UsageError for the first setting of a wrong type or out of range.

    Also checked: `hidden` is a multiple of numbers of heads, and kernels are odd.
    """
    check_fields(config, system)
    for name in ("heads", "text_heads"):
        if config.hidden % (heads := getattr(config, name, 1)):
            raise UsageError(f"{system}: hidden = {config.hidden} is no multiple of {name} = {heads}")
    for name in _KERNELS:
        if (kernel := getattr(config, name, 1)) % 2 == 0:
            raise UsageError(f"{system}: {name} is {kernel}; accepted: an odd number")


def check_fields(record: Any, place: str, *, leave_out: Collection[str] = ()) -> None:
    """Raise UsageError for the first field of a dataclass whose value does not have the field's type.

    Messages begin with `place`. Values are not converted: "1" is not a number, true is not 1.
    """
    record_type: Any = type(record)
    for name, kind in _types_of(record_type).items():
        if name not in leave_out:
            value_as(getattr(record, name), kind, f"{place}: {name}")


def value_as(value: Any, kind: Any, name: str) -> Any:
    """Convert a value to a type: a list to a tuple, a whole number to a float; never a text to a number.

    Raises UsageError with `name`, the value, and what is accepted.
    """
    try:
        # msgspec refuses NumPy's float64, a subclass of float.
        converted = msgspec.convert(float(value) if isinstance(value, float) else value, kind, strict=True)
    except msgspec.ValidationError:
        fits = False
    else:
        # msgspec has no type for numbers that are finite.
        values = value.values() if isinstance(value, Mapping) else value
        numbers = values if isinstance(values, Iterable) and not isinstance(values, str) else (values,)
        fits = all(math.isfinite(number) for number in numbers if isinstance(number, float))
    if not fits:
        raise UsageError(f"{name} is {value!r}; accepted: {_accepted(kind)}")
    return converted


def check_keys(record: Mapping[str, Any], kind: type, place: str, *, needed: Collection[str] = ()) -> None:
    """Raise UsageError for a key that is not a field of the dataclass `kind`, and for a missing key."""
    names = list(_types_of(kind))
    for name in sorted(set(record) - set(names)):
        raise UsageError(f"{place} has no setting {name!r}; it has {', '.join(names)}")
    for name in needed:
        if name not in record:
            raise UsageError(f"{place}: {name!r} is missing; expected {', '.join(needed)}")


def defaults_of(kind: Any) -> dict[str, Any]:
    """Field -> default, of the fields of a dataclass that have one."""
    made = {field.name: field.default_factory for field in fields(kind) if callable(field.default_factory)}
    plain = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
    return {**{name: make() for name, make in made.items()}, **plain}


def read_record(path: Path, kind: type[_Kind], version: int, accepted: str) -> _Kind:
    """Read a JSON file of this project into a msgspec Struct.

    The key `format` must have the value `version`. Raises FormatError with file, field, value and `accepted`.
    """
    record = read_json(path)
    if not isinstance(record, dict) or "format" not in record:
        raise FormatError(path, "the settings of another program", accepted=accepted)
    if record["format"] != version or isinstance(record["format"], bool):
        problem = "is of a form that this version of whenabouts does not read:"
        raise FormatError(path, problem, field="format", value=record["format"], accepted=str(version))
    try:
        return msgspec.convert(record, kind, strict=True)
    except msgspec.ValidationError as error:
        raise _refusal(path, record, kind, str(error), accepted) from None


def _refusal(path: Path, record: Mapping[str, Any], kind: Any, message: str, accepted: str) -> FormatError:
    """Translate a message of msgspec such as "Expected `str`, got `int` - at `$.system`"."""
    problem, _, place = message.partition(" - at ")
    name = re.search(r"field `(.*)`", problem)
    if name is not None and "missing" in problem:
        return FormatError(path, "is missing", field=name[1], accepted=accepted)
    if name is not None:
        return FormatError(path, "unknown key", value=name[1], accepted=accepted)
    field = place.strip("`").removeprefix("$.")
    problem = f"{problem[:1].lower()}{problem[1:]}:"
    if get_origin(hint := _types_of(kind).get(field)) is Literal:
        problem, accepted = "is", f"{_accepted(hint)}; {accepted}"
    return FormatError(path, problem, field=field, value=record.get(field, ABSENT), accepted=accepted)


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass with their types and ranges."""
    return get_type_hints(kind, include_extras=True)


def _accepted(kind: Any) -> str:
    """The values that a type accepts, in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        (meta,) = kind.__metadata__
        return meta.description or _accepted(inner[0]) + _range(meta)
    if origin is Literal:
        return ", ".join(map(repr, inner))
    if origin in (Union, types.UnionType):
        return ", or ".join("none" if kind is types.NoneType else _accepted(kind) for kind in inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"for each name {_accepted(inner[1])}"
    if origin is tuple:
        return f"a list{'' if inner[-1] is ... else f' of {len(inner)}'}, each {_accepted(inner[0])}"
    return _NAMES.get(kind, "a table" if is_dataclass(kind) else str(kind))


def _range(meta: Meta) -> str:
    bounds = (
        ("", meta.ge, " or more"),
        ("above ", meta.gt, ""),
        ("below ", meta.lt, ""),
        ("at most ", meta.le, ""),
    )
    text = [f"{before}{bound}{after}" for before, bound, after in bounds if bound is not None]
    return "".join(f", {part}" for part in text)
