"""Extract verb phrases, noun phrases and short clauses from sentences.

Every module here that declares a `NAME` is an extractor (`protocol.Family`); a new one is a new file.
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
    """The extractor `chunks` (default), `benepar` or `benepar:MODEL`. Raises PhrasesUnavailable."""
    way, _, model = (DEFAULT_PHRASES if name is None else name).partition(":")
    for family in _families():
        if way == family.NAME:
            extractor: PhraseExtractor = family.open_phrases(model)
            return extractor
    raise PhrasesUnavailable(f"{name!r}: no such phrase extractor; known: {', '.join(phrase_names())}")


def phrase_names() -> tuple[str, ...]:
    """The names of extractors."""
    return tuple(family.NAME for family in _families())


def _families() -> tuple[Any, ...]:
    return tuple(sorted(modules_declaring(__name__, "NAME", "phrases"), key=lambda module: str(module.NAME)))
