"""HDF5 of 2D-TAN and MMN for ActivityNet: a group `v_...` that holds `c3d_features` (T, 500)."""

from __future__ import annotations

from whenabouts_systems.features.layouts._hdf5 import Hdf5Source

NAME = "activitynet"
SUMMARY = "HDF5, id/c3d_features -> (T, D): ActivityNet C3D of 2D-TAN, MMN, CroCs"

_KEY = "c3d_features"
OUTLINE = rf"(?s)hdf5 group\n.*\n{_KEY}(\n.*)?"


class Source(Hdf5Source):
    """One group for each item."""

    layout = NAME

    def _inner(self) -> str:
        return self.options.key or _KEY


open_source = Source
"""`key` names another data set of the groups."""
