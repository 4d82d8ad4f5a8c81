"""Which folders and files were given to `index`: what a server may serve, unless it is told otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from whenabouts.index.store import Store
from whenabouts.video.objects import ObjectPath, source_path

_FACT = "indexed folders"


def indexed_folders(store: Store) -> list[str]:
    """The folders and files that were indexed, sorted; none for a corpus of an earlier version."""
    return list((store.fact(_FACT) or {}).get("paths", ()))


def _real(place: Path) -> Path:
    return place if isinstance(place, ObjectPath) else Path(os.path.realpath(place))


def remember_folders(store: Store, searched: Iterable[Path]) -> None:
    """Note what was searched for files; what lies under another place of the list is not noted."""
    before = indexed_folders(store)
    paths = {source_path(place) for place in before} | {_real(place) for place in searched}
    top = sorted(str(path) for path in paths if not any(above in paths for above in path.parents))
    if top != before:
        store.put_fact(_FACT, {"paths": top})
