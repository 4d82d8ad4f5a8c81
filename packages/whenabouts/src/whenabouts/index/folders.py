"""Stores the indexed folders and files, and folders of relocated videos; a server serves them by default."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from whenabouts.index.store import Store
from whenabouts.video.files import real_place
from whenabouts.video.objects import source_path

_FACT = "indexed folders"


def indexed_folders(store: Store) -> list[str]:
    """Indexed folders and files, sorted; empty for a corpus of an earlier version."""
    return list((store.fact(_FACT) or {}).get("paths", ()))


def remember_folders(store: Store, searched: Iterable[Path]) -> None:
    """Add folders and files, with links resolved. One that lies below another is left out."""
    before = indexed_folders(store)
    paths = {source_path(place) for place in before} | {source_path(real_place(place)) for place in searched}
    top = sorted(str(path) for path in paths if not any(above in paths for above in path.parents))
    if top != before:
        store.put_fact(_FACT, {"paths": top})
