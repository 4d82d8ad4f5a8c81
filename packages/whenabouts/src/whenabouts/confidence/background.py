"""Sentences unrelated to most corpora, to measure how high unrelated queries score on a corpus.

A corpus is searched with these sentences as with real queries. They cover many fields with few sentences
each, so that most are unrelated to any corpus; the fit is robust to the few that are not (`probability.py`).
They must be in the language of the corpus: in another language hardly a word matches, and any question stands
out.

**A language is one file** of `unrelated/`, named by its ISO 639-1 code: a first line with its English name
and its most frequent words, by which texts are recognised, then one sentence a line. The first forty
sentences say the same in every language.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

# Scripts of a single language here, in order of search: Japanese uses Chinese characters too.
_SCRIPTS = {
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "ko": re.compile(r"[\uac00-\ud7af]"),
    "zh": re.compile(r"[\u4e00-\u9fff]"),
    "hi": re.compile(r"[\u0900-\u0963\u0966-\u097f]"),
    "bn": re.compile(r"[\u0980-\u09ff]"),
}
_SCRIPT_SHARE = 0.1
# Frequent words make up a third to a half of any speech in their language, and a tenth or less in another one
# (see the tests).
_LEAST_SHARE = 0.12
_FEWEST_WORDS = 20
_MOST_CHARACTERS = 50_000
_WORD = re.compile(r"[^\W\d_]+(?:[\u064b-\u0652\u0900-\u0dff\u200c]+[^\W\d_]*)*")


@dataclass(frozen=True, slots=True)
class Language:
    """A language by its ISO 639-1 code: its English name, frequent words, and unrelated sentences."""

    code: str
    name: str
    frequent: frozenset[str]
    sentences: tuple[str, ...]


@cache
def languages() -> Mapping[str, Language]:
    """All languages with unrelated sentences, by code."""
    folder = files("whenabouts.confidence").joinpath("unrelated")
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(".txt"))
    return {name[:-4]: _read(name[:-4], folder.joinpath(name).read_text(encoding="utf-8")) for name in names}


def _read(code: str, text: str) -> Language:
    head, *sentences = text.splitlines()
    name, _, frequent = head.partition(":")
    return Language(code, name, frozenset(frequent.split()), tuple(sentences))


def language_of(texts: Iterable[str]) -> Language | None:
    """The language of most of the texts; None if `languages` lacks it.

    Few words in ASCII without a recognised language count as English.
    """
    text = _beginning(texts).lower()
    letters = sum(letter.isalpha() for letter in text)
    for code, script in _SCRIPTS.items():
        if len(script.findall(text)) > _SCRIPT_SHARE * letters:
            return languages()[code]
    words = _in_main_alphabet(_WORD.findall(text))
    total = words.total()
    shares = {
        code: sum(words[word] for word in language.frequent) / max(1, total)
        for code, language in languages().items()
        if code not in _SCRIPTS
    }
    best = max(shares, key=lambda code: shares[code])
    if shares[best] >= _LEAST_SHARE:
        return languages()[best]
    # Few words are inconclusive; most captions are English.
    return languages()["en"] if total < _FEWEST_WORDS and text.isascii() else None


def _in_main_alphabet(words: Iterable[str]) -> Counter[str]:
    """Counts of the words in the most frequent alphabet: technical talks are full of English names."""
    kinds: dict[str, Counter[str]] = {}
    for word in words:
        kinds.setdefault(unicodedata.name(word[0], "").partition(" ")[0], Counter())[word] += 1
    return max(kinds.values(), key=Counter.total, default=Counter())


def _beginning(texts: Iterable[str]) -> str:
    parts: list[str] = []
    length = 0
    for text in texts:
        parts.append(text)
        length += len(text)
        if length > _MOST_CHARACTERS:
            break
    return " ".join(parts)


SENTENCES: tuple[str, ...] = languages()["en"].sentences
"""The English sentences, which also serve for pictures."""
