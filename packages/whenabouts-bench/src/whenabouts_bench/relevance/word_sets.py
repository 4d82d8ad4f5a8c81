"""Make sets of words from lists in a text."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of a text, separated by blanks."""
    return frozenset(text.split())
