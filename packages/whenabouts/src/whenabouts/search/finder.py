"""What finds moments in the place of the streams, such as a trained system, and what it answers."""

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
"""What a finder is named by: a folder, a name on a hub, or an object that a plugin recognises."""


@dataclass(frozen=True, slots=True)
class RankedMoments:
    """A finder's answer: moments, best first, notes for the user, and its own thresholds."""

    moments: Sequence[ScoredMoment]
    notes: Sequence[str] = ()
    thresholds: Thresholds | None = None


@dataclass(frozen=True)
class ModelChoice:
    """Options of a search by a trained system.

    `model` finds the moments: a folder, a hub's name or an object. On first use, and when videos have come or
    changed, it encodes them. `retriever` is another one that chooses the videos for it, in place of the one
    that a staged run names. `segments` (seconds, such as 4) is for long videos: pieces of that length are
    chosen, and the model looks into these.
    """

    model: System | None = None
    retriever: System | None = None
    segments: float | None = None


class Finder(Protocol):
    """Finds moments in one corpus."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def streams(self) -> Sequence[str]:
        """The streams that it looks at."""
        ...

    @property
    def is_kept(self) -> bool:
        """Whether the index holds what it encoded, of all videos or of some."""
        ...

    def prepare(self, *, wait: float = ..., progress: Callable[[int, int], None] | None = None) -> int:
        """Encode the videos that are new or changed; how many are encoded. Raises CorpusBusy, UsageError."""
        ...

    def find(self, text: str, k: int, allowed: Sequence[str] | None) -> RankedMoments:
        """At most `k` moments for a query in the videos that are allowed (None: all)."""
        ...


class Finders(Protocol):
    """The finders of one kind on one handle of a corpus, kept open."""

    def search(self, model: System, retriever: System | None = None, segments: float | None = None) -> Finder:
        """The finder of that name. `retriever` chooses the videos for it; `segments` are seconds."""
        ...


class FinderKind(Protocol):
    """An entry of `whenabouts.moment_finders`."""

    ORDER: int
    """Kinds are asked in this order; trained systems recognise every name and come last (100)."""

    def recognises(self, model: System) -> bool:
        """Whether a model is of this kind."""
        ...

    def on(self, store: Store, encoders: EncoderRegistry, shared: MutableMapping[str, Any]) -> Finders:
        """Its finders on one corpus; what it loads into `shared` serves all handles of that corpus."""
        ...
