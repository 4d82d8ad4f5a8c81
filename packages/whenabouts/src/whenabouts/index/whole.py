"""Consistent snapshots of a corpus, so that no answer mixes two states.

A writer marks in the ledger the videos that it is about to replace, then changes their clips table by table,
then completes their rows (`Store.put_videos`). The snapshot is consistent if the ledger marks no video and
has the same version before and after the other tables moved to their newest versions. Readers stay on their
snapshot until a consistent one exists. If a writer died, there may be none; then the marked videos are
hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

UNFINISHED = "size < 0"
"""SQL condition of the ledger rows whose clips are being replaced."""


@dataclass(frozen=True, slots=True)
class LedgerState:
    """A version of the ledger, and the ids of the videos that are being replaced in it."""

    version: int
    unfinished: frozenset[str] = frozenset()


class LedgerWatch:
    """The newest version of the ledger, read through a separate handle (`open_ledger`; None if missing).

    Other handles keep the version that they read.
    """

    def __init__(self, open_ledger: Callable[[], Any | None]) -> None:
        self._open = open_ledger
        self._table: Any = None
        self._seen: LedgerState | None = None

    def newest(self) -> LedgerState:
        """The newest ledger on disk; the ids are read once for each version."""
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
