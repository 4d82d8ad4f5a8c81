"""Replace names by rules for number, gender, coordination, possessives, titles, vocatives and repeated names.

"Eric and Dr. Gregory were having a conversation." becomes "Two people were having a conversation." First
mentions become "a man", "a woman", "a doctor" or "a person", a second of the kind "another man"; later
mentions become pronouns, or "the man" if a pronoun is ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from whenabouts_bench.relevance.imprecise.names import ADJECTIVES, TITLES, Mention, SetNames, Token
from whenabouts_bench.relevance.word_sets import word_set

RULES = 3
"""Version of the rules; incremented if captions change."""

_PLURALS = {"man": "men", "woman": "women", "person": "people"}
_PERSONS = word_set(
    "man woman girl boy guy lady person kid child doctor nurse friend brother sister wife husband mother "
    "father mom dad son daughter boyfriend girlfriend boss patient teacher roommate friends actor actress "
    "singer coach host player"
)
_RELATIVES = (_PERSONS | TITLES.keys()) - word_set("man woman girl boy guy person lady kid child")
_DETERMINERS = word_set("a an the his her their my our your its this that another one")
_PRONOUNS = {"man": ("he", "him", "his"), "woman": ("she", "her", "her"), "many": ("they", "them", "their")}
_PLURAL_VERBS = {"was": "were", "is": "are", "has": "have", "does": "do", "isn't": "aren't"}
_SINGULAR = ("VVZ", "VBZ", "VHZ", "VDZ")
_CLAUSE_BEGINS = word_set("and then while as when because before after but that")
_MODIFIERS = frozenset({"wearing", "in", "with", "holding"})
_POSSESSIVE = frozenset({"'s", "’s", "'", "’", "s"})


class RuleRewriter:
    """Rewrites by rules, with the names of a set."""

    varies = False

    def __init__(self, names: SetNames) -> None:
        self._names = names

    @property
    def fingerprint(self) -> str:
        return f"rule rules={RULES} {self._names.fingerprint}"

    def rewrite(self, texts: Sequence[str], temperature: float) -> list[str]:
        return [self._rewritten(text) for text in texts]

    def _rewritten(self, text: str) -> str:
        tokens = self._names.tokens(text)
        mentions = self._names.mentions(tokens)
        if not mentions:
            return text
        sentence = _Sentence(tokens)
        for group in _groups(tokens, mentions):
            sentence.replace(group)
        return _tidy(sentence.applied(text))


@dataclass(frozen=True, slots=True)
class _Group:
    """The tokens [begin, end) that name one or several persons; `nouns` has a word per member."""

    begin: int
    end: int
    mentions: tuple[Mention, ...]
    nouns: tuple[str, ...]


def _groups(tokens: Sequence[Token], mentions: Sequence[Mention]) -> list[_Group]:
    """Joined names form a group, which may include an unnamed person."""
    groups: list[list[Mention]] = []
    for mention in mentions:
        joins = bool(groups) and _is_joint(tokens, groups[-1][-1].end, mention.begin)
        if joins and not _has_own_verb(tokens, groups[-1][0].begin, mention.end):
            groups[-1].append(mention)
        else:
            groups.append([mention])
    return [_widened(tokens, group) for group in groups]


def _is_joint(tokens: Sequence[Token], begin: int, end: int) -> bool:
    words = [token.text.lower() for token in tokens[begin:end]]
    return words in (["and"], [","], [",", "and"], ["&"], ["or"])


def _has_own_verb(tokens: Sequence[Token], begin: int, end: int) -> bool:
    """Whether a person after "and" has its own verb, at `end`: "Ross hugs Rachel and Joey laughs"."""
    verb_before = any(token.is_finite for token in tokens[:begin])
    return verb_before and end < len(tokens) and tokens[end].tag in _SINGULAR


def _widened(tokens: Sequence[Token], group: Sequence[Mention]) -> _Group:
    """A group with an unnamed person joined to it: "Javier and the young man wearing a polo"."""
    begin, end = group[0].begin, group[-1].end
    nouns = [mention.noun for mention in group]
    after = _person_at(tokens, end + 1) if _is_joint(tokens, end, end + 1) else None
    if after is not None and end + 1 < len(tokens) and not _has_own_verb(tokens, begin, after):
        nouns.append("person")
        end = _behind_modifier(tokens, after)
    if begin >= 2 and tokens[begin - 1].text == "and" and tokens[begin - 2].text.lower() in _PERSONS:
        start = begin - 2
        while start and _is_adjective(tokens[start - 1]):
            start -= 1
        if start and tokens[start - 1].text.lower() in _DETERMINERS:
            nouns.insert(0, "person")
            begin = start - 1
    return _Group(begin, end, tuple(group), tuple(nouns))


def _person_at(tokens: Sequence[Token], place: int) -> int | None:
    """Where "the young man" starting at a place ends, or None."""
    if place >= len(tokens) or tokens[place].text.lower() not in _DETERMINERS:
        return None
    place += 1
    while place < len(tokens) and _is_adjective(tokens[place]):
        place += 1
    return place + 1 if place < len(tokens) and tokens[place].text.lower() in _PERSONS else None


def _is_adjective(token: Token) -> bool:
    return token.tag.startswith("AJ") or token.text.lower() in ADJECTIVES


def _behind_modifier(tokens: Sequence[Token], place: int) -> int:
    """Where "wearing checkered polo" ends, before the group's verb."""
    if place < len(tokens) and tokens[place].text.lower() in _MODIFIERS:
        for end in range(place + 1, min(place + 8, len(tokens))):
            if tokens[end].text in _PLURAL_VERBS or tokens[end].text in _PLURAL_VERBS.values():
                return end
            if not tokens[end].text[0].isalpha():
                break
    return place


@dataclass
class _Sentence:
    """A sentence whose names are replaced from left to right."""

    tokens: Sequence[Token]
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    seen: list[tuple[frozenset[str], str]] = field(default_factory=list)
    groups: list[frozenset[str]] = field(default_factory=list)

    def replace(self, group: _Group) -> None:
        """Plan the replacement of a group."""
        first, last = self.tokens[group.begin], self.tokens[group.end - 1]
        if len(group.nouns) == 1 and self._drop(group):
            return
        words = self._several(group) if len(group.nouns) > 1 else self._single(group)
        if words in ("his", "her", "their") and self._is_possessive(group.end):
            last = self.tokens[group.end]
        elif self._is_possessive(group.end) and self.tokens[group.end].text in ("'", "’", "s"):
            last, words = self.tokens[group.end], f"{words}'s"  # of "James'", of "Rachels"
        if first.initial:
            words = words[0].upper() + words[1:]
        self.edits.append((first.begin, last.end, words))

    def applied(self, text: str) -> str:
        """The text with all planned edits."""
        for begin, end, words in sorted(self.edits, reverse=True):
            text = text[:begin] + words + text[end:]
        return text

    def _word(self, place: int) -> str:
        return self.tokens[place].text.lower() if 0 <= place < len(self.tokens) else ""

    def _is_possessive(self, place: int) -> bool:
        if place >= len(self.tokens) or self.tokens[place].begin != self.tokens[place - 1].end:
            return False
        sign = self.tokens[place].text
        is_alone = sign in ("'", "’")  # may close a quotation
        return sign in _POSSESSIVE and (not is_alone or self.tokens[place - 1].text.endswith("s"))

    def _drop(self, group: _Group) -> bool:
        """Drop a vocative, or the name of a person already described: "his friend Ross"."""
        begin, end = group.begin, group.end
        previous = self._word(begin - 1)
        by_name = [self._word(place) for place in range(begin - 4, begin)] == ["by", "the", "name", "of"]
        words = 4 if by_name else int(previous in ("named", "called"))
        if words and begin > words and self.tokens[begin - words - 1].tag.startswith("NN"):
            begin -= words
        elif not (previous in _RELATIVES or (previous in _PERSONS and self._word(begin - 2) in _DETERMINERS)):
            return self._drop_call(begin, end)
        self._remember(group)
        self.edits.append((self.tokens[begin - 1].end, self.tokens[end - 1].end, ""))
        return True

    def _drop_call(self, begin: int, end: int) -> bool:
        """Drop a vocative: 'says, "Ross, wait!"' and "Wait, Ross!"."""
        to_end = self._word(end) in ("!", "?") or (
            self._word(end) == "." and self._word(end + 1) in ('"', "”")
        )
        if begin > 1 and self._word(begin - 1) == "," and to_end:
            self.edits.append((self.tokens[begin - 1].begin, self.tokens[end - 1].end, ""))
            return True
        quoted = begin > 0 and self.tokens[begin - 1].text in ('"', "“")
        if quoted and self._word(end) == "," and end + 1 < len(self.tokens):
            self.edits.append((self.tokens[begin].begin, self.tokens[end + 1].begin, ""))
            return True
        return False

    def _remember(self, group: _Group) -> None:
        self.seen += [(mention.words, mention.noun) for mention in group.mentions]

    def _earlier(self, mention: Mention) -> int | None:
        return next((place for place, (words, _) in enumerate(self.seen) if words & mention.words), None)

    def _single(self, group: _Group) -> str:
        (mention,) = group.mentions
        earlier = self._earlier(mention)
        if earlier is not None:
            return self._again(group, earlier)
        noun, place = mention.noun, group.begin
        others = [other for _, other in self.seen] + [token.text.lower() for token in self.tokens[:place]]
        self._remember(group)
        if self._word(place - 1) in _DETERMINERS:
            return noun
        start = place
        while start and _is_adjective(self.tokens[start - 1]):
            start -= 1
        if start < place:
            if self._word(start - 1) not in _DETERMINERS:
                adjective = self.tokens[start]
                word = adjective.text[0].lower() + adjective.text[1:]
                article = "A" if adjective.initial else "a"
                self.edits.append((adjective.begin, adjective.end, f"{article} {word}"))
            return noun
        return f"another {noun}" if noun in others else f"a {noun}"

    def _again(self, group: _Group, earlier: int) -> str:
        noun = self.seen[earlier][1]
        same = [place for place, (_, other) in enumerate(self.seen) if other == noun]
        if noun not in _PRONOUNS or len(same) > 1:
            return f"the other {noun}" if len(same) == 2 and earlier == same[1] else f"the {noun}"
        return self._pronoun(_PRONOUNS[noun], group.begin, group.end)

    def _pronoun(self, forms: tuple[str, str, str], begin: int, end: int) -> str:
        if self._is_possessive(end):
            return forms[2]
        after = self.tokens[end].tag if end < len(self.tokens) else ""
        may_begin = self.tokens[begin].initial or self._word(begin - 1) in _CLAUSE_BEGINS
        is_subject = after.startswith("V") and self.tokens[end].is_finite
        is_subject |= may_begin and after.startswith(("NN", "V"))  # verbs are often taken for nouns
        return forms[0] if is_subject else forms[1]

    def _several(self, group: _Group) -> str:
        names = frozenset(word for mention in group.mentions for word in mention.words)
        is_known = names in self.groups and len(group.nouns) == len(group.mentions)
        self.groups.append(names)
        self._agree(group.end)
        if is_known:
            return self._pronoun(_PRONOUNS["many"], group.begin, group.end)
        for mention in group.mentions:
            if self._earlier(mention) is None:
                self.seen.append((mention.words, mention.noun))
        noun = group.nouns[0] if len(set(group.nouns)) == 1 else "person"
        plural = _PLURALS.get(noun, f"{noun}s")
        if self._word(group.begin - 1) in ("the", "these", "both"):
            return plural
        return f"{'two' if len(group.nouns) == 2 else 'some'} {plural}"

    def _agree(self, place: int) -> None:
        """Put the verb after a group into the plural: "Two people were"."""
        if self._word(place) in _PLURAL_VERBS:
            verb = self.tokens[place]
            self.edits.append((verb.begin, verb.end, _PLURAL_VERBS[verb.text.lower()]))


def _tidy(text: str) -> str:
    text = re.sub(r"\b([Aa]) (?=[aeioAEIO]\w)", r"\1n ", " ".join(text.split()))
    text = re.sub(r"(men|women|people|s)'s\b", lambda m: m.group() if m.group(1) != "s" else "s'", text)
    text = re.sub(r" +([,.!?])", r"\1", text)
    return re.sub(r'(^|(?<=["“]))[a-z]', lambda match: match.group().upper(), text, count=1)
