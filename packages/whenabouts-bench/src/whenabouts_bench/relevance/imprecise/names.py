"""Find person names in the descriptions of a data set, offline, and a general word for each (man, doctor).

Evidence comes from a list of given names with genders (gender-guesser), from HanTa's tags, and from all
descriptions: how often a word is capitalised within sentences, its context, the pronouns that accompany it,
and the given names before it ("Lisa Cuddy" makes Cuddy a woman). So surnames and invented names are found if
the descriptions use them as names. A cast list (`Cast`) overrules this evidence.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from whenabouts_bench.relevance.imprecise.cast import Cast, is_capital
from whenabouts_bench.relevance.imprecise.protocol import RewriterUnavailable
from whenabouts_bench.relevance.phrases import PhrasesUnavailable
from whenabouts_bench.relevance.phrases.chunks import ChunkExtractor, open_phrases
from whenabouts_bench.relevance.word_sets import word_set

RULES = 2
"""Version of the rules; incremented if results change."""

TITLES = {
    title: word
    for word, titles in {
        "man": "mr sir uncle prince king",
        "woman": "mrs ms miss aunt lady princess queen",
        "doctor": "dr doctor",
        "professor": "prof professor",
        "officer": "officer sergeant lieutenant",
        **{
            role: role
            for role in ["detective", "captain", "nurse", "agent", "judge", "chief", "president", "coach"]
        },
    }.items()
    for title in titles.split()
}
"""Title in lower case without its full stop -> the general word that replaces title and name."""

_TOKEN = re.compile(
    r"\b(?:Dr|Mr|Mrs|Ms|Prof)\.(?=\s)|n't\b|['’]s\b|\w+?(?=n't\b)|\w+(?:-\w+)*|[^\w\s]", re.IGNORECASE
)
_NEVER = word_set(
    "I I'm TV Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April June "
    "July August September October November December Christmas Halloween Easter Thanksgiving English "
    "French German Spanish Italian Chinese Japanese Frisbee Internet Olympic Olympics Santa God America "
    "Europe Asia Tai Chi Rubik Rubiks"
)
ADJECTIVES = word_set("young old little big poor drunk angry sad happy fat tall")
"""Words before names; the tagger takes a capitalised one for a part of the name."""
_PLACES = word_set(
    "Park Beach Street Road City School University College Club Center Centre River Lake Island Hospital "
    "Hotel"
)
_ARTICLES = frozenset({"a", "an", "the", "this", "that", "these", "those", "some", "no", "each", "every"})
_OF_PLACES = frozenset({"in", "on", "of", "from", "near", "during", "inside", "outside", "onto", "into"})
_BEFORE_PERSONS = word_set("to with at for by behind and beside while as when")
_FINITE = ("VVZ", "VVD", "VBZ", "VBD", "VHZ", "VHD", "VDZ", "VDD", "VM0", "VVB")
_HE, _SHE = frozenset({"he", "his", "him", "himself"}), frozenset({"she", "her", "hers", "herself"})
_GENDERS = {"male": "man", "mostly_male": "man", "female": "woman", "mostly_female": "woman"}
_ENDS = frozenset('.!?"“”:')


@dataclass(frozen=True, slots=True)
class Token:
    """A word or sign with its position, its tag (C5), and whether it begins a sentence."""

    text: str
    begin: int
    end: int
    tag: str
    initial: bool

    @property
    def is_finite(self) -> bool:
        return self.tag in _FINITE


@dataclass(frozen=True, slots=True)
class Mention:
    """A person's name: the tokens [begin, end), the general word, and the name's words."""

    begin: int
    end: int
    noun: str
    words: frozenset[str]


class SetNames:
    """Finds names, by the evidence of all `texts` of a set. Raises RewriterUnavailable without a package."""

    def __init__(self, texts: Sequence[str], cast: Cast | None = None) -> None:
        self._cast = cast
        self._tagger, self._guesser = open_tagger(), _guesser()
        self._middle: Counter[str] = Counter()
        self._lower: Counter[str] = Counter()
        self._like_person: Counter[str] = Counter()
        self._unlike_person: Counter[str] = Counter()
        self._he: Counter[str] = Counter()
        self._she: Counter[str] = Counter()
        self._after_given: dict[str, Counter[str]] = {"man": Counter(), "woman": Counter()}
        self._read: dict[str, tuple[Token, ...]] = {}
        for text in texts:
            self._count(self.tokens(text))

    @cached_property
    def fingerprint(self) -> str:
        versions = " ".join(
            f"{name}={importlib.metadata.version(name)}" for name in ("gender-guesser", "HanTa")
        )
        listed = "" if self._cast is None else f" {self._cast.fingerprint}"
        return f"names of the set rules={RULES} {versions}{listed}"

    def names(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        return [tuple(self._names(text, self.tokens(text))) for text in texts]

    def _names(self, text: str, tokens: Sequence[Token]) -> Iterator[str]:
        for mention in self.mentions(tokens):
            yield text[tokens[mention.begin].begin : tokens[mention.end - 1].end]

    def tokens(self, text: str) -> tuple[Token, ...]:
        """The words and signs of a text."""
        if text not in self._read:
            if len(self._read) > 200_000:
                self._read.clear()
            self._read[text] = tuple(self._tokens(text))
        return self._read[text]

    def _tokens(self, text: str) -> Iterator[Token]:
        matches = list(_TOKEN.finditer(text))
        if not matches:
            return
        tags = self._tagger.tags([match.group() for match in matches])
        before = "."
        for match, tag in zip(matches, tags, strict=True):
            word, (begin, end) = match.group(), match.span()
            if self._lacks_apostrophe(word):
                yield Token(word[:-1], begin, end - 1, tag, before in _ENDS)
                yield Token("s", end - 1, end, "POS", False)
            else:
                yield Token(word, begin, end, tag, before in _ENDS)
            before = word

    def _lacks_apostrophe(self, word: str) -> bool:
        """Whether a word is a name of the cast with an s: "Rachels"."""
        nouns = {} if self._cast is None else self._cast.nouns
        return word.endswith("s") and word not in nouns and word[:-1] in nouns

    def _listed(self, word: str) -> str | None:
        """The name of the cast that a word is, or that it misspells if it is not a word or name itself."""
        if self._cast is None or not is_capital(word):
            return None
        if word in self._cast.nouns:
            return word
        is_word = self._lower[word.lower()] or self._guesser.get_gender(word) != "unknown"
        return None if is_word else self._cast.misspelled(word)

    def _count(self, tokens: Sequence[Token]) -> None:
        headline = _is_headline(tokens)
        capitals = []
        for place, token in enumerate(tokens):
            if token.text.islower():
                self._lower[token.text] += 1
            elif is_capital(token.text) and not headline:
                capitals.append(token.text)
                self._middle[token.text] += not token.initial
                kind = self._person_evidence(tokens, place)
                before = tokens[place - 1].text if place else ""
                if is_capital(before) and (gender := _GENDERS.get(self._guesser.get_gender(before))):
                    self._after_given[gender][token.text] += 1
                self._like_person[token.text] += kind > 0
                self._unlike_person[token.text] += kind < 0
        # Pronouns are evidence only if one capitalised word, besides the first, may be their name.
        if len(set(capitals)) == 1 or (len(capitals) == 2 and tokens and tokens[0].text == capitals[0]):
            words = {token.text.lower() for token in tokens}
            self._he[capitals[-1]] += bool(words & _HE) and not words & _SHE
            self._she[capitals[-1]] += bool(words & _SHE) and not words & _HE

    @staticmethod
    def _person_evidence(tokens: Sequence[Token], place: int) -> int:
        """1 if a capitalised word is where names of persons are, -1 where they are not, else 0."""
        before = tokens[place - 1] if place else None
        after = tokens[place + 1] if place + 1 < len(tokens) else None
        word = before.text.lower() if before is not None else ""
        if word in _ARTICLES or word in _OF_PLACES or (before is not None and before.tag.startswith("AJ")):
            return -1
        if after is not None and (after.text in ("'s", "’s") or after.is_finite):
            return 1
        if after is not None and after.tag.startswith("NN"):
            return 0  # a thing's name, or a verb that the tagger takes for a noun
        if before is not None and (before.is_finite or word in _BEFORE_PERSONS):
            return 1
        return 0

    def mentions(self, tokens: Sequence[Token]) -> list[Mention]:
        """The names in a sentence, in order; a name of several words is one."""
        spotted: list[Mention] = []
        headline, place = _is_headline(tokens), 0
        while place < len(tokens):
            title = TITLES.get(tokens[place].text.lower().rstrip("."))
            has_title = title is not None and is_capital(tokens[place].text.rstrip("."))
            end = place + has_title
            while end < len(tokens) and self._goes_on(tokens, place, end, has_title, headline):
                end += 1
            if end > place + has_title:
                while not has_title and place and self._may_begin(tokens[place - 1], spotted, place):
                    place -= 1
                spelled = (token.text for token in tokens[place + has_title : end])
                words = frozenset(self._listed(word) or word for word in spelled)
                noun = title if has_title and title else self._noun(tokens[place:end])
                spotted.append(Mention(place, end, noun, words))
            place = max(end, place + 1)
        return spotted

    def _may_begin(self, token: Token, spotted: Sequence[Mention], place: int) -> bool:
        """Whether a token may be an unlisted given name that belongs to the name at `place`."""
        is_free = not spotted or spotted[-1].end < place
        is_rare = self._lower[token.text.lower()] <= self._middle[token.text]
        is_other = token.text in _NEVER or token.text.lower() in ADJECTIVES
        return is_free and is_rare and is_capital(token.text) and token.tag == "NP0" and not is_other

    def _goes_on(
        self, tokens: Sequence[Token], begin: int, place: int, has_title: bool, headline: bool
    ) -> bool:
        """Whether the name that begins at `begin` includes the token at `place`."""
        token = tokens[place]
        if place > begin and len(token.text) == 1 and place + 1 < len(tokens):
            is_dot = token.text == "." and len(tokens[place - 1].text) == 1
            return (is_dot or token.text.isupper()) and (
                is_capital(tokens[place + 1].text) or tokens[place + 1].text == "."
            )
        if not is_capital(token.text):
            return False
        if place == begin:
            return self._is_person(tokens, place, headline)
        if has_title and place == begin + 1:
            return True
        return not headline and self._lower[token.text.lower()] <= self._middle[token.text]

    def _is_person(self, tokens: Sequence[Token], place: int, headline: bool) -> bool:
        token = tokens[place]
        if self._listed(token.text):
            return True
        word, lower, middle = token.text, self._lower[token.text.lower()], self._middle[token.text]
        if word in _NEVER or word.lower() in ADJECTIVES or (token.tag.startswith("AJ") and not middle):
            return False
        gender = _GENDERS.get(self._guesser.get_gender(word))
        if headline:
            return gender is not None and not lower and middle > 0
        if lower > middle and not (gender and not token.initial and token.tag == "NP0"):
            return False
        if token.initial and not middle and token.tag != "NP0":
            return False
        after = tokens[place + 1] if place + 1 < len(tokens) else None
        here = self._person_evidence(tokens, place)
        if after is not None and (after.text in _PLACES or after.text[0].isdigit()):
            return False
        is_behind_article = place > 0 and tokens[place - 1].text.lower() in _ARTICLES
        if is_behind_article and after is not None and after.tag.startswith("NN") and after.text.islower():
            return False  # "a Smith knife"
        yes, no = self._like_person[word], self._unlike_person[word]
        if gender is not None:
            return yes >= no or here > 0
        if token.initial and not middle and self._guesser.get_gender(word) == "andy" and here <= 0:
            return False  # "andy": a given name of both genders
        return (yes > no and here > 0) or (here == 0 and yes > 1) or yes > max(2, 2 * no)

    def _noun(self, tokens: Sequence[Token]) -> str:
        """The general word for a named person: by the cast, the set's pronouns and names, the given name."""
        listed = [
            self._cast.nouns[name] for token in tokens if self._cast and (name := self._listed(token.text))
        ]
        if listed:
            return next((noun for noun in listed if noun != "person"), "person")
        for token in tokens:
            for men, women in ((self._he, self._she), (self._after_given["man"], self._after_given["woman"])):
                he, she = men[token.text], women[token.text]
                if max(he, she) >= 3 and max(he, she) >= 3 * min(he, she):
                    return "man" if he > she else "woman"
        guesses = (_GENDERS.get(self._guesser.get_gender(token.text)) for token in tokens)
        guess = next((guess for guess in guesses if guess), None)
        if guess:
            return guess
        words = sum(
            (Counter({"man": self._he[t.text], "woman": self._she[t.text]}) for t in tokens), Counter()
        )
        return words.most_common(1)[0][0] if len(words) == 1 else "person"


def _is_headline(tokens: Sequence[Token]) -> bool:
    """Whether most words are capitalised, so that capitals are no evidence."""
    words = [token.text for token in tokens if token.text[0].isalpha() and len(token.text) > 3]
    return len(words) > 4 and sum(word[0].isupper() for word in words) > 0.7 * len(words)


@cache
def open_tagger() -> ChunkExtractor:
    """HanTa's tagger. Raises RewriterUnavailable if the package is missing."""
    try:
        return open_phrases("")
    except PhrasesUnavailable as error:
        raise RewriterUnavailable(
            "finding names needs the package HanTa: pip install 'whenabouts[bench]'"
        ) from error


@cache
def _guesser() -> Any:
    try:
        import gender_guesser.detector
    except ImportError as error:
        raise RewriterUnavailable(
            "finding names needs the package gender-guesser: pip install 'whenabouts-bench[names]'"
        ) from error
    return gender_guesser.detector.Detector()
