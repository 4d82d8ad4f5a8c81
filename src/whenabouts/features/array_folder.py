"""A folder of NumPy files, one an item: `id.npy` (memory-mapped), or `id.npz` with one array in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whenabouts.features._arrays import array_names, look_into_npy, look_into_npz
from whenabouts.features._folder import FolderSource
from whenabouts.features.protocol import Options, Place
from whenabouts.features.source import Unread

NAME = "arrays"
SUMMARY = "folder of id.npy, or of id.npz with one array"

_SUFFIXES = (".npy", ".npz")
_ELSEWHERE = {"features", "last_hidden_state", "pooler_output"}
"""Arrays whose names make a folder that of Moment-DETR."""


class Source(FolderSource):
    """One file an item."""

    layout = NAME

    def _find(self) -> Mapping[str, Any]:
        names = [name for name in self._place.names if name.endswith(_SUFFIXES)]
        return self._by_id([(Path(name).stem, name) for name in names])

    def _look(self, item: str, where: Any) -> Unread:
        path = self._file_of(where, item)
        if path.suffix == ".npy":
            return look_into_npy(path, item)
        return look_into_npz(path, item, [self.options.key] if self.options.key else None)


def recognises(place: Place) -> bool:
    """Whether the first NumPy file is a .npy, or an npz with one array of any other name."""
    if "index.json" in place.names:
        return False
    first = next((name for name in place.names if name.endswith(_SUFFIXES)), None)
    if first is None or first.endswith(".npy"):
        return first is not None
    arrays = array_names(place.path / first)
    return len(arrays) == 1 and not _ELSEWHERE & set(arrays)


def open_source(place: Place, options: Options) -> Source:
    """The features that are there; `key` names the array where an npz holds several."""
    return Source(place, options)
