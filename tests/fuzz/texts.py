"""Texts by chance that break parsers: controls, separators, markup, formulas, paths, lone surrogates."""

from __future__ import annotations

import random

_PIECES = (
    *("a", "é", "𝔸", "friday.mp4", "0:01", "1-2", "first time", "every", "before"),
    *("@", "#", "%", "$(x)", "`", "'", '"', "\\", "/", "../", "|", ";", ",", "{", "}", "[", "]", "null"),
    *("\t", "\n", "\r\n", "\r", "\x00", "\x01", "\x1b[31m", "\x85", "\u2028", "\u202e"),
    *("\ufeff", "\ufffe", "\udcff", "\ud800"),
    *("<b>", "</clip>", "&amp;", "&", "]]>", "<!--", "-->", "=cmd|x", "+1", "-1", "@SUM(1)"),
    *("* FROM CLIP NAME: x", "1e999", "NaN", "9" * 400, "-0", "00:00:00:00"),
)


def text(rng: random.Random, most: int = 6) -> str:
    """A few pieces, seldom very many."""
    count = rng.choice((0, 1, 1, 2, 3, most, most * 100 if rng.random() < 0.1 else 1))
    return rng.choice(("", " ")).join(rng.choice(_PIECES) for _ in range(count))
