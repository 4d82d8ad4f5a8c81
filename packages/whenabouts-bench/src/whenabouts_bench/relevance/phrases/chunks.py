"""Find phrases by part-of-speech tags and a small grammar; no download, needs the package HanTa.

Words get the tags of the British National Corpus (C5), each tag becomes a letter, and regular expressions
over letters find verb groups and noun phrases. Phrases do not nest as in a constituency tree: a verb phrase
extends from a verb of its group to the next joined verb, a conjunction of time, cause or relation, or the end
of the clause. `docs/relevance.md` has the accuracy.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from whenabouts_bench.relevance.phrases.protocol import (
    Phrases,
    PhrasesUnavailable,
    without_article,
)
from whenabouts_bench.relevance.word_sets import word_set

NAME = "chunks"
GRAMMAR = 1
"""Version of the grammar; incremented if phrases change."""

_MODEL = "morphmodel_en.pgz"
_LONGEST_WORD = 45
"""Longer words are cut, because the tagger's time grows faster than quadratically with the length."""
_LETTERS = {
    "d": "AT0 DPS DT0 CRD ORD",
    "p": "POS",
    "j": "AJ0 AJC AJS",
    "n": "NN0 NN1 NN2 NP0 ZZ0 UNC",
    "o": "PNP PNI PNX",
    "v": "VVZ VVD VVB",
    "x": "VBZ VBB VBD VHZ VHB VHD VDZ VDB VDD VM0",
    "g": "VVG VBG VHG VDG",
    "i": "VVI VVN VBI VBN VHI VHN VDI VDN",
    "r": "AVP",
    "q": "PRP PRF",
    "t": "TO0",
    "c": "CJC",
    "s": "CJS CJT AVQ DTQ PNQ",
}
_LETTER_OF = {tag: letter for letter, tags in _LETTERS.items() for tag in tags.split()}
_MARKS = {**dict.fromkeys(".!?;", "."), ",": ",", "/": "c", "&": "c"}
_RELATIVE = frozenset({"that", "who", "which", "whom", "whose"})
_BE = frozenset({"be", "been", "being"})
_PLACES = word_set("in on onto into through from across around by inside outside near under over")
_WORD = re.compile(r"n't\b|'s\b|\w+?(?=n't\b)|\w+(?:-\w+)*(?='s\b)|\w+(?:[-'’]\w+)*|[^\w\s]", re.IGNORECASE)
_TITLE = re.compile(r"\b(Dr|Mr|Mrs|Ms|St)\. ?", re.IGNORECASE)
_SENTENCE = re.compile(r"[^.!?;]+")
_NP = r"(?:(?:[dj]*n+p)*[dj]*n+|[dj]*o|d+)"
_NOUNS = re.compile(rf"{_NP}(?:(?:,|,?c){_NP}(?!a*[xv]))*,?c{_NP}|{_NP}")
_LIST_GOES_ON = re.compile(rf",{_NP}(?:,{_NP})*,?c{_NP}(?!a*[xv])")
_VERBS = re.compile(r"[xvgi](?:a*t?[xgi])*")
_LAST_NOUNS = re.compile(rf"(?:{_NP},?c)?{_NP}a*$")


def open_phrases(model: str) -> ChunkExtractor:
    """The extractor; it takes no model. Raises PhrasesUnavailable if the package is missing."""
    if model:
        raise PhrasesUnavailable(f"{NAME}:{model}: {NAME} takes no model; write {NAME}")
    spec = importlib.util.find_spec("HanTa")
    if spec is None or not spec.submodule_search_locations:
        raise PhrasesUnavailable(
            f"the phrases of {NAME!r} need the package HanTa: pip install 'whenabouts[bench]'"
        )
    return ChunkExtractor(Path(spec.submodule_search_locations[0]) / _MODEL)


class ChunkExtractor:
    """Phrases of English sentences by HanTa's tags and this file's grammar."""

    name = NAME

    def __init__(self, model: Path) -> None:
        self._model = model

    @cached_property
    def fingerprint(self) -> str:
        return f"{NAME} grammar={GRAMMAR} hanta={importlib.metadata.version('HanTa')}"

    def phrases(self, texts: Sequence[str]) -> list[Phrases]:
        return [self._phrases(text) for text in texts]

    def tags(self, words: Sequence[str]) -> list[str]:
        """The C5 tag of each word of one sentence."""
        return [tag for _, _, tag in self._tag(words)]

    def tagged(self, text: str) -> list[tuple[str, str, str]]:
        """(word in lower case, lemma, C5 tag) of each word of a sentence."""
        words = _WORD.findall(_TITLE.sub(r"\1 ", text))
        return [(word.lower(), stem.lower(), tag) for word, stem, tag in self._tag(words)] if words else []

    def _tag(self, words: Sequence[str]) -> list[tuple[str, str, str]]:
        tagged: list[tuple[str, str, str]] = self._tagger.tag_sent([word[:_LONGEST_WORD] for word in words])
        return tagged

    @cached_property
    def _tagger(self) -> Any:
        from HanTa.HanoverTagger import HanoverTagger  # type: ignore[import-untyped, unused-ignore]

        # An absolute path: HanTa looks up bare names in the working directory first, and unpickles them.
        tagger = HanoverTagger(str(self._model))
        tagger.readings = lru_cache(maxsize=50_000)(lambda word: {tag for tag, _ in tagger.tag_word(word)})
        return tagger

    def _phrases(self, text: str) -> Phrases:
        words = _WORD.findall(_TITLE.sub(r"\1 ", text))
        if not words:
            return Phrases()
        short = [word[:_LONGEST_WORD] for word in words]
        tags = self.tags(words)
        letters = _as_letters(short, tags, self._tagger.readings)
        words = [word.lower() for word in words]
        verb: list[str] = []
        noun: list[str] = []
        clauses: list[str] = []
        for sentence in _SENTENCE.finditer(letters):
            begin, end = sentence.span()
            parts = Sentence(tuple(words[begin:end]), letters[begin:end])
            noun += [parts.text(*match.span()) for match in _NOUNS.finditer(parts.letters)]
            for group in parts.groups():
                verb += [parts.text(start, group.stop) for start in group.starts]
                whole = parts.text(group.starts[0], group.stop)
                clauses += [f"{noun_phrase} {whole}" for noun_phrase in group.subject] or [whole]
        return Phrases(_distinct(verb), _distinct(noun), _distinct(clauses))


@dataclass(frozen=True)
class Group:
    """Adjacent verbs: `starts` of their phrases, their common `stop`, the noun phrases of the `subject`."""

    starts: tuple[int, ...]
    stop: int
    subject: tuple[str, ...]


@dataclass(frozen=True)
class Sentence:
    """Words in lower case, with a letter for each."""

    words: tuple[str, ...]
    letters: str

    def text(self, begin: int, end: int) -> str:
        """Some of the words as normal text."""
        return re.sub(r" ('s|n't|,)(?=\W|$)", r"\1", " ".join(self.words[begin:end]))

    def groups(self) -> Iterator[Group]:
        """The verb groups in order."""
        main: tuple[str, ...] = ()
        left = 0
        previous: Group | None = None
        for match in _VERBS.finditer(self.letters):
            start, end = match.span()
            finite = self.letters[start] in "xv"
            after_nouns = not finite and self._follows_nouns(start)
            stop = self._stop(end, after_nouns=after_nouns and previous is None)
            subject = self._subject(left, start, finite, main, previous)
            if finite and not self._relative(left, start):
                main = subject
            starts = [place for place in range(start, end) if self.letters[place] in "xvgi"]
            # Auxiliaries before the main verb are skipped.
            while len(starts) > 1 and (self.letters[starts[0]] == "x" or self.words[starts[0]] in _BE):
                del starts[0]
            previous = Group(tuple(starts), stop, subject)
            left = stop
            # "a person is opens the door": a bare auxiliary is skipped.
            if stop > end or set(self.letters[start:end]) - set("xa"):
                yield previous

    def _stop(self, end: int, *, after_nouns: bool) -> int:
        """Where the phrase of verbs that end at `end` ends."""
        stop = end
        while stop < len(self.letters) and not self._is_border(stop, after_nouns=after_nouns):
            if self.letters[stop] in "xv":
                stop = self._before_subject(end, stop, keep_nouns=after_nouns)
                break
            stop += 1
        while stop > end and self.letters[stop - 1] in "c,":
            stop -= 1
        return stop

    def _before_subject(self, end: int, verb: int, *, keep_nouns: bool) -> int:
        """Where the clause of a finite verb begins that follows a phrase without a conjunction."""
        between = self.letters[end:verb].rstrip("a")
        if keep_nouns:
            return end + len(between)
        joined = max(between.rfind("c"), between.rfind(","))
        nouns = _LAST_NOUNS.search(between)
        if joined >= 0 and (nouns is None or nouns.start() > joined):
            return end + joined
        # The preposition of "after she calls" is not part of the clause before it.
        return end + len(between[: nouns.start()].rstrip("q") if nouns else between)

    def _is_border(self, place: int, *, after_nouns: bool) -> bool:
        """Whether a clause ends before a word, judging by the following words."""
        letter, after = self.letters[place], self.letters[place + 1 :].lstrip("ac,")
        if letter == "s":
            return True
        if letter == "a":
            return after[:1] in ("x", "v") and set(self.letters[place:]) != {"a"}
        if letter == ",":
            return _LIST_GOES_ON.match(self.letters, place) is None
        if letter == "c":
            # "a man wearing a shirt and jeans plays": the man is the subject of the second verb.
            new_subject = not after_nouns and re.match(rf"{_NP}a*[xv]", after) is not None
            return new_subject or after[:1] in tuple("xvgit")
        return False

    def _follows_nouns(self, start: int) -> bool:
        return start > 0 and self.letters[start - 1] in "no"

    def _relative(self, left: int, start: int) -> bool:
        return any(word in _RELATIVE for word in self.words[left:start])

    def _subject(
        self, left: int, start: int, finite: bool, main: tuple[str, ...], previous: Group | None
    ) -> tuple[str, ...]:
        if not finite:
            return self._doer(start) or main if self._follows_nouns(start) else main
        if self._relative(left, start) and _NOUNS.search(self.letters, left, start) is None:
            return self._nouns_before(left)
        nouns = self._first_nouns(left, start)
        if nouns:
            return nouns
        if previous is not None and left == start:  # "a man holding a guitar walks"
            return previous.subject
        return main

    def _doer(self, place: int) -> tuple[str, ...]:
        """The noun phrase right before a participle, unless it is a place: "lying on a bed watching"."""
        matches = [match.start() for match in _NOUNS.finditer(self.letters, 0, place)]
        governed = matches[-1] > 0 and self.words[matches[-1] - 1] in _PLACES
        return () if governed else self._nouns_before(place)

    def _nouns_before(self, place: int) -> tuple[str, ...]:
        matches = [match.span() for match in _NOUNS.finditer(self.letters, 0, place)]
        return self._each(*matches[-1]) if matches and matches[-1][1] == place else ()

    def _first_nouns(self, left: int, start: int) -> tuple[str, ...]:
        """The first noun phrase not governed by a preposition, with an "of" complement.

        After another verb, if all are governed, the last one: "before Mary calls".
        """
        governed: tuple[str, ...] = ()
        for match in _NOUNS.finditer(self.letters, left, start):
            begin, end = match.span()
            if begin > left and self.letters[begin - 1] == "q":
                governed = self._each(begin, end) if left else ()
                continue
            if end < start and self.words[end] == "of":
                inner = _NOUNS.match(self.letters, end + 1, start)
                if inner is not None:
                    return (without_article(self.text(begin, inner.end())),)
            return self._each(begin, end)
        return governed

    def _each(self, begin: int, end: int) -> tuple[str, ...]:
        """The members of a list of noun phrases."""
        return tuple(
            without_article(self.text(begin + match.start(), begin + match.end()))
            for match in re.finditer(r"[^c,]+", self.letters[begin:end])
        )


def _distinct(phrases: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(phrases))


def _as_letters(words: Sequence[str], tags: Sequence[str], readings: Any) -> str:
    """One letter per word, with corrections of verbs that the tagger mistakes for nouns in captions."""
    letters = [_MARKS.get(word) or _LETTER_OF.get(tag, "a") for word, tag in zip(words, tags, strict=True)]
    for place, (word, tag) in enumerate(zip(words, tags, strict=True)):
        before = letters[place - 1] if place else "."
        after = letters[place + 1] if place + 1 < len(letters) else "."
        left = "".join(letters[:place]).rpartition(".")[2]
        right = "".join(letters[place + 1 :]).partition(".")[0]
        if tag == "VVI" and re.search(r"[tx]a*$", left) is None:
            letters[place] = "v"
        elif letters[place] in "gi" and before in "dj" and after in "nj":
            letters[place] = "j"
        elif tag == "VVN" and "VVB" in readings(word) and _verbless(left, right):
            letters[place] = "v"
        elif tag == "NN2" and word.endswith("s"):
            letters[place] = "v" if _third_person(left, right, "VVZ" in readings(word)) else "n"
        elif tag == "NN1" and before == "v" and word.endswith("ing") and "VVG" in readings(word):
            letters[place] = "g"
        elif tag in ("NN1", "AJ0", "AV0") and before in "no" and _verbless(left, right):
            with_ing = word.endswith("ing") and tag != "AV0"
            before_rest = after in "qrgtdo" or "".join(words[place + 1 : place + 2]).endswith("ing")
            if with_ing or (before_rest and readings(word) & {"VVB", "VVI"}):
                letters[place] = "g" if with_ing else "v"
    return "".join(letters)


def _third_person(left: str, right: str, may_be: bool) -> bool:
    """Whether an "-s" marks a third person instead of a plural: "the camera pans around".

    `left` and `right` are the letters around the word, `may_be` whether the tagger knows it as a verb.
    """
    after = right[:1]
    if re.search(r"[xv].*[c,]a*$", left):
        return after in ("d", "o") or (may_be and after in tuple("qrnjat"))
    if not _verbless(left, right):
        return False
    if re.search(r"[no]a?$", left):
        return after in tuple("qrdoa") or (may_be and after in tuple("nj"))
    return may_be and left[-1:] == "j" and after in tuple("qr")


def _verbless(left: str, right: str) -> bool:
    """Whether a sentence has no finite verb so far, and none before its next clause."""
    return re.search(r"[xv]", left) is None and re.match(r"[^sc]*?[xv]", right) is None
