"""Speakers named in subtitles: "CMP: Roger", "<v Anna>", ">> ANNA:", "[Anna] Hello", "- Hello".

A colon alone does not make a speaker ("Note: …", "at 12:30", "the trick is: …"). A name must look like one,
and must begin several lines of the file or be a role such as "Speaker 2". In a file with speakers, text that
merely looks like a name ends the turn before it and begins an unnamed one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from whenabouts.video.cue import Cue, Marks

LONGEST_NAME = 40
# Least lines that begin with a name; fewer for names in capitals and in short files.
_FEWEST, _FEWEST_SURE, _SHORT_FILE = 3, 2, 100
# A speaker continues in the next cue, unless the pause is longer.
_LONGEST_PAUSE = 5.0
# Turns of one speaker at most this far apart are merged.
_SAME_TURN = 1.0

_CHANGE = re.compile(r"(?:>>+|[-\u2010-\u2015](?=\s+\S|[^\W\d_\[(]|[\[(]))\s*")
_COLON = re.compile(r"([^\W\d_][^:\n\[\]<>]{0,60})[:\uff1a](?=\s|$)\s*")
_BRACKET = re.compile(r"[\[(]([^\W\d_][^\]):\n]{0,60})[\])]:?\s+(?=\S)")
_NAME_WORD = re.compile(r"[(\"']*(?:[^\W\d_a-z][\w.'\u2019&/-]*|#?\d{1,3})[)\"',.]*")
_PARTICLE = re.compile("of|and|de|la|le|van|von|der|den|di|da|del|bin|al|el|und|et")
_ROLE = re.compile(
    r"(?:unknown |unidentified |unrecognized |multiple |male |female )*"
    r"(?:speakers?|voice|man|woman|guest|host|interviewer|moderator|audience(?: member)?|participant|student|"
    r"questioner|(?:autre )?[eé]tudiant(?:e|s|es)?|crewm[ae]n|crewmember|narrator|reporter|sprecher(?:in)?|"
    r"locuteur|hablante|orador)"
    r"(?: ?#?\d{1,3}| [a-z])?(?: \([^)]*\))?",
    re.IGNORECASE,
)
# Words before a colon or in brackets that are not names.
_NO_NAMES = frozenset(
    word
    for words in (
        "note notes warning caution attention example examples question questions answer answers chapter",
        "part step figure table source sources tip remember fact title subtitles subtitle captions",
        "caption translation translated music song lyrics sound applause laughter laughs laughing silence",
        "inaudible noise intro outro first second third fourth finally next also so but and or because",
        "however then today now here there yes no okay ok well problem solution summary conclusion result",
        "results page slide panel row option number comment comments remarks agenda topic definition",
        "theorem proof lemma hint update edit credits transcript transcription recap donc alors exemple",
        "remarque réponse beispiel frage antwort achtung hinweis ejemplo nota pregunta respuesta exemplo",
        "pergunta resposta música musica musique musik applaus rires applaudissements risas risos",
        "aplausos gelächter",
    )
    for word in words.split()
)


class Turn(NamedTuple):
    """Somebody speaks in [start, end) seconds."""

    start: float
    end: float
    speaker: str


@dataclass(frozen=True, slots=True)
class _Mark:
    """A mark of a speaker at a position of a cue's text, with the `name` as written.

    `is_change`: a dash or ">>" marks a change of speaker; `is_aside`: the name is in brackets.
    """

    position: int
    name: str
    is_change: bool
    is_aside: bool


def marks_of(cues: Sequence[Sequence[str]], voices: Collection[str] = ()) -> list[Marks]:
    """The positions at which somebody begins to speak in each cue; cues are given by their lines.

    Positions count in the lines joined by spaces. `voices` are names marked as such (`<v Anna>`), which the
    lines have as "Anna: "; if there are any, other marks are ignored.
    """
    if voices:
        names = {name_of(voice) for voice in voices}
        return [tuple(_voices_in(" ".join(lines), names)) for lines in cues]
    signs = [list(_signs_in(lines)) for lines in cues]
    counts = Counter(mark.name for marks in signs for mark in marks if mark.name)
    names = {name for name, count in counts.items() if _is_speaker(name, count, len(cues))}
    has_roles_only = all(map(is_role, names))
    if sum(counts[name] for name in names) < (_FEWEST if has_roles_only else _FEWEST_SURE):
        names = set()
    if not names:
        return [()] * len(cues)
    # Such files name only speakers off screen: anybody may speak the unmarked lines.
    by_sight = any((mark.is_change and not mark.name) or mark.is_aside for marks in signs for mark in marks)
    return [tuple(_decided(marks, names, by_sight=by_sight)) for marks in signs]


def name_of(text: str) -> str:
    """A name on one line, without needless space, cut at `LONGEST_NAME`."""
    return " ".join(text.split())[:LONGEST_NAME].rstrip()


def turns_of(cues: Iterable[Cue]) -> list[Turn]:
    """The turns of named speakers, by start.

    Within a cue, times are interpolated by letters. A cue without a mark continues the last speaker, unless
    there was a pause.
    """
    turns: list[Turn] = []
    speaker, spoke_until = "", 0.0
    for cue in sorted(cues, key=lambda cue: cue.start):
        if cue.start - spoke_until > _LONGEST_PAUSE:
            speaker = ""
        for turn in _turns_in(cue, speaker):
            speaker = turn.speaker
            last = turns[-1] if turns else None
            if not speaker or turn.end <= turn.start:
                continue
            if last is not None and last.speaker == speaker and turn.start - last.end <= _SAME_TURN:
                turns[-1] = last._replace(end=max(last.end, turn.end))
            else:
                turns.append(turn)
        spoke_until = max(cue.end, spoke_until)
    return turns


def is_role(name: str) -> bool:
    """Whether a name only distinguishes the speakers of one file, such as "Speaker 2".

    >>> is_role("Speaker 0"), is_role("Audience 3"), is_role("CMP")
    (True, True, False)
    """
    return _ROLE.fullmatch(name) is not None


def _turns_in(cue: Cue, speaker: str) -> Iterator[Turn]:
    marks = list(cue.speakers)
    if not marks or marks[0][0] > 0:
        marks.insert(0, (0, speaker))
    letters, length = max(1, len(cue.text)), cue.end - cue.start
    starts = [cue.start + length * min(1.0, position / letters) for position, _ in marks]
    for (_, name), start, end in zip(marks, starts, [*starts[1:], cue.end], strict=True):
        yield Turn(start, end, name)


def _signs_in(lines: Sequence[str]) -> Iterator[_Mark]:
    """The marks at the beginnings of lines; a change without a name has the name ""."""
    position = 0
    for line in lines:
        change = _CHANGE.match(line)
        text = line[change.end() :] if change else line
        sign = _COLON.match(text) or _BRACKET.match(text)
        name = name_of(sign[1]) if sign and _looks_like_name(sign[1]) else ""
        if change or name:
            is_aside = sign is not None and bool(name) and sign.re is _BRACKET
            yield _Mark(position, name, change is not None, is_aside)
        position += len(line) + 1


def _voices_in(text: str, names: Collection[str]) -> Iterator[tuple[int, str]]:
    """The known names before a colon in a text, at its beginning or after a space."""
    at = 0
    while (colon := text.find(":", at)) >= 0:
        for start in range(max(at, colon - 2 * LONGEST_NAME), colon):  # the longest name first
            begins_word = start == 0 or text[start - 1] == " "
            if begins_word and (name := name_of(text[start:colon])) in names:
                yield start, name
                break
        at = colon + 1


def _looks_like_name(text: str) -> bool:
    """Whether a text looks like a name: few words, each with a capital or a number."""
    words = text.split()
    if not 1 <= len(words) <= 5 or len(text.strip()) > LONGEST_NAME:
        return False
    if words[0].strip(".,()'\"").casefold() in _NO_NAMES:
        return False
    if is_role(" ".join(words)):
        return True
    return all(_NAME_WORD.fullmatch(word) or _PARTICLE.fullmatch(word) for word in words)


def _is_speaker(name: str, count: int, cues: int) -> bool:
    """Whether a name at the beginning of `count` lines of a file is a speaker's."""
    if is_role(name):
        return True
    is_sure = cues < _SHORT_FILE or (name.isupper() and len(name) > 1)
    return count >= (_FEWEST_SURE if is_sure else _FEWEST)


def _decided(marks: Sequence[_Mark], names: Collection[str], *, by_sight: bool) -> Iterator[tuple[int, str]]:
    if by_sight and not (marks and marks[0].position == 0):
        yield 0, ""
    for mark in marks:
        yield mark.position, mark.name if mark.name in names else ""
