"""The unit of work of an index run: one file, with what to read of it and which streams to make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whenabouts.index.reading import ReadTask
from whenabouts.index.records import VideoRecord
from whenabouts.video.files import SourceFile

WHOLE = frozenset({"new", "changed", "retry"})
"""Reasons to read a file whole; only the video's id and metadata of an earlier run are kept."""


@dataclass(frozen=True, slots=True)
class Work:
    """One file to read: the task, the reasons, the streams to make, and its ledger row if it has one.

    `words_signature` describes the subtitle files beside the file; `supersedes` are ids of subtitle files
    that were indexed alone before their recording was found; `video_id` is the id that a new video had before
    its owner removed it, or "".
    """

    task: ReadTask
    reasons: tuple[str, ...]
    file: SourceFile
    metadata: dict[str, Any]
    streams: tuple[str, ...] = ()
    record: VideoRecord | None = None
    words_signature: str = ""
    supersedes: tuple[str, ...] = ()
    video_id: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the whole file is read, keeping only the video's id and metadata."""
        return not WHOLE.isdisjoint(self.reasons)
