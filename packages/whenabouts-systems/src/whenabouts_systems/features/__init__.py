"""Features on disk: one interface for released layouts and our own store.

The folder `layouts` is the registry: every module in it that declares a `NAME` is a layout (see `Layout`),
and a new layout is a new file. Plugins add layouts through the entry points `whenabouts.layouts`. The layout
of a file or folder is recognised by its content, unless the caller names it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from whenabouts.intake.files import FormatError, ReaderMissing
from whenabouts.plugins import modules_declaring
from whenabouts.types import UsageError
from whenabouts_systems.features.fingerprint import FeatureMismatch, Fingerprint, require_same
from whenabouts_systems.features.layouts._hdf5 import outline as hdf5_outline
from whenabouts_systems.features.layouts._numpy_files import array_names
from whenabouts_systems.features.source import (
    STORE_INDEX,
    STORE_ROWS,
    FeatureLocation,
    FeatureSource,
    OpenOptions,
)

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
    """Its name for `--layout`."""
    SUMMARY: str
    """One line for users: the releases that use it, and its keys."""
    OUTLINE: str
    """A regular expression that matches `outline_of` of this layout's locations, and of no others."""

    def open_source(self, location: FeatureLocation, options: OpenOptions) -> FeatureSource:
        """The features at a location."""


def open_features(
    path: str | Path,
    *,
    layout: str | None = None,
    clip_seconds: float | None = None,
    strict: bool = False,
    key: str | None = None,
) -> FeatureSource:
    """The features in a file or folder; close them, or use them in a `with`.

    `layout` is one of `layout_names()`; None recognises it by content. `clip_seconds` is the length of a row,
    if the file does not say. `strict` refuses rows that are not finite. `key` names the array of an item that
    has several. Raises FormatError, naming file and item; ReaderMissing, naming the package to install.
    """
    options = OpenOptions(clip_seconds, strict, key)
    location = FeatureLocation(Path(path))
    if layout is not None:
        _ = location.is_folder  # raises if nothing exists there
        layouts = {module.NAME: module for module in all_layouts()}
        current = "whenabouts" if layout == "cuepoint" else layout  # the project's former name
        if current not in layouts:
            raise UsageError(f"layout {layout!r} is not known; known: {', '.join(layouts)}")
        return layouts[current].open_source(location, options)
    outline = outline_of(location)
    for module in all_layouts():
        if re.fullmatch(module.OUTLINE, outline):
            return module.open_source(location, options)
    accepted = "; ".join(layout_summaries().values())
    if outline.startswith("hdf5 group\n"):
        way = "--layout activitynet --key NAME"
        accepted += f"; one array of each group by {way}; for training: `whenabouts features convert … {way}`"
    raise FormatError(
        location.path, f"{_description(location, outline)} is in no known layout", accepted=accepted
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
    """Name -> summary of each layout."""
    return {module.NAME: module.SUMMARY for module in all_layouts()}


def outline_of(location: FeatureLocation) -> str:
    """The kind of a location and names inside it, one a line, which `Layout.OUTLINE` matches.

    - "hdf5" with the name of the first entry; if it is a group, "hdf5 group", its name and its entries' names
    - "lmdb" with the name of the data file
    - "store" with the name of the index of our own store
    - "npy" with the first file of a folder, or "npz" with the names of the first file's arrays
    - "folder" with file names, or "file" with the first bytes, for everything else

    Raises FormatError, and ReaderMissing if a missing package is needed to recognise it.
    """
    return "\n".join([name.replace("\n", " ") for name in _lines_of(location)])


def _lines_of(location: FeatureLocation) -> tuple[str, ...]:
    if location.is_hdf5:
        return hdf5_outline(location.path)
    if location.lmdb_file is not None:
        return ("lmdb", location.lmdb_file.name)
    if not location.is_folder:
        return ("file", location.head.decode("latin-1"))
    if {STORE_ROWS, STORE_INDEX} <= set(location.names):
        return ("store", STORE_INDEX)
    first = next((name for name in location.names if name.endswith((".npy", ".npz"))), None)
    if first is None or STORE_INDEX in location.names:
        return ("folder", *location.names)
    if first.endswith(".npy"):
        return ("npy", first)
    return ("npz", *array_names(location.path / first))


def _description(location: FeatureLocation, outline: str) -> str:
    kind, *names = outline.split("\n")
    if kind == "hdf5 without entries":
        return "an HDF5 file without entries"
    if kind == "hdf5 group":
        return f"an HDF5 file whose entry {names[0]!r} holds {names[1:]}"
    return location.describe()
