"""Exact phrases: the quoted parts of a query, and where they are said in a transcript.

A phrase matches its words in order, ignoring case, accents and punctuation between them. A hyphen also
matches a space or nothing ("on-chain" matches "on chain" and "onchain", and `"onchain"` matches "on-chain").
Scripts without spaces are compared character by character.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from whenabouts.index.lookup import MARKS, WORD
from whenabouts.search.word_units import SPACELESS, folded

# Pairs of quotation marks; »…« and „…“ are German. An apostrophe does not count.
_CLOSED_BY = {
    '"': '"”',
    "“": '”“"',
    "”": "”",
    "„": '“”"',
    "«": "»",
    "»": "«»",
    "「": "」",
    "『": "』",
    "＂": "＂",
}
MARK = re.compile(f"[{''.join(_CLOSED_BY)}]")
"""An opening quotation mark; without one a query has no phrases."""
# 5" is five inches.
_INCHES = re.compile(r'(?<=\d)"')
_JOINED = "\x01"
_HYPHEN = re.compile(rf"(?<=[^\W_]|[{MARKS}])[-‐‑_\u00ad](?=[^\W_])")
_WITHOUT_HYPHENS = str.maketrans("", "", "-‐‑_\u00ad")
_SIGNS = re.compile(rf"(?:(?![{MARKS}{_JOINED}])[\W_])+")


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query's exact phrases, without repeats, its other words, and `plain`: all of it without the marks."""

    phrases: tuple[str, ...]
    other_words: str
    plain: str = ""


def parsed_query(text: str) -> ParsedQuery:
    """The phrases and the other words of a query. An unmatched quotation mark is an ordinary character.

    >>> parsed_query('budget “main bus” 5" “open')
    ParsedQuery(phrases=('main bus',), other_words='budget 5" “open', plain='budget main bus 5" “open')
    """
    phrases: dict[str, None] = {}
    others, plain, at = list[str](), list[str](), 0
    for start, end in quoted(text):
        phrase = " ".join(text[start + 1 : end].split())
        if WORD.search(folded(phrase)):
            phrases.setdefault(phrase)
            others.append(text[at:start])
            plain += [text[at:start], phrase]
            at = end + 1
    others, plain = [*others, text[at:]], [*plain, text[at:]]
    return ParsedQuery(tuple(phrases), *(" ".join(" ".join(pieces).split()) for pieces in (others, plain)))


def quoted(text: str) -> Iterator[tuple[int, int]]:
    """Positions of matching quotation marks, in order; quotations do not nest."""
    at, never_closed = 0, set[str]()
    while at < len(text):
        mark = text[at]
        if mark in _CLOSED_BY and mark not in never_closed and not _INCHES.match(text, at):
            closing = (place for place in range(at + 1, len(text)) if text[place] in _CLOSED_BY[mark])
            end = next(closing, None)
            if end is None:
                never_closed.add(mark)
            else:
                yield at, end
                at = end
        at += 1


def transcript_of(text: str) -> str:
    """A text prepared for phrase search: folded words joined by spaces, or by "-" for a hyphen.

    >>> transcript_of("Houston, we've had an OP_VAULT on-chain.")
    'houston we ve had an op-vault on-chain'
    """
    # _JOINED in a text would become repeated hyphens, on which a phrase takes exponential time.
    joined = _HYPHEN.sub(_JOINED, folded(text).replace(_JOINED, " "))
    return _SIGNS.sub(" ", joined).strip().replace(_JOINED, "-")


@lru_cache(maxsize=1_000)
def phrase_pattern(phrase: str) -> re.Pattern[str]:
    """A pattern that finds a phrase in a `transcript_of` text, in linear time."""
    signs = transcript_of(phrase)
    parts = [re.escape(signs[0])]
    for before, sign, after in zip(signs, signs[1:], f"{signs[2:]} ", strict=False):
        if sign == " ":
            is_optional = SPACELESS.match(before) and SPACELESS.match(after)
            parts.append("[ -]?" if is_optional else "[ -]")
        elif sign == "-":
            parts.append("[ -]?")
        else:
            if before not in " -":
                parts.append("[ -]?" if SPACELESS.match(before) and SPACELESS.match(sign) else "-?")
            parts.append(re.escape(sign))
    left = "" if SPACELESS.match(signs[0]) else r"(?<![^ -])"
    right = "" if SPACELESS.match(signs[-1]) else r"(?![^ -])"
    return re.compile(left + "".join(parts) + right)


def mentions_of(phrase: str, texts: Sequence[str]) -> list[tuple[int, int]]:
    """First and last of some neighbouring texts (folded) for each mention of a phrase."""
    words = [word for word in re.split("[ -]", transcript_of(phrase)) if not SPACELESS.search(word)]
    bare = [text.translate(_WITHOUT_HYPHENS) for text in texts]
    rows_of = [[row for row, text in enumerate(bare) if word in text] for word in words]
    # Only texts around the rarest word are matched; most texts have none, which is quick to see.
    rarest = min(rows_of, key=len, default=range(len(texts)))
    near = {row + step for row in rarest for step in range(-len(words), len(words) + 1)}
    transcripts = [transcript_of(text) if row in near else "" for row, text in enumerate(texts)]
    starts = list(itertools.accumulate((len(text) + 1 for text in transcripts), initial=0))[:-1]
    return [
        (bisect.bisect_right(starts, match.start()) - 1, bisect.bisect_right(starts, match.end() - 1) - 1)
        for match in phrase_pattern(phrase).finditer(" ".join(transcripts))
    ]
