"""The protocol of phrase extractors, and their error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from whenabouts.types import WhenaboutsError


class PhrasesUnavailable(WhenaboutsError):
    """No such phrase extractor, or it cannot be used here; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class Phrases:
    """The phrases of one sentence, in order, in lower case, without duplicates.

    `verb` phrases ("start dancing", "dancing"), `noun` phrases ("man and woman"), and `clauses`: each subject
    with its verb phrase as a short sentence ("man start dancing", "woman start dancing").
    """

    verb: tuple[str, ...] = ()
    noun: tuple[str, ...] = ()
    clauses: tuple[str, ...] = ()


def without_article(noun: str) -> str:
    """A noun phrase without its article."""
    first, _, others = noun.partition(" ")
    return others if first in ("a", "an", "the") and others else noun


class PhraseExtractor(Protocol):
    """Extracts phrases from sentences, each independent of the others."""

    @property
    def name(self) -> str:
        """The name for `open_phrases`."""

    @property
    def fingerprint(self) -> str:
        """Everything that determines the phrases: program, version, model."""

    def phrases(self, texts: Sequence[str]) -> list[Phrases]:
        """The phrases of each sentence, in the order of `texts`."""


class Family(Protocol):
    """A module of this folder that declares an extractor: `NAME`, or `NAME:model` if it takes a model."""

    NAME: str

    def open_phrases(self, model: str) -> PhraseExtractor:
        """The extractor; `model` is "" by default. Raises PhrasesUnavailable."""
