"""A folder of npz files as in Moment-DETR and lighthouse.

`{vid}.npz` holds `features` (T, D) of a video; `qid{qid}.npz` holds `last_hidden_state` (tokens, D) and
`pooler_output` of a sentence, and its id is the qid alone. Clips are 2 s long in QVHighlights and 1 s in
other data sets of this layout: no file says which, so the caller must.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whenabouts_systems.features.layouts._numpy_files import FolderSource, inspect_npz
from whenabouts_systems.features.source import UnreadArray

NAME = "moment-detr"
SUMMARY = (
    "folder of vid.npz (features) or qidN.npz (last_hidden_state, pooler_output): Moment-DETR, lighthouse"
)

_KEYS = ("features", "last_hidden_state", "pooler_output")
OUTLINE = rf"(?s)npz\n(.*\n)?({'|'.join(_KEYS)})(\n.*)?"
_QUERY = re.compile(r"qid(\d+)")


class Source(FolderSource):
    """One npz for each item."""

    layout = NAME

    def _items_by_id(self) -> Mapping[str, Any]:
        names = [name for name in self._location.names if name.endswith(".npz")]
        return self._by_id([(_id_of(name), name) for name in names])

    def _inspect(self, item: str, where: Any) -> UnreadArray:
        keys = (self.options.key,) if self.options.key else _KEYS
        return inspect_npz(self._file_of(where, item), item, keys)


def _id_of(name: str) -> str:
    stem = Path(name).stem
    query = _QUERY.fullmatch(stem)
    return query[1] if query else stem


open_source = Source
"""`key` chooses one of an item's arrays (`pooler_output`)."""
