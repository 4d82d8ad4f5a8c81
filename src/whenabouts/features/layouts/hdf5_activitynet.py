"""HDF5 of 2D-TAN and MMN for ActivityNet: a group `v_...` that holds `c3d_features` (T, 500)."""

from __future__ import annotations

from whenabouts.features.layouts._hdf5 import Hdf5Source, first_entry
from whenabouts.features.location import FeatureLocation, OpenOptions

NAME = "activitynet"
SUMMARY = "HDF5, id/c3d_features -> (T, D): ActivityNet C3D of 2D-TAN, MMN, CroCs"

_KEY = "c3d_features"


class Source(Hdf5Source):
    """One group an item."""

    layout = NAME

    def _inner(self) -> str:
        return self.options.key or _KEY


def recognises(location: FeatureLocation) -> bool:
    """Whether the first entry is a group with those features in it."""
    first = first_entry(location)
    return first is not None and first[1] is not None and _KEY in first[1]


def open_source(location: FeatureLocation, options: OpenOptions) -> Source:
    """The features that are there; `key` names another data set of the groups."""
    return Source(location, options)
