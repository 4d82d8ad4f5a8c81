"""Exact phrases: what stands in quotation marks in a query, and where in a transcript it is said.

A phrase is said where its words are said in its order, whatever case and accents, and whatever signs stand
between them. A hyphen may be there, be a space, or not be at all ("on-chain" is said by "on chain" and
"onchain", and `"onchain"` by "on-chain"). Scripts without spaces are compared sign by sign.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from whenabouts.index.lookup import DENSE_SCRIPT, MARKS, WORD
from whenabouts.search.word_units import folded

# Pairs of quotation marks; »…« and „…“ are German. An apostrophe is none.
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
# Thai, Lao, Burmese and Khmer put no spaces between words either.
_SPACELESS = re.compile(rf"{DENSE_SCRIPT.pattern[:-1]}\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
_JOINED = "\x01"
_HYPHEN = re.compile(rf"(?<=[^\W_]|[{MARKS}])[-‐‑_\u00ad](?=[^\W_])")
_WITHOUT_HYPHENS = str.maketrans("", "", "-‐‑_\u00ad")
_SIGNS = re.compile(rf"(?:(?![{MARKS}{_JOINED}])[\W_])+")


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """The exact phrases of a query, each once, and its other words; `plain` is all without the marks."""

    phrases: tuple[str, ...]
    rest: str
    plain: str = ""


def parsed_query(text: str) -> ParsedQuery:
    """What is quoted in a query, and the rest; a quotation mark without its other half is a sign like others.

    >>> parsed_query('budget “main bus” 5" “open')
    ParsedQuery(phrases=('main bus',), rest='budget 5" “open', plain='budget main bus 5" “open')
    """
    phrases: dict[str, None] = {}
    rest, plain, at = list[str](), list[str](), 0
    for start, end in quoted(text):
        phrase = " ".join(text[start + 1 : end].split())
        if WORD.search(folded(phrase)):
            phrases.setdefault(phrase)
            rest.append(text[at:start])
            plain += [text[at:start], phrase]
            at = end + 1
    rest, plain = [*rest, text[at:]], [*plain, text[at:]]
    return ParsedQuery(tuple(phrases), *(" ".join(" ".join(pieces).split()) for pieces in (rest, plain)))


def quoted(text: str) -> Iterator[tuple[int, int]]:
    """Where quotation marks open and close, in order; none lies in another."""
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
    """A text as phrases are looked for in it: folded words, a space between them, or "-" for a hyphen.

    >>> transcript_of("Houston, we've had an OP_VAULT on-chain.")
    'houston we ve had an op-vault on-chain'
    """
    # Several hyphens in a row, which that sign in a text would become, take a phrase exponential time.
    joined = _HYPHEN.sub(_JOINED, folded(text).replace(_JOINED, " "))
    return _SIGNS.sub(" ", joined).strip().replace(_JOINED, "-")


@lru_cache(maxsize=1_000)
def phrase_pattern(phrase: str) -> re.Pattern[str]:
    """What finds a phrase in `transcript_of` a text, in time linear in the text."""
    signs = transcript_of(phrase)
    parts = [re.escape(signs[0])]
    for before, sign, after in zip(signs, signs[1:], f"{signs[2:]} ", strict=False):
        if sign == " ":
            is_optional = _SPACELESS.match(before) and _SPACELESS.match(after)
            parts.append("[ -]?" if is_optional else "[ -]")
        elif sign == "-":
            parts.append("[ -]?")
        else:
            if before not in " -":
                parts.append("[ -]?" if _SPACELESS.match(before) and _SPACELESS.match(sign) else "-?")
            parts.append(re.escape(sign))
    left = "" if _SPACELESS.match(signs[0]) else r"(?<![^ -])"
    right = "" if _SPACELESS.match(signs[-1]) else r"(?![^ -])"
    return re.compile(left + "".join(parts) + right)


def mentions_of(phrase: str, texts: Sequence[str]) -> list[tuple[int, int]]:
    """The first and last of some neighbouring texts (folded) for each time that a phrase is said."""
    words = [word for word in re.split("[ -]", transcript_of(phrase)) if not _SPACELESS.search(word)]
    bare = [text.translate(_WITHOUT_HYPHENS) for text in texts]
    rows_of = [[row for row, text in enumerate(bare) if word in text] for word in words]
    # Only texts around the rarest word are taken apart: most have none, and to see that is far quicker.
    rarest = min(rows_of, key=len, default=range(len(texts)))
    near = {row + step for row in rarest for step in range(-len(words), len(words) + 1)}
    transcripts = [transcript_of(text) if row in near else "" for row, text in enumerate(texts)]
    starts = list(itertools.accumulate((len(text) + 1 for text in transcripts), initial=0))[:-1]
    return [
        (bisect.bisect_right(starts, match.start()) - 1, bisect.bisect_right(starts, match.end() - 1) - 1)
        for match in phrase_pattern(phrase).finditer(" ".join(transcripts))
    ]
