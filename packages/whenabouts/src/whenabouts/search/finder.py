"""The interface of models that find moments instead of the streams, such as trained systems."""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from whenabouts.confidence.probability import Thresholds
from whenabouts.types import ScoredMoment

if TYPE_CHECKING:
    from whenabouts.encoder_registry import EncoderRegistry
    from whenabouts.index.store import Store

System = str | os.PathLike[str] | Any
"""The name of a finder: a folder, a name on a hub, or an object that a plugin recognises."""


@dataclass(frozen=True, slots=True)
class RankedMoments:
    """A finder's answer: moments, best first, notes for the user, and its own thresholds."""

    moments: Sequence[ScoredMoment]
    notes: Sequence[str] = ()
    thresholds: Thresholds | None = None


@dataclass(frozen=True)
class ModelChoice:
    """Options of a search by a trained system.

    `model` finds the moments: a folder, a hub's name or an object. It encodes new and changed videos on first
    use. `retriever` is another system that chooses the videos for it, instead of the one of a staged run.
    `segments` (seconds, such as 4) is for long videos: the retriever chooses segments of that length, and the
    model searches them.
    """

    model: System | None = None
    retriever: System | None = None
    segments: float | None = None


class Finder(Protocol):
    """Finds moments in one corpus."""

    @property
    def name(self) -> str:
        """Its name for users."""
        ...

    @property
    def streams(self) -> Sequence[str]:
        """The streams that it reads."""
        ...

    @property
    def is_kept(self) -> bool:
        """Whether the index has any of its encodings."""
        ...

    def prepare(self, *, wait: float = ..., progress: Callable[[int, int], None] | None = None) -> int:
        """Encode new and changed videos; returns how many are encoded. Raises CorpusBusy, UsageError."""
        ...

    def find(self, text: str, k: int, allowed: Sequence[str] | None) -> RankedMoments:
        """At most `k` moments for a query in the allowed videos (None: all)."""
        ...


class Finders(Protocol):
    """The finders of one kind on one corpus handle, kept open."""

    def search(self, model: System, retriever: System | None = None, segments: float | None = None) -> Finder:
        """The finder of that name. `retriever` chooses the videos for it; `segments` is in seconds."""
        ...


class FinderKind(Protocol):
    """An entry point of `whenabouts.moment_finders`, loaded by `corpus.py`."""

    ORDER: int
    """Kinds are asked in this order. Trained systems recognise every name, so they come last (100)."""

    def recognises(self, model: System) -> bool:
        """Whether a model is of this kind."""
        ...

    def on(self, store: Store, encoders: EncoderRegistry, shared: MutableMapping[str, Any]) -> Finders:
        """Its finders on one corpus. Objects that it puts into `shared` serve all handles of that corpus."""
        ...
