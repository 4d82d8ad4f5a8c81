"""Features on disk: one interface for released layouts and our own store; the folder is the registry.

Every module here that declares a `NAME` is a layout (see `protocol.Layout`); a new layout is a new file and
nothing else. The content decides which layout a file or folder is in, unless the caller says.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any

from whenabouts.features.fingerprint import FeatureMismatch, Fingerprint, require_same
from whenabouts.features.protocol import Options, Place, ReaderMissing
from whenabouts.features.source import FeatureSource
from whenabouts.formats.opened import FormatError
from whenabouts.types import UsageError

__all__ = [
    "FeatureMismatch",
    "FeatureSource",
    "Fingerprint",
    "ReaderMissing",
    "layout_names",
    "layout_summaries",
    "open_features",
    "require_same",
]

_NO_LAYOUT = {
    "compare",
    "convert",
    "fingerprint",
    "gathered",
    "on_grid",
    "protocol",
    "resample",
    "source",
    "summary",
}


def open_features(
    path: str | Path,
    *,
    layout: str | None = None,
    clip_seconds: float | None = None,
    strict: bool = False,
    key: str | None = None,
) -> FeatureSource:
    """The features in a file or folder; close it, or use it in a `with`.

    `layout` is one of `layout_names()`; None lets the content decide. `clip_seconds` is the length of a row
    where the file does not tell. `strict` refuses rows that are not finite. `key` names the array of an item
    where it has several. Raises FormatError, naming file and item; ReaderMissing, naming what to install.
    """
    options = Options(clip_seconds, strict, key)
    place = Place(Path(path))
    if layout is not None:
        _ = place.is_folder  # says so where nothing is there
        source: FeatureSource = _named(layout).open_source(place, options)
        return source
    for module in _layouts():
        if module.recognises(place):
            found: FeatureSource = module.open_source(place, options)
            return found
    raise FormatError(
        place.path,
        f"{_described(place)} is in no known layout",
        accepted="; ".join(layout_summaries().values()),
    )


def layout_names() -> tuple[str, ...]:
    """Names of all layouts."""
    return tuple(layout_summaries())


def layout_summaries() -> dict[str, str]:
    """What each layout is, by name."""
    return {module.NAME: module.SUMMARY for module in _layouts()}


@cache
def _layouts() -> tuple[Any, ...]:
    """The modules of this folder that declare a layout, by name; at most one recognises a place."""
    names = [found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_")]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names if name not in _NO_LAYOUT]
    return tuple(sorted(modules, key=lambda module: module.NAME))


def _named(name: str) -> Any:
    wanted = "whenabouts" if name == "cuepoint" else name  # our own store, by the project's former name
    for module in _layouts():
        if wanted == module.NAME:
            return module
    raise UsageError(f"layout {name!r} is not known; known: {', '.join(layout_names())}")


def _described(place: Place) -> str:
    if place.is_hdf5:
        from whenabouts.features._hdf5 import first_entry

        first = first_entry(place)
        return (
            "an HDF5 file without entries"
            if first is None
            else f"an HDF5 file whose entry {first[0]!r} holds {list(first[1])}"
        )
    return place.describe()
