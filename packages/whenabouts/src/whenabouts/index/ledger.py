"""The ledger of a corpus (one row per video): finds the version that readers see, and caches its rows.

No answer mixes two states. A writer marks in the ledger the videos that it is about to replace, then changes
their clips table by table, then completes their rows (`Store.put_videos`). The snapshot is consistent if the
ledger marks no video and has the same version before and after the other tables moved to their newest
versions. Readers stay on their snapshot until a consistent one exists. If a writer died, there may be none;
then the marked videos are hidden.

Every search needs the rows of the videos. Reading 20,000 of them from disk takes a second of processor time,
so all rows are kept in memory.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from whenabouts.index.records import VideoNames, VideoRecord, natural_key
from whenabouts.index.stemming import has_stems

UNFINISHED = "size < 0"
"""SQL condition of the ledger rows whose clips are being replaced."""


@dataclass(frozen=True, slots=True)
class LedgerState:
    """A version of the ledger, and the ids of the videos that are being replaced in it."""

    version: int
    unfinished: frozenset[str] = frozenset()


class LedgerWatch:
    """Reads the newest version of the ledger through a handle of its own (`open_ledger`; None if missing).

    Other handles stay on the version that they read.
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


@dataclass(frozen=True, eq=False)
class Ledger:
    """The rows of one version of the ledger, in order of their video id."""

    records: Sequence[VideoRecord]

    @cached_property
    def by_id(self) -> Mapping[str, VideoRecord]:
        return {record.video_id: record for record in self.records}

    @cached_property
    def names(self) -> VideoNames:
        return VideoNames((record.video_id, record.path) for record in self.records)

    @cached_property
    def languages(self) -> Mapping[str, int]:
        """How many videos have words in each language, most frequent first; "": unknown."""
        counts = Counter(record.language for record in self.records if record.words)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @cached_property
    def stemmed_languages(self) -> Sequence[str]:
        """The `languages` whose words are also searched as their stems."""
        return [name for name in self.languages if has_stems(name)]

    @cached_property
    def language_of(self) -> Mapping[str, str]:
        """The language of each video's words by its id; "": unknown."""
        return {record.video_id: record.language for record in self.records}

    @cached_property
    def failed(self) -> Sequence[VideoRecord]:
        """The files that could not be read."""
        return [record for record in self.records if record.state == "failed"]

    @cached_property
    def listed(self) -> Sequence[VideoRecord]:
        """The videos in the order of lists (2 before 10), without files that could not be read."""
        readable = (record for record in self.records if record.state != "failed")
        return sorted(readable, key=lambda record: natural_key(record.video_id))

    def of(self, video_ids: Iterable[str]) -> list[VideoRecord]:
        """The rows of those videos that exist, in order of their id."""
        return [self.by_id[video_id] for video_id in sorted(set(video_ids)) if video_id in self.by_id]


class LedgerMemory:
    """A cache of the ledger version read last; threads that share it read each version once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[int, Ledger] | None = None

    def drop(self) -> None:
        with self._lock:
            self._kept = None

    def kept(self, version: int) -> Ledger | None:
        """The ledger at a version, if that was read last."""
        kept = self._kept
        return kept[1] if kept is not None and kept[0] == version else None

    def at(self, version: int, read: Callable[[], list[VideoRecord]]) -> Ledger:
        """The ledger at a version; `read` gives its rows."""
        with self._lock:
            if self._kept is None or self._kept[0] != version:
                self._kept = version, Ledger(tuple(read()))
            return self._kept[1]
