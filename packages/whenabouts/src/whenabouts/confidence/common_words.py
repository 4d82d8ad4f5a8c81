"""English words common to talks of different fields; one or two other words are taken as a name or a term.

The list was counted in real transcripts (`benchmarks/common_words.py`). It is English; `is_term` does not
check the language, its callers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

MOST_WORDS = 2
"""A name or a term has at most this many words."""


@cache
def common_words() -> frozenset[str]:
    """The common words, in lower case."""
    text = files("whenabouts.confidence").joinpath("common_words.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


def is_term(words: Sequence[str]) -> bool:
    """Whether lower-case words are a name or a term: one or two, ASCII, none of them common.

    >>> is_term(["kubernetes"]), is_term(["next", "steps"])
    (True, False)
    """
    if not 0 < len(words) <= MOST_WORDS:
        return False
    return all(word.isascii() and word not in common_words() for word in words)
