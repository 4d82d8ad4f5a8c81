"""A folder of NumPy files, one for each item: `id.npy` (memory-mapped), or `id.npz` with one array."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whenabouts_systems.features.layouts._numpy_files import FolderSource, inspect_npy, inspect_npz
from whenabouts_systems.features.source import UnreadArray

NAME = "arrays"
SUMMARY = "folder of id.npy, or of id.npz with one array"
# The name of the npz's one array is not one of Moment-DETR's.
OUTLINE = r"npy\n.*|npz\n(?!(?:features|last_hidden_state|pooler_output)$)[^\n]+"

_SUFFIXES = (".npy", ".npz")


class Source(FolderSource):
    """One file for each item."""

    layout = NAME

    def _items_by_id(self) -> Mapping[str, Any]:
        names = [name for name in self._location.names if name.endswith(_SUFFIXES)]
        return self._by_id([(Path(name).stem, name) for name in names])

    def _inspect(self, item: str, where: Any) -> UnreadArray:
        path = self._file_of(where, item)
        if path.suffix == ".npy":
            return inspect_npy(path, item)
        return inspect_npz(path, item, [self.options.key] if self.options.key else None)


open_source = Source
"""`key` names the array if an npz holds several."""
