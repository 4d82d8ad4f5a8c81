"""Text from outside on one line: answers of models, messages of libraries and servers."""

from __future__ import annotations


def one_line(text: str, most: int) -> str:
    """The text on one line of at most `most` characters, without control characters.

    >>> one_line("two\\nlines \\x1b[31mred", 12)
    'two lines […'
    """
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
