"""What every way of taking sentences apart promises, and how it says no."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from whenabouts.types import WhenaboutsError


class PhrasesUnavailable(WhenaboutsError):
    """No such way of finding phrases, or it cannot be used here; the message says what to do about it."""


@dataclass(frozen=True, slots=True)
class Phrases:
    """The phrases of one sentence, in its order, in lower case, without repetition.

    `verb`: what is done ("start dancing", "dancing"); `noun`: who and what ("man and woman"); `clauses`: the
    words of a noun phrase and of what it does as short sentences, one for each of several persons
    ("man start dancing", "woman start dancing").
    """

    verb: tuple[str, ...] = ()
    noun: tuple[str, ...] = ()
    clauses: tuple[str, ...] = ()


class PhraseExtractor(Protocol):
    """Sentences to phrases. What a sentence gives does not depend on the others."""

    @property
    def name(self) -> str:
        """What opens it again."""

    @property
    def fingerprint(self) -> str:
        """What decides about the phrases: the program, its version, its model."""

    def phrases(self, texts: Sequence[str]) -> list[Phrases]:
        """The phrases of each sentence, in the order of `texts`."""


class Family(Protocol):
    """What a module of this folder declares to be a way of finding phrases.

    A name is `NAME`, or `NAME:model` where the way can be given one.
    """

    NAME: str

    def open_phrases(self, model: str) -> PhraseExtractor:
        """The extractor; `model` is "" where none was named. Raises PhrasesUnavailable."""
