"""Questions interpreted by rules: which event, in which videos, in what order.

A rule needs its whole pattern, in English or German; other sentences stay as they are. Quoted text is never
interpreted.

>>> read("the first time that a bell rings in lecture-3", names, today).labels    # doctest: +SKIP
('first', 'in: lecture-3')
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal, get_args

from whenabouts.search.phrases import quoted
from whenabouts.search.question_scopes import Names, Scope, Scopes

RuleName = Literal[
    "first", "last", "every", "after", "before", "without", "about", "in", "outside", "recorded"
]
RULES: tuple[RuleName, ...] = get_args(RuleName)
"""Names of the rules, for `literal`."""
NOT_IN_ORDER = ("first", "last", "every", "after", "before", "without")
"""Rules that do not apply to a list of all places or a search by example."""
EVERY_RULE = "all"
"""The name that turns all rules off."""

Order = Literal["first", "last", "every"]
Relation = Literal["after", "before"]

# Longer texts are not such questions.
_MOST_WORDS = 40
_MOST_HALF = 12
_MOST_SCOPES = 3
# Each quotation is masked by one character of the private use area.
_FIRST_MASK, _LAST_MASK = 0xE000, 0xF8FF
# Every rule needs one of these words, which most sentences lack.
_OF_RULES = re.compile(
    r"first|last|erste|letzte|jede|\b(?:every|each|all|alle|immer|erst|zuerst|after|before|nach|nachdem|bevor|ehe"
    r"|but|not|without|except|aber|nicht|ohne|außer|in|im|aus|from|during|während"
    r"|about|discuss\w*|expla\w*|mention\w*|descri\w*|find|show|looking|über|was)\b",
    re.IGNORECASE,
)
_Q = f"[{chr(_FIRST_MASK)}-{chr(_LAST_MASK)}]"


@dataclass(frozen=True, slots=True)
class Rule:
    """An applied rule: its name, and its label for users."""

    name: RuleName
    label: str


@dataclass(frozen=True, slots=True)
class Question:
    """A sentence interpreted by rules.

    `text` is the event to find, `order` picks among its moments by time. With a `relation`, they must begin
    after (before) a moment of the event `other` in the same video. Moments that overlap the event `without`
    are left out. `scopes` limit the videos. `is_topic`: the sentence asked where `text` is spoken about.
    """

    text: str
    order: Order | None = None
    relation: Relation | None = None
    other: str = ""
    without: str = ""
    scopes: tuple[Scope, ...] = ()
    is_topic: bool = False

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The applied rules, to show to the user."""
        rules = []
        if self.order:
            rules.append(Rule(self.order, "every time" if self.order == "every" else self.order))
        if self.relation:
            rules.append(Rule(self.relation, f"{self.relation}: {self.other}"))
        if self.without:
            rules.append(Rule("without", f"without: {self.without}"))
        if self.is_topic:
            rules.append(Rule("about", f"about: {self.text}"))
        return (*rules, *(Rule(scope.rule, scope.label) for scope in self.scopes))


def read(text: str, names: Names, today: date, literal: Collection[str] = ()) -> Question | None:
    """A sentence as interpreted by rules; None if none applies. `literal` names rules to skip."""
    if EVERY_RULE in literal or not _OF_RULES.search(text):
        return None
    masked, quotations = _masked(" ".join(text.split()))
    if not 2 <= len(masked.split()) <= _MOST_WORDS:
        return None

    def unmasked(part: str) -> str:
        return "".join(quotations.get(sign, sign) for sign in part)

    sentence, scopes = masked.rstrip(" ?!."), list[Scope]()
    reader = Scopes(names, today, frozenset(literal), unmasked)
    while len(scopes) < _MOST_SCOPES and (taken := reader.taken_from(sentence)) is not None:
        sentence, scope = taken
        scopes.append(scope)
    order, event = _ordered(sentence, literal)
    question = _parts(event, literal)
    question = replace(question, order=order)
    if not question.rules and "about" not in literal and (topic := _topic(event)):
        question = Question(topic, is_topic=True)
    question = replace(question, scopes=tuple(scopes))
    if not question.rules:
        return None
    return replace(
        question,
        text=unmasked(question.text),
        other=unmasked(question.other),
        without=unmasked(question.without),
    )


def _masked(text: str) -> tuple[str, dict[str, str]]:
    """A text with one character per quotation, and the quotations by these characters."""
    if any(_FIRST_MASK <= ord(sign) <= _LAST_MASK for sign in text):
        return "", {}
    pieces, quotations, at = list[str](), dict[str, str](), 0
    for start, end in quoted(text):
        sign = chr(_FIRST_MASK + len(quotations))
        quotations[sign] = text[start : end + 1]
        pieces += [text[at:start], sign]
        at = end + 1
    return "".join([*pieces, text[at:]]), quotations


# Order -----------------------------------------------------------------------------------------------

_REQUEST = (
    r"(?:(?:please )?(?:show|find|give|tell)(?: me| us)? |(?:jump|go) to "
    r"|(?:when|where|what) (?:is|was|are|were) "
    r"|bitte |(?:zeige?|finde|suche?)(?: mir| uns)? |(?:wann|wo|was) (?:ist|war|sind|waren) |spring zu )?"
)
_THAT = r"(?:that|when|where|in which|at which|which|,? ?(?:dass|als|wenn|wo|an dem|bei dem|in dem))"
_WHERE = (
    r"(?:where|when|in which|at which|,? ?(?:wo|an denen|in denen|bei denen|an der|in der|bei der|an dem))"
)
_MENTION = r"(?:mention|occurrence|appearance)"
_ERWAEHNUNG = r"(?:erwähnung|vorkommen|auftritt)(?:en|s|e)?"
_PLACE = r"(?:moment|scene|place|point|stelle|szene|moment)"
_PLACES = r"(?:moments|scenes|places|points|stellen|szenen|momente)"
_FIRST = r"(?:very |aller)?(?P<first>first|erste[rsn]?)"
_LAST = r"(?:very |aller)?(?P<last>last|letzte[rsn]?)"
_FIRST_OR_LAST = rf"(?:{_FIRST}|{_LAST})"
_DER = r"(?:der|die|das|den|dem)"
# `x` is the event; without a word such as "that" before it, it must look like a clause.
_ORDERS = tuple(
    re.compile(rf"{_REQUEST}{pattern}", re.IGNORECASE)
    for pattern in (
        rf"(?:the )?{_FIRST_OR_LAST} time (?:that|when|where) (?P<x>.+)",
        rf"the {_FIRST_OR_LAST} time (?P<bare>.+)",
        rf"(?:{_DER}|beim|am) {_FIRST_OR_LAST} mal{_THAT} (?P<x>.+)",
        rf"(?:the|{_DER}) {_FIRST_OR_LAST} (?:{_MENTION}|{_ERWAEHNUNG}) (?:of|von|des|der) (?P<x>.+)",
        rf"(?:the|{_DER}) {_FIRST_OR_LAST} {_PLACE}{_WHERE} (?P<x>.+)",
        rf"(?:the|{_DER}) {_FIRST_OR_LAST} {_PLACE} {_WHERE} (?P<x>.+)",
        r"(?:every|each)(?: single)? time (?:that|when) (?P<every>.+)",
        r"(?P<all>every|each)(?: single)? time (?P<bare>.+)",
        rf"(?:all|every)(?: the)? (?:times|{_PLACES}|{_PLACE})(?: that)? {_WHERE} (?P<every>.+)",
        r"all the times (?:that )?(?P<every>.+)",
        rf"alle {_PLACES}{_WHERE} (?P<every>.+)",
        rf"(?:every|each|all|all the|jede[sr]?|alle) (?:{_MENTION}s?|{_ERWAEHNUNG}) (?:of|von) (?P<every>.+)",
        r"(?:jedes ?mal|immer),? wenn (?P<every>.+)",
    )
)
# "the first time was in Paris" and "the last time zone" are not such questions.
_NO_START = re.compile(
    r"(?:was|is|were|are|be|been|will|would|had|has|in|at|for|of|on|to|since|ever|around|out|and|or|but|only|this"
    r"|zone|step|steps|series|slot|frame|stamp|limit|lapse|travel|machine|signature|buyers?|users?|visitors?"
    r"|offenders?|contributors?|i|we)\b",
    re.IGNORECASE,
)
# One event only: a second clause, or a statement about the time, makes another kind of sentence.
_SEVERAL = re.compile(
    r",(?!\d)|[;:.?!](?=\s|$)"
    r"|\b(?:is|was|will be) (?:in|at|on|when|because|during|by|still|so|not|a|an|the|always|just)\b",
    re.IGNORECASE,
)


def _ordered(text: str, literal: Collection[str]) -> tuple[Order | None, str]:
    """The requested order and the event; None and the text if no order is requested."""
    for match in filter(None, (pattern.fullmatch(text) for pattern in _ORDERS)):
        groups = match.groupdict()
        event = groups.get("x") or groups.get("bare") or groups.get("every") or ""
        order: Order = "first" if groups.get("first") else "last" if groups.get("last") else "every"
        is_bare = bool(groups.get("bare"))
        is_pair = _parts(event, literal).relation is not None
        if order in literal or (_is_no_event(event) and not is_pair):
            continue
        if not is_bare or is_pair or not _is_no_clause(event):
            return order, event
    return None, text


def _is_no_clause(event: str) -> bool:
    """Whether the words after "the first time" are surely not a single clause."""
    is_short = len(event.split()) < 2 and not re.fullmatch(_Q, event)
    return is_short or bool(_NO_START.match(event)) or _verbs_in(event) > 1


def _is_no_event(event: str) -> bool:
    return not re.search(rf"\w|{_Q}", event) or bool(_SEVERAL.search(event))


# Two events ------------------------------------------------------------------------------------------

_SHORTLY = r"(?:(?:right|just|shortly|directly|immediately|soon|kurz|gleich|direkt|unmittelbar) )?"
_DETERMINED = rf"(?:(?:an?|the|another|some(?:body|one|thing)?|einen?|der|die|das|den|jemand|etwas)\b|{_Q}).*"
_TWO_NAMED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"after (?P<first>[^,]+),? (?:comes?|follows?|there is|there are) (?P<then>{_DETERMINED})",
        rf"nach (?!hause\b)(?P<first>[^,]+) (?:kommt|kommen|folgt|folgen) (?P<then>{_DETERMINED})",
    )
)
_TWO_CLAUSES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?P<then>[^,]+?),? {_SHORTLY}after (?P<first>[^,]+)",
        rf"(?P<now>[^,]+?),? {_SHORTLY}before (?P<later>[^,]+)",
        rf"{_SHORTLY}after (?P<first>[^,]+), (?P<then>[^,]+)",
        rf"{_SHORTLY}before (?P<later>[^,]+), (?P<now>[^,]+)",
        r"first (?P<first>[^,]+), (?:and )?then (?P<then>[^,]+)",
        rf"(?P<then>[^,]+), {_SHORTLY}nachdem (?P<first>[^,]+)",
        rf"(?P<now>[^,]+), {_SHORTLY}(?:bevor|ehe) (?P<later>[^,]+)",
        rf"{_SHORTLY}nachdem (?P<first>[^,]+), (?P<then>[^,]+)",
        rf"{_SHORTLY}(?:bevor|ehe) (?P<later>[^,]+), (?P<now>[^,]+)",
        r"(?:erst|zuerst) (?P<first>[^,]+),? (?:und )?dann (?P<then>[^,]+)",
    )
)
# In German these words always begin a clause; in English not: "before the war".
_BEGINS_A_CLAUSE = re.compile(r"\b(?:nachdem|bevor|ehe)\b", re.IGNORECASE)
# A half with such a word cannot be searched alone.
_REFERS = re.compile(
    r"\b(?:he|him|his|himself|she|her|hers|herself|they|them|their|theirs|themselves|it|its|itself|one|there"
    r"|another|others?|this|that|these|those|so|er|ihn|ihm|sie|ihr|ihre[nmrs]?|ihnen|es|sein|seine[nmrs]?|sich"
    r"|dies|diese[nmrs]?|dabei|dort|da|andere[nmrs]?)\b",
    re.IGNORECASE,
)
_JOINS = re.compile(
    r"\b(?:and|or|but|while|as|who|which|when|then|because|until|since|if|after|before|und|oder|aber|während|weil"
    r"|bis|falls|ob|nachdem|bevor)\b|[.;:/](?=\s|$)",
    re.IGNORECASE,
)
_AUXILIARIES = (
    "is are was were has have had does did can could will would gets got goes "
    "ist sind war waren hat haben hatte wird werden wurde wurden kann"
)
# Forms that are hardly ever nouns.
_VERBS = """
adds answers appears approaches arrives asks barks becomes begins bites bows breaks brings builds
bursts buys calls carries catches celebrates changes chases chooses claps cleans climbs closes
collapses comes continues cooks coughs crashes cries crosses cuts dances describes dies disappears
discusses drinks drives drops eats ends enters explains explodes falls feeds fills finds finishes
fixes flies follows gives grabs greets grows happens hears helps hides hits holds honks hugs
introduces joins jumps keeps kisses knocks lands laughs leaps leaves lifts lights listens looks
loses makes meets melts mentions mixes moves nods opens orders paints picks plays points pours
presents presses pulls pushes puts rains raises reaches reads receives releases removes repeats
replies returns rides rings rises runs says screams sees sells sends serves shakes shoots shouts
shows sings sinks sits sleeps slips smiles sneezes snows speaks spills stands starts steals steps
stops swims switches takes talks tastes tells thanks throws touches tries trips turns uses votes
waits wakes walks watches waves wears whistles wins writes yawns yells
arrived ate became began broke brought came caught chose cried died drank drove entered fell flew
found gave grew happened heard held kept knew laughed lost met opened put ran rang rose said sang
sat saw sent shook spoke started stole stood stopped swam threw told took went woke won wore wrote
"""
_FINITE = frozenset((_AUXILIARIES + _VERBS).split())
# Usually nouns at the end of a clause, as in "martial arts moves".
_NOUNS_AT_THE_END = """
answers bows bursts calls changes claps coughs crashes cuts dances drinks drives drops hits holds
hugs lands lifts lights looks moves nods orders paints picks plays points presses pushes rains reads
repeats returns rides runs sets shows steps switches tastes trips turns uses votes walks watches
waves whistles
"""
_OF_ORDER = re.compile(
    r"(?:the |das |beim )?(?:very )?(?:first|last|every|each|ersten?|letzten?|jedes) ?(?:time|mal)\b"
    r"|(?:the|der|die|das) (?:first|last|erste[rs]?|letzte[rs]?) ",
    re.IGNORECASE,
)
_SINGULAR_SUBJECT = re.compile(r"(?:an?|some(?:body|one)|every(?:body|one)|nobody) ", re.IGNORECASE)
_NO_SUBJECT = re.compile(
    r"(?:in|on|at|to|from|with|of|for|by|into|onto|over|under|near|behind|not|being|having|what|how|why|who"
    r"|when|where|which|do|does|did|can|is|are|was|were|will|should)\b|\w+ing\b",
    re.IGNORECASE,
)


def _parts(text: str, literal: Collection[str]) -> Question:
    """An event, and the event before, after or excluded from it."""
    for pair, are_named in _pairs(text):
        groups = pair.groupdict()
        is_after = groups.get("then") is not None
        relation: Relation = "after" if is_after else "before"
        event, other = (groups["then"], groups["first"]) if is_after else (groups["now"], groups["later"])
        if relation in literal or _REFERS.search(event) or _REFERS.search(other):
            continue
        is_german = bool(_BEGINS_A_CLAUSE.search(text)) or text.lower().startswith(("erst ", "zuerst "))
        if are_named or all(_is_event(half, is_german) for half in (event, other)):
            return Question(event, relation=relation, other=other)
    if "without" not in literal:
        for pattern in _WITHOUT:
            match = pattern.fullmatch(text)
            # "Somebody opens the box but not a bag" is a statement; "boxes but not a bag" is a request.
            is_statement = match and re.match(rf"{_SOME} ", match["y"]) and _verbs_in(match["x"])
            if match and not is_statement and not _is_no_event(match["x"]):
                return Question(match["x"], without=match["y"])
    return Question(text)


def _pairs(text: str) -> Iterator[tuple[re.Match[str], bool]]:
    for patterns, are_named in ((_TWO_NAMED, True), (_TWO_CLAUSES, False)):
        for pattern in patterns:
            if match := pattern.fullmatch(text):
                yield match, are_named


def _is_event(half: str, is_german: bool) -> bool:
    """Whether half a sentence is an event by itself: a quotation, or one clause with subject and verb."""
    words = half.split()
    if re.fullmatch(rf"{_Q}(?: {_Q})*", half):
        return True
    if not 2 <= len(words) <= _MOST_HALF or _JOINS.search(half) or _OF_ORDER.match(half):
        return False
    if is_german:
        return True
    if _NO_SUBJECT.match(half) or _verbs_in(half) != 1:
        return False
    # After "a" or "somebody" this is a verb, not a plural.
    return words[-1].lower() not in _NOUNS_AT_THE_END.split() or bool(_SINGULAR_SUBJECT.match(half))


def _verbs_in(text: str) -> int:
    """The number of finite verbs after the first word; adjacent ones such as "has met" count as one.

    >>> _verbs_in("the train has left the station"), _verbs_in("the train stops and a man leaves")
    (1, 2)
    """
    are_finite = [False, *(word.lower() in _FINITE for word in text.split()[1:])]
    return sum(now and not before for before, now in itertools.pairwise(are_finite))


# One event without another ---------------------------------------------------------------------------

_SOME = r"(?:an?|any|einen?)"
_WITHOUT = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?P<x>.+?),? but (?:not|without) (?P<y>{_Q}|{_SOME} .+)",
        rf"(?P<x>.+?),? aber (?:nicht|ohne) (?P<y>{_Q}|{_SOME} .+)",
        rf"(?P<x>.+?)(?:, not|, nicht|,? without|,? ohne|,? except|,? außer) (?P<y>{_Q})",
        r"(?P<x>.+?),? without the words? (?P<y>.+)",
        r"(?P<x>.+?),? ohne (?:das wort|die wörter|die worte) (?P<y>.+)",
    )
)

# What is spoken about --------------------------------------------------------------------------------

# The words around the topic are not said where the topic is, so searching for them finds other places.
_FIND = (
    r"(?:(?:(?:can|could|would) you )?(?:please )?(?:find|show|give|play|tell)(?: me| us)?"
    r"|(?:jump|go|take me) to|(?:i am|i'm|i’m) looking for|(?:where|what|which) (?:is|was|are|were))"
)
_STRETCH = r"(?:the |an? |any )?(?:part|place|point|moment|bit|section|passage|segment|scene)s?"
_SPEAKER = (
    r"(?:they|he|she|we|you|people|some(?:body|one)|any(?:body|one)"
    r"|the (?:speaker|host|guest|lecturer|professor|teacher|presenter|panel)s?)"
)
_SPEAKS = (
    r"(?:ever |(?:start|begin|began)(?:s|ed)? )?"
    r"(?:(?:(?:is |are |was |were )?(?:talk|speak)(?:s|ed|ing)?|spoke) about|discuss(?:es|ed|ing)?"
    r"|explain(?:s|ed|ing)?|mention(?:s|ed|ing)?|describ(?:e|es|ed|ing)"
    r"|(?:say|says|said|saying) something about)"
)
_SPRECHEN = r"(?:spricht|sprechen|sprach|sprachen|redet|reden|diskutiert|diskutieren)"
_SPRECHER = r"(?:sie|er|man|wir|jemand|die leute|der (?:sprecher|gast|dozent|professor))"
_TOPICS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:{_FIND} )?(?:{_STRETCH} )?(?:where|when|in which|at which)(?: (?:do|does|did))? "
        rf"{_SPEAKER} {_SPEAKS} (?P<x>.+)",
        rf"(?:did|do|does) {_SPEAKER} {_SPEAKS} (?P<x>.+)",
        rf"(?:who|(?:in )?(?:which|what) \w+(?: (?:do|does|did) {_SPEAKER})?) {_SPEAKS} (?P<x>.+)",
        rf"what (?:do|does|did) {_SPEAKER} (?:say|think|tell (?:us|me)) about (?P<x>.+)",
        r"what (?:is|was|has been) said about (?P<x>.+)",
        r"(?:where|when)(?: in (?:the|these|my|all)(?: the)? \w+)? (?:is|was|are|were) (?P<x>.+) "
        r"(?:discussed|explained|mentioned|described|(?:talked|spoken) about)",
        rf"(?:{_FIND}|(?:is|are) there) (?:{_STRETCH}|everything|anything|something) about (?P<x>.+)",
        rf"{_FIND} (?:the |an? |any )?(?:section|passage|segment)s? on (?P<x>.+)",
        rf"{_FIND} (?:the |an? |any )?(?:discussion|explanation|description)s? (?:about|of|on) (?P<x>.+)",
        rf"i (?:remember|recall) (?:that )?{_SPEAKER} {_SPEAKS} (?P<x>[^,]+)"
        r"(?:,? (?:but )?where (?:is|was) (?:that|it))?",
        rf"(?:(?:zeige?|finde|suche?)(?: mir| uns)? )?(?:die|eine|alle) (?:stellen?|abschnitte?|teile?),? "
        rf"(?:wo|an der|in der|an denen|in denen) {_SPRECHER} über (?P<x>.+) {_SPRECHEN}",
        r"wo (?:wird|werden|wurde) über (?P<x>.+) (?:gesprochen|geredet|diskutiert)",
        rf"wo {_SPRECHEN} {_SPRECHER} über (?P<x>.+)",
        rf"was (?:sagt|sagen|sagte|sagten) {_SPRECHER} (?:über|zu) (?P<x>.+)",
    )
)


def _topic(text: str) -> str:
    """What a sentence asks to hear about; "" if it asks otherwise, or refers to something said before.

    >>> _topic("can you find the part where they talk about mining pools"), _topic("where they talk about it")
    ('mining pools', '')
    """
    for match in filter(None, (pattern.fullmatch(text) for pattern in _TOPICS)):
        if not _is_no_event(match["x"]) and not _REFERS.fullmatch(match["x"]):
            return match["x"]
    return ""
