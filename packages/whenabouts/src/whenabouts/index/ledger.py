"""All ledger rows of a corpus in memory: one read for each version, and names that are looked up in it.

Every search asks who its videos are, which of them a filter leaves and how many there are. Each of these
read the ledger from disk once (20,000 videos: a second of processor time), names in `within` twice each.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from whenabouts.index.records import VideoNames, VideoRecord, natural_key


@dataclass(frozen=True, eq=False)
class Ledger:
    """The rows of one version of the ledger, in order of their video id."""

    records: Sequence[VideoRecord]

    @cached_property
    def by_id(self) -> Mapping[str, VideoRecord]:
        """Row by video id."""
        return {record.video_id: record for record in self.records}

    @cached_property
    def names(self) -> VideoNames:
        """What people call the videos."""
        return VideoNames((record.video_id, record.path) for record in self.records)

    @cached_property
    def languages(self) -> Mapping[str, int]:
        """How many videos are in each language, the most frequent first; "" is not known."""
        counts = Counter(record.language for record in self.records if record.words)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @cached_property
    def listed(self) -> Sequence[VideoRecord]:
        """The videos as lists show them, 2 before 10; files that could not be read are left out."""
        readable = (record for record in self.records if record.state != "failed")
        return sorted(readable, key=lambda record: natural_key(record.video_id))

    def of(self, video_ids: Iterable[str]) -> list[VideoRecord]:
        """The rows of those videos that are there, in order of their id."""
        return [self.by_id[video_id] for video_id in sorted(set(video_ids)) if video_id in self.by_id]


class LedgerMemory:
    """The version that was read last; threads that share it read each version once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[int, Ledger] | None = None

    def drop(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._kept = None

    def at(self, version: int, read: Callable[[], list[VideoRecord]]) -> Ledger:
        """The ledger at a version; `read` gives its rows."""
        with self._lock:
            if self._kept is None or self._kept[0] != version:
                self._kept = version, Ledger(tuple(read()))
            return self._kept[1]
