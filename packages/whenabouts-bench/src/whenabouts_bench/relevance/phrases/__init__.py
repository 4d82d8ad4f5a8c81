"""Sentences to verb phrases, noun phrases and short clauses; one file per way, the folder is the registry.

Every module here that declares a `NAME` is a way (see `protocol.Family`); a new one is a new file.
"""

from __future__ import annotations

from typing import Any

from whenabouts.plugins import modules_declaring
from whenabouts_bench.relevance.phrases.protocol import PhraseExtractor, Phrases, PhrasesUnavailable

__all__ = [
    "DEFAULT_PHRASES",
    "PhraseExtractor",
    "Phrases",
    "PhrasesUnavailable",
    "open_phrases",
    "phrase_names",
]

DEFAULT_PHRASES = "chunks"


def open_phrases(name: str | None = None) -> PhraseExtractor:
    """The way of that name (`chunks`, `benepar`, `benepar:MODEL`); None is the one that needs no download.

    Raises PhrasesUnavailable, saying what to install, fetch or give instead.
    """
    way, _, model = (DEFAULT_PHRASES if name is None else name).partition(":")
    for family in _families():
        if way == family.NAME:
            extractor: PhraseExtractor = family.open_phrases(model)
            return extractor
    raise PhrasesUnavailable(f"{name!r}: no such way of finding phrases; known: {', '.join(phrase_names())}")


def phrase_names() -> tuple[str, ...]:
    """The ways there are."""
    return tuple(family.NAME for family in _families())


def _families() -> tuple[Any, ...]:
    return tuple(sorted(modules_declaring(__name__, "NAME", "phrases"), key=lambda module: str(module.NAME)))
