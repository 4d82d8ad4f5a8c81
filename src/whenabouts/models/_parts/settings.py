"""What settings of a system cannot be, whichever system it is: values of another type, sizes below 1."""

from __future__ import annotations

import math
import types
from collections.abc import Iterator, Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

_NAMES = {bool: "true or false", int: "a whole number", float: "a finite number", types.NoneType: "none"}
_SIZES = (
    *("query_width", "hidden", "heads", "max_clips", "max_tokens", "encoder_kernel", "span_kernel"),
    *("layers", "feedforward", "blocks", "frames", "clips", "clusters", "span_hidden"),
)
_KERNELS = ("encoder_kernel", "span_kernel")
_POOLS = ("first_pool", "pool")
_SHARES = ("input_dropout", "dropout")


def faults(config: Any) -> Iterator[str]:
    """Sentences on the fields of a `Config` that no model can have, those of a wrong type first.

    A file of settings may be edited by hand: what it holds is checked here, before a layer is built of it.
    Sizes, widths and pools are 1 or more, kernels odd, `hidden` a multiple of `heads`, dropout lies from 0 to
    below 1, `initializer_range` is no less than 0. A field that a system lacks is not looked at.
    """
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        accepted = _accepted(kind)
        if accepted and not any(_is_a(value, one) for one in accepted):
            yield f"{name} = {value!r}: {' or '.join(_NAMES[one] for one in accepted)} is expected"
    yield from _strange_streams(config.streams)
    for name in _SIZES:
        if (size := getattr(config, name, 1)) is not None and size < 1:
            yield f"{name} = {size}: at least 1 is expected"
    yield from _strange_numbers(config)
    for name in _SHARES:
        if not 0 <= (share := getattr(config, name)) < 1:
            yield f"{name} = {share}: a share from 0 to below 1 is expected"
    if config.initializer_range < 0:
        yield f"initializer_range = {config.initializer_range}: at least 0 is expected"


def _strange_numbers(config: Any) -> Iterator[str]:
    if config.heads >= 1 and config.hidden % config.heads:
        yield f"hidden = {config.hidden} is no multiple of heads = {config.heads}"
    for name in _KERNELS:
        if (kernel := getattr(config, name, 1)) % 2 == 0:
            yield f"{name} = {kernel}: an odd number is expected"
    for name in _POOLS:
        if (pool := getattr(config, name, None)) is not None and pool < 1:
            yield f"{name} = {pool}: at least 1 is expected, or none for all negatives"


def _strange_streams(streams: Any) -> Iterator[str]:
    if not isinstance(streams, Mapping):
        yield f"streams = {streams!r}: a width for each stream's name is expected"
        return
    if not streams:
        yield "streams = {}: one stream at least is expected"
    for name, width in streams.items():
        if not _is_a(width, int) or width < 1:
            yield f"stream {name!r} has a width of {width!r}: a whole number, at least 1, is expected"


def _accepted(kind: Any) -> tuple[Any, ...]:
    """The plain types that a field takes; none where it takes something else, which its owner checks."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return kinds if set(kinds) <= set(_NAMES) else ()


def _is_a(value: Any, kind: Any) -> bool:
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is kind
