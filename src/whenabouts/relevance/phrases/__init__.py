"""Sentences to verb phrases, noun phrases and short clauses; one file per way, the folder is the registry.

Every module here that declares a `NAME` is a way (see `protocol.Family`); a new one is a new file.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from whenabouts.relevance.phrases.protocol import PhraseExtractor, Phrases, PhrasesUnavailable

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


@cache
def _families() -> tuple[Any, ...]:
    names = [found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_")]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names if name != "protocol"]
    return tuple(sorted(modules, key=lambda module: str(module.NAME)))
