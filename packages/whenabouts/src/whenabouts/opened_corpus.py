"""The interface of an open corpus for the rooms below `corpus.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Protocol

from whenabouts.encoder_registry import EncoderRegistry
from whenabouts.index.absent import RemovedFile
from whenabouts.index.lock import Holder
from whenabouts.index.records import VideoRecord
from whenabouts.index.store import Store
from whenabouts.index.transcripts import Transcripts
from whenabouts.people.naming import People


class OpenedCorpus(Protocol):
    """The parts of `corpus.Corpus` that an index run, a measurement or an example uses."""

    location: str
    places: tuple[str, ...]
    store: Store
    encoders: EncoderRegistry
    transcripts: Transcripts

    @property
    def people(self) -> People: ...

    def refresh(self) -> None:
        """Read the newest snapshot from now on."""

    def writing(
        self, *, wait: bool = False, on_wait: Callable[[Holder | None], None] | None = None
    ) -> AbstractContextManager[None]:
        """Hold the writer's lock. Raises CorpusBusy."""

    def check_filled(self) -> None:
        """Raise UsageError for a corpus without any stream."""

    def resolve(self, name: str) -> VideoRecord:
        """The ledger row of a video by its id, path or file name. Raises UsageError."""

    def resolve_all(self, names: Iterable[str], *, by_path: bool = True) -> list[VideoRecord]:
        """The ledger row of each name, as `resolve` gives it."""

    def rate_of(self, video: str) -> Fraction | None:
        """Frames per second of a video; None if unknown."""

    def erase_videos(self, records: Sequence[VideoRecord], entries: Iterable[RemovedFile]) -> None:
        """Erase videos, their words and vectors from disk."""
