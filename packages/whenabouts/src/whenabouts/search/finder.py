"""Interfaces of models, such as trained systems, that find moments in place of the search by streams."""

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
"""A model, given by its folder or its name on a hub, or as an object that a plugin recognises."""


@dataclass(frozen=True, slots=True)
class RankedMoments:
    """A finder's answer: moments, best first, notes for the user, and measured thresholds (None: `FIXED`)."""

    moments: Sequence[ScoredMoment]
    notes: Sequence[str] = ()
    thresholds: Thresholds | None = None


@dataclass(frozen=True)
class ModelChoice:
    """Options of a search by a trained system.

    `model` finds the moments, and encodes new and changed videos on first use; None: streams are searched.
    `retriever` is another system that chooses the videos for it; None: the retriever that was trained with
    it, if there is one. `segments` (seconds, such as 4) is for long videos: the retriever chooses segments of
    that length, and the model searches them.
    """

    model: System | None = None
    retriever: System | None = None
    segments: float | None = None


class Finder(Protocol):
    """Finds moments in one corpus."""

    @property
    def name(self) -> str:
        """The finder's name in messages."""

    @property
    def streams(self) -> Sequence[str]:
        """The streams that the finder reads."""

    @property
    def is_kept(self) -> bool:
        """Whether the index has the finder's encodings of some or all videos."""

    def prepare(self, *, wait: float = ..., progress: Callable[[int, int], None] | None = None) -> int:
        """Encode new and changed videos; return how many are encoded then. Raises CorpusBusy, UsageError."""

    def find(self, text: str, k: int, allowed: Sequence[str] | None) -> RankedMoments:
        """At most `k` moments, best first, for a query in the videos with the `allowed` ids (None: all)."""


class Finders(Protocol):
    """Opens the finders of one kind on one corpus handle, and keeps them open."""

    def search(self, model: System, retriever: System | None = None, segments: float | None = None) -> Finder:
        """Open the finder of a model; nothing is searched yet. Parameters as in `ModelChoice`."""


class FinderKind(Protocol):
    """An entry point of `whenabouts.moment_finders`, loaded by `corpus.py`."""

    ORDER: int
    """Kinds are asked in this order. Trained systems recognise every name, so they come last (100)."""

    def recognises(self, model: System) -> bool:
        """Whether a model is of this kind."""

    def on(self, store: Store, encoders: EncoderRegistry, shared: MutableMapping[str, Any]) -> Finders:
        """The finders of this kind on one corpus; objects in `shared` serve all handles of that corpus."""
