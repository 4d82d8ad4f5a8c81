"""Features on disk: one interface for released layouts and our own store.

The folder `layouts` is the registry: every module in it that declares a `NAME` is a layout (see `Layout`),
and a new layout is a new file and nothing else. The content decides which layout a file or folder is in,
unless the caller says.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from whenabouts.intake.files import FormatError, ReaderMissing
from whenabouts.plugins import modules_declaring
from whenabouts.types import UsageError
from whenabouts_systems.features.fingerprint import FeatureMismatch, Fingerprint, require_same
from whenabouts_systems.features.location import FeatureLocation, OpenOptions
from whenabouts_systems.features.outlines import outline_of
from whenabouts_systems.features.source import FeatureSource

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


class Layout(Protocol):
    """A layout of features on disk."""

    NAME: str
    """As `--layout` takes it."""
    SUMMARY: str
    """One line for people: which releases, what keys."""
    OUTLINE: str
    """What `outlines.outline_of` is where it lies, and of no other layout: a regular expression."""

    def open_source(self, location: FeatureLocation, options: OpenOptions) -> FeatureSource:
        """The features that are there."""


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
        if re.fullmatch(module.OUTLINE, outline_of(location)):
            return module.open_source(location, options)
    raise FormatError(
        location.path,
        f"{_description(location)} is in no known layout",
        accepted="; ".join(layout_summaries().values()),
    )


def all_layouts() -> tuple[Layout, ...]:
    """All layouts, by name; at most one recognises a location."""
    return tuple(
        sorted(modules_declaring(f"{__name__}.layouts", "NAME", "layouts"), key=lambda layout: layout.NAME)
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
    kind, *names = outline_of(location).split("\n")
    if kind == "hdf5 without entries":
        return "an HDF5 file without entries"
    if kind == "hdf5 group":
        return f"an HDF5 file whose entry {names[0]!r} holds {names[1:]}"
    return location.describe()
