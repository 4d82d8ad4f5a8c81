"""HDF5 with one data set for each item at its root: TVR's releases, and 2D-TAN's for Charades.

`vid_name` -> (clips, D), `str(desc_id)` -> (tokens, 768), `vid` -> (T, 4096) in `vgg_rgb_features.hdf5`.
In a file of pooled sentences each item is one vector (D,). The releases give the length of a clip only in
the file's name (`..._cl-1.5.h5`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from whenabouts_systems.features.layouts._hdf5 import Hdf5Source

NAME = "hdf5"
SUMMARY = "HDF5, id -> (T, D): TVR, XML, ReLoCLNet, TVR-Ranking; Charades VGG of 2D-TAN, MMN"
OUTLINE = r"hdf5\n[^\n]*(?<!\.avi)"

_CLIP_LENGTH = re.compile(r"cl-(\d+(?:\.\d+)?)(?=\D|$)")


class Source(Hdf5Source):
    """One data set for each item."""

    layout = NAME
    has_keys = False

    def _facts(self) -> Mapping[str, Any]:
        match = _CLIP_LENGTH.search(self.path.name)
        named = {"clip_seconds": float(match[1])} if match and float(match[1]) > 0 else {}
        return {**named, **super()._facts()}


open_source = Source
