"""Protocols of rewriters and name finders, and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from whenabouts.types import WhenaboutsError


class RewritingError(WhenaboutsError):
    """An answer that is not a rewriting of the request; a retry may help."""


class RewriterUnavailable(WhenaboutsError):
    """The rewriter cannot be used here or now; the message has the remedy."""


class Rewriter(Protocol):
    """Rewrites descriptions into captions without person names."""

    @property
    def fingerprint(self) -> str:
        """Everything that determines the captions."""

    @property
    def varies(self) -> bool:
        """Whether another temperature may give another caption."""

    def rewrite(self, texts: Sequence[str], temperature: float) -> list[str]:
        """A caption per description. Raises RewritingError, RewriterUnavailable."""


class NameFinder(Protocol):
    """Finds person names in sentences."""

    @property
    def fingerprint(self) -> str:
        """Everything that determines the names."""

    def names(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """The names in each sentence, in order."""
