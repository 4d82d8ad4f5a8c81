"""Whole states of a corpus: no answer is made of two of them.

A writer names in the ledger the videos that it is about to replace, then changes their clips table by table,
then writes their rows whole (`Store.put_videos`). So the tables are of one whole state where the ledger names
no such video and has the same version before and after the other tables were moved to their newest versions.
Readers keep the state that they have until there is such a one. Where a writer died half-way there may be
none: then the videos that it was replacing are hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

UNFINISHED = "size < 0"
"""The ledger rows of videos whose clips are being replaced."""


@dataclass(frozen=True, slots=True)
class LedgerState:
    """A version of the ledger, and the ids of the videos that are being replaced in it."""

    version: int
    unfinished: frozenset[str] = frozenset()


class LedgerWatch:
    """The newest version of the ledger, seen through a handle of its own (`open_ledger`; None: not there).

    What is read from another handle stays where it is meanwhile.
    """

    def __init__(self, open_ledger: Callable[[], Any | None]) -> None:
        self._open = open_ledger
        self._table: Any = None
        self._seen: LedgerState | None = None

    def newest(self) -> LedgerState:
        """The ledger as it is on disk now; the ids are read once for each version."""
        if self._table is None:
            self._table = self._open()
            if self._table is None:
                return LedgerState(-1)
        else:
            self._table.checkout_latest()
        version = int(self._table.version)
        if self._seen is None or self._seen.version != version:
            self._seen = LedgerState(version, self._unfinished())
        return self._seen

    def _unfinished(self) -> frozenset[str]:
        if not self._table.count_rows(UNFINISHED):
            return frozenset()
        rows = self._table.search().where(UNFINISHED).limit(None).select(["video_id"]).to_arrow()
        return frozenset(rows["video_id"].to_pylist())
