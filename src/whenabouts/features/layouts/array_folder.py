"""A folder of NumPy files, one an item: `id.npy` (memory-mapped), or `id.npz` with one array in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whenabouts.features.layouts._numpy_files import FolderSource, array_names, inspect_npy, inspect_npz
from whenabouts.features.location import FeatureLocation, OpenOptions
from whenabouts.features.source import UnreadArray

NAME = "arrays"
SUMMARY = "folder of id.npy, or of id.npz with one array"

_SUFFIXES = (".npy", ".npz")
_ELSEWHERE = {"features", "last_hidden_state", "pooler_output"}
"""Arrays whose names make a folder that of Moment-DETR."""


class Source(FolderSource):
    """One file an item."""

    layout = NAME

    def _items_by_id(self) -> Mapping[str, Any]:
        names = [name for name in self._location.names if name.endswith(_SUFFIXES)]
        return self._by_id([(Path(name).stem, name) for name in names])

    def _inspect(self, item: str, where: Any) -> UnreadArray:
        path = self._file_of(where, item)
        if path.suffix == ".npy":
            return inspect_npy(path, item)
        return inspect_npz(path, item, [self.options.key] if self.options.key else None)


def recognises(location: FeatureLocation) -> bool:
    """Whether the first NumPy file is a .npy, or an npz with one array of any other name."""
    if "index.json" in location.names:
        return False
    first = next((name for name in location.names if name.endswith(_SUFFIXES)), None)
    if first is None or first.endswith(".npy"):
        return first is not None
    arrays = array_names(location.path / first)
    return len(arrays) == 1 and not _ELSEWHERE & set(arrays)


def open_source(location: FeatureLocation, options: OpenOptions) -> Source:
    """The features that are there; `key` names the array where an npz holds several."""
    return Source(location, options)
