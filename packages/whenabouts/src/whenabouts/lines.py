"""Text from outside on one line: answers of models, messages of libraries and servers, names, subtitles."""

from __future__ import annotations

import unicodedata

# Classes of the bidirectional algorithm whose format characters have no shape and may reorder or hide text.
_SHAPELESS = {"BN", "LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
_JOINERS = "\u200c\u200d"  # Persian, Indic scripts and emoji need them


def one_line(text: str, most: int = 0) -> str:
    """The text on one line without characters that show nothing, cut to `most` characters (0: uncut).

    >>> one_line("two\\nlines \\x1b[31mred"), one_line("two\\nlines \\x1b[31mred", 12)
    ('two lines [31mred', 'two lines […')
    """
    valid = text.encode("utf-8", "backslashreplace").decode()
    shown = (
        sign
        for sign in valid
        if sign.isspace() or not (is_unseen(sign) or unicodedata.category(sign) == "Cn")
    )
    line = " ".join("".join(shown).split())
    return line if not most or len(line) <= most else line[: most - 1].rstrip() + "…"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the error's type if it has no message.

    >>> first_line(ValueError("one\\ntwo")), first_line(ValueError())
    ('one', 'ValueError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def is_unseen(letter: str) -> bool:
    """Whether a character shows nothing and may deceive: a control, a direction override, a tag.

    >>> [is_unseen(letter) for letter in ("\\x1b", "\\u202e", "\\U000e0041", "\\u200d", "é")]
    [True, True, True, False, False]
    """
    category = unicodedata.category(letter)
    if category == "Cf":
        return letter not in _JOINERS and unicodedata.bidirectional(letter) in _SHAPELESS
    return category == "Cc"
