"""English words that talks of different fields share, so that a query of other words is a name or a term.

The list was counted in real transcripts (`benchmarks/common_words.py`). There is one for English alone: in
other languages no query is taken for a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

MOST_WORDS = 2
"""A name or a term has no more words than this."""


@cache
def common_words() -> frozenset[str]:
    """The words, in lower case."""
    text = files("whenabouts.confidence").joinpath("common_words.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


def is_term(words: Sequence[str]) -> bool:
    """Whether some lower-case words in Latin letters are a name or a term: one or two, and none is common.

    >>> is_term(["kubernetes"]), is_term(["next", "steps"])
    (True, False)
    """
    if not 0 < len(words) <= MOST_WORDS:
        return False
    return all(word.isascii() and word not in common_words() for word in words)
