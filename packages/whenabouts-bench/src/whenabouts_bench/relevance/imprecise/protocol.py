"""What rewrites descriptions into imprecise captions, what finds names, and how they say no."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from whenabouts.types import WhenaboutsError


class RewritingError(WhenaboutsError):
    """An answer that is no rewriting of what was asked; asking again may help."""


class RewriterUnavailable(WhenaboutsError):
    """The rewriter cannot be used here or for now; the message says what to do about it."""


class Rewriter(Protocol):
    """Descriptions to captions in which no person has a name."""

    @property
    def fingerprint(self) -> str:
        """What decides about the captions."""

    @property
    def varies(self) -> bool:
        """Whether another temperature may give another caption."""

    def rewrite(self, texts: Sequence[str], temperature: float) -> list[str]:
        """A caption for each description. Raises RewritingError, RewriterUnavailable."""


class NameFinder(Protocol):
    """Finds names of persons in sentences."""

    @property
    def fingerprint(self) -> str:
        """What decides about what is found."""

    def names(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """The names in each sentence, in its order."""
