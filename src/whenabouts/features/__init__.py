"""Features on disk: one interface for released layouts and our own store.

The folder `layouts` is the registry: a new layout is a new file in it and nothing else. The content decides
which layout a file or folder is in, unless the caller says.
"""

from __future__ import annotations

from pathlib import Path

from whenabouts.features.fingerprint import FeatureMismatch, Fingerprint, require_same
from whenabouts.features.layouts import Layout, all_layouts
from whenabouts.features.location import FeatureLocation, OpenOptions
from whenabouts.features.source import FeatureSource
from whenabouts.formats.files import FormatError, ReaderMissing
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
    options = OpenOptions(clip_seconds, strict, key)
    location = FeatureLocation(Path(path))
    if layout is not None:
        _ = location.is_folder  # raises where nothing is there
        return _layout_named(layout).open_source(location, options)
    for module in all_layouts():
        if module.recognises(location):
            return module.open_source(location, options)
    raise FormatError(
        location.path,
        f"{_description(location)} is in no known layout",
        accepted="; ".join(layout_summaries().values()),
    )


def layout_names() -> tuple[str, ...]:
    """Names of all layouts."""
    return tuple(layout_summaries())


def layout_summaries() -> dict[str, str]:
    """What each layout is, by name."""
    return {module.NAME: module.SUMMARY for module in all_layouts()}


def _layout_named(name: str) -> Layout:
    current = "whenabouts" if name == "cuepoint" else name  # our own store, by the project's former name
    for module in all_layouts():
        if current == module.NAME:
            return module
    raise UsageError(f"layout {name!r} is not known; known: {', '.join(layout_names())}")


def _description(location: FeatureLocation) -> str:
    if not location.is_hdf5:
        return location.describe()
    from whenabouts.features.layouts._hdf5 import first_entry

    first = first_entry(location)
    if first is None:
        return "an HDF5 file without entries"
    return f"an HDF5 file whose entry {first[0]!r} holds {list(first[1])}"
