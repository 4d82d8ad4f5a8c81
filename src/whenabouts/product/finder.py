"""What a trained system is to a search, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from whenabouts.confidence.chance import Thresholds
from whenabouts.types import ScoredMoment

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class RankedMoments:
    """What a trained system answers: moments, best first, notes for the user, and its own thresholds."""

    moments: Sequence[ScoredMoment]
    notes: Sequence[str] = ()
    thresholds: Thresholds | None = None


class Finder(Protocol):
    """A trained system that finds moments in the place of the streams (`systems/search.py`)."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def streams(self) -> Sequence[str]:
        """The streams that it looks at."""
        ...

    def find(self, text: str, k: int, allowed: Sequence[str] | None) -> RankedMoments:
        """At most `k` moments for a query in the videos that are allowed (None: all)."""
        ...
