"""HDF5 of 2D-TAN and MMN for TACoS: `s13-d21.avi` -> (T, 4096) in `tall_c3d_features.hdf5`.

The id is the name without `.avi`, as other releases' annotations name videos. In TACoS' own annotation files
names end in `.avi`, so `get` accepts both.
"""

from __future__ import annotations

from whenabouts_systems.features.layouts._hdf5 import Hdf5Source
from whenabouts_systems.features.source import UnreadArray

NAME = "tacos"
SUMMARY = "HDF5, id.avi -> (T, D): TACoS C3D of 2D-TAN, MMN, CroCs"
OUTLINE = r"hdf5\n[^\n]*\.avi"

_SUFFIX = ".avi"


class Source(Hdf5Source):
    """One data set for each item, under the name of the video's file."""

    layout = NAME
    has_keys = False

    def _item_of(self, key: str) -> str:
        return key.removesuffix(_SUFFIX)

    def __contains__(self, item: object) -> bool:
        return isinstance(item, str) and item.removesuffix(_SUFFIX) in self._items

    def _checked_item(self, item: str) -> UnreadArray:
        return super()._checked_item(item.removesuffix(_SUFFIX))


open_source = Source
