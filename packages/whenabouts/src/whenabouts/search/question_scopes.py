"""The part of a question that says which videos to search: by a video's name, or by its recording date.

A name counts only if a video of the corpus has exactly this name. Dates are those of
`index.filters.recorded`; weeks start on Monday.

>>> "who left in yesterday's meeting", "the vote in the video called budget day"  # doctest: +SKIP
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Literal

from whenabouts.index.filters import recorded_at
from whenabouts.index.records import VideoRecord, unambiguous
from whenabouts.search.word_units import units_of
from whenabouts.video.files import folded_name

# Words for a recording, in English and German.
_RECORDING = (
    r"(?:meeting|call|video|recording|lecture|talk|livestream|stream|episode|session|interview|class|lesson"
    r"|stand-?up|presentation|webinar|podcast|conference|workshop|seminar|footage|clip|file)s?"
)
_AUFNAHME = (
    r"(?:besprechung|sitzung|aufnahme|aufzeichnung|vorlesung|konferenz|folge|stunde)(?:en|n)?"
    r"|(?:meeting|video|interview|podcast|stream|seminar|workshop|clip|call)s?"
    r"|(?:vortrag|vortrags|vorträgen|vorträge|gespräch|gespräche|gesprächen|anruf|termin|unterricht|datei)"
)
_NOUN = rf"(?:{_RECORDING}|{_AUFNAHME})"
_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january januar jan",
            "february februar feb",
            "march märz mar",
            "april apr",
            "may mai",
            "june juni jun",
            "july juli jul",
            "august aug",
            "september sept sep",
            "october oktober oct okt",
            "november nov",
            "december dezember dec dez",
        ),
        1,
    )
    for name in names.split()
}
_MONTH = rf"(?:{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\.?"
_DAY_MONTH_YEAR = rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)? (?:of )?(?P<month>{_MONTH}),? (?P<year>\d{{4}})"
_MONTH_DAY_YEAR = rf"(?P<month>{_MONTH}) (?P<day>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<year>\d{{4}})"
_DATES = (
    r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})",
    r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})",
    _DAY_MONTH_YEAR,
    _MONTH_DAY_YEAR,
    rf"(?P<month>{_MONTH}) (?P<year>\d{{4}})",
    r"(?P<year>(?:19|20)\d{2})",
)
_LAST = r"(?:last|letzte[nmrs]?|vergangene[nmrs]?|vorige[nmrs]?)"
_THIS = r"(?:this|diese[mnrs]?)"
_RELATIVE = {
    r"(?:today|heute|heutige[nmrs]?)": ("day", 0),
    r"(?:yesterday|gestern|gestrige[nmrs]?)": ("day", 1),
    rf"{_THIS} (?:week|woche)": ("week", 0),
    rf"{_LAST} (?:week|woche)": ("week", 1),
    rf"{_THIS} (?:month|monats?)": ("month", 0),
    rf"{_LAST} (?:month|monats?)": ("month", 1),
    rf"{_THIS} (?:year|jahr(?:es)?)": ("year", 0),
    rf"{_LAST} (?:year|jahr(?:es)?)": ("year", 1),
}
_WHEN_RELATIVE = "|".join(_RELATIVE)
_WHEN_DATE = "|".join(re.sub(r"\?P<\w+>", "?:", pattern) for pattern in _DATES)
_WHEN = rf"(?P<when>{_WHEN_RELATIVE}|{_WHEN_DATE})"
_FROM = r"(?:of|from|on|in|recorded(?: on| in)?|von|vom|aus|aus dem|am|im|der|des)"
_THE = r"(?:the |der |dem |den |die |all |all the |allen )"
_BY_DATE = tuple(
    re.compile(rf"(?:^|(?<=\s))(?:{pattern})(?=$|\s|,)", re.IGNORECASE)
    for pattern in (
        rf"(?:in|from|during) (?P<when>{_WHEN_RELATIVE})['’]s {_NOUN}",
        rf"(?:in|from|during|aus|während) {_THE}{_NOUN} {_FROM} (?:der |dem |the )?{_WHEN}",
        rf"im (?:video|meeting|interview|podcast|stream|seminar|workshop|clip|call|vortrag|gespräch) {_FROM} "
        rf"(?:der |dem )?{_WHEN}",
        rf"(?:im|in der|in dem|in den) (?P<when>gestrige[nmrs]?|heutige[nmrs]?) {_NOUN}",
    )
)
_CALLED = (
    r"(?:called|named|titled|entitled|with the (?:name|title)"
    r"|namens|mit dem (?:namen|titel)|mit namen|genannt)"
)
_NOT_IN = r"(?:^|(?<=\s))(?P<not>(?:but )?not |(?:aber )?nicht )?(?:in|im|aus)"
_THAT = r"(?:the |der |dem )?"
_BY_NAME = re.compile(rf"{_NOT_IN} {_THAT}{_NOUN} {_CALLED} (?P<name>\S.*)$", re.IGNORECASE)
_BARE = re.compile(rf"{_NOT_IN} (?:{_THAT}{_NOUN} )?(?P<name>\S+)$", re.IGNORECASE)
_NUMBERED = re.compile(rf"{_NOT_IN} (?P<name>{_NOUN} \d+)$", re.IGNORECASE)
_LEADING = re.compile(r"(?P<scope>(?:(?:but )?not )?(?:in|im|aus) [^,]+), (?P<rest>\S.*)", re.IGNORECASE)
_QUOTES = " \"“”„'‘’«»「」『』"
_MOST_SHOWN = 3
# A word in the names of more videos is one of the corpus, such as "lecture".
_MOST_WITH_WORDS = 10
_SMALL_WORDS = {"a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"}


@dataclass(frozen=True, slots=True)
class Scope:
    """The videos that a question names: only these may answer, or (rule "outside") all others.

    `named` is their name for users.
    """

    rule: Literal["in", "outside", "recorded"]
    named: str
    video_ids: frozenset[str]

    @property
    def label(self) -> str:
        """The scope for users, such as "in: lecture-3"."""
        return f"{'not in' if self.rule == 'outside' else self.rule}: {self.named}"

    def allows(self, video_id: str) -> bool:
        """Whether a video may answer."""
        return (video_id in self.video_ids) != (self.rule == "outside")


class Names:
    """The names of a corpus's videos, as a question may use them."""

    def __init__(self, records: Sequence[VideoRecord]) -> None:
        self.records = records

    def called(self, name: str) -> frozenset[str]:
        """Ids of videos whose title, id, or file name with or without suffix is this name."""
        return self._by_key.get(_key(name), frozenset())

    def files(self, name: str) -> frozenset[str]:
        """Ids of videos whose file has this name, with or without suffix."""
        return self._by_file.get(folded_name(name), frozenset())

    def with_words(self, text: str) -> list[VideoRecord]:
        """The videos whose title or file name has all words of a text but small English ones.

        There is none if they are more than `_MOST_WITH_WORDS`.
        """
        units = set(units_of(text)) - _SMALL_WORDS
        rows = set.intersection(*(self._by_unit.get(unit, set()) for unit in units)) if units else set()
        return [self.records[row] for row in sorted(rows)] if len(rows) <= _MOST_WITH_WORDS else []

    @cached_property
    def _by_unit(self) -> Mapping[str, set[int]]:
        rows = defaultdict[str, set[int]](set)
        for row, record in enumerate(self.records):
            for unit in units_of(f"{record.title} {_file_names(record)[1]}"):
                rows[unit].add(row)
        return rows

    @cached_property
    def _by_key(self) -> Mapping[str, frozenset[str]]:
        return _index(
            (_key(name), record.video_id)
            for record in self.records
            for name in (record.title, record.video_id, *_file_names(record))
            if name
        )

    @cached_property
    def _by_file(self) -> Mapping[str, frozenset[str]]:
        return _index(
            (folded_name(name), record.video_id) for record in self.records for name in _file_names(record)
        )

    def label(self, video_ids: frozenset[str]) -> str:
        """A name for some videos: their file names without suffixes."""
        names = sorted({_file_names(record)[1] for record in self.records if record.video_id in video_ids})
        shown = ", ".join(names[:_MOST_SHOWN])
        more = len(names) - _MOST_SHOWN
        return f"{shown} and {more} more" if more > 0 else shown

    def recorded(self, first: date, end: date) -> frozenset[str]:
        """Ids of videos recorded on or after the day `first` and before the day `end` (UTC)."""
        after, before = (datetime(day.year, day.month, day.day, tzinfo=UTC) for day in (first, end))
        return frozenset(record.video_id for record in self.records if after <= recorded_at(record) < before)


@dataclass(frozen=True, slots=True)
class Scopes:
    """Reads scopes with the videos' names, the present day, and the rules that are off.

    `unmasked` restores a name in which quotations are masked.
    """

    names: Names
    today: date
    literal: frozenset[str]
    unmasked: Callable[[str], str]

    def taken_from(self, text: str) -> tuple[str, Scope] | None:
        """A text without one of its scopes, and that scope; None if it has none, or nothing besides."""
        return self._date_in(text) or self._name_at_the_end(text) or self._name_at_the_start(text)

    def _date_in(self, text: str) -> tuple[str, Scope] | None:
        if "recorded" in self.literal:
            return None
        for match in (match for pattern in _BY_DATE for match in pattern.finditer(text)):
            span = period(match["when"], self.today)
            event = _joined(text[: match.start()], text[match.end() :])
            if span is not None and event:
                return event, Scope("recorded", _with_days(match["when"], span), self.names.recorded(*span))
        return None

    def _name_at_the_end(self, text: str) -> tuple[str, Scope] | None:
        for pattern, find in (
            (_BY_NAME, self.names.called),
            (_NUMBERED, self.names.called),
            (_BARE, lambda name: self.names.files(name) if _looks_like_a_file(name) else frozenset()),
        ):
            match = pattern.search(text)
            remaining = _joined(text[: match.start()], "") if match else ""
            if match is None or not remaining:
                continue
            ids = find(self.unmasked(match["name"]).strip(_QUOTES))
            scope = Scope("outside" if match["not"] else "in", self.names.label(ids), ids)
            if ids and scope.rule not in self.literal:
                return remaining, scope
        return None

    def _name_at_the_start(self, text: str) -> tuple[str, Scope] | None:
        leading = _LEADING.fullmatch(text)
        taken = self._name_at_the_end(f"x {leading['scope']}") if leading else None
        return (leading["rest"], taken[1]) if leading and taken and taken[0] == "x" else None


def period(when: str, today: date) -> tuple[date, date] | None:
    """The first day of a period, and the day after its last; None for a date that does not exist.

    >>> period("last week", date(2026, 11, 27))
    (datetime.date(2026, 11, 16), datetime.date(2026, 11, 23))
    >>> period("März 2024", date(2026, 11, 27))
    (datetime.date(2024, 3, 1), datetime.date(2024, 4, 1))
    """
    for pattern, (unit, back) in _RELATIVE.items():
        if re.fullmatch(pattern, when, re.IGNORECASE):
            return _period_before(unit, back, today)
    for pattern in _DATES:
        if match := re.fullmatch(pattern, when, re.IGNORECASE):
            return _period_of(match.groupdict())
    return None


def _period_before(unit: str, back: int, today: date) -> tuple[date, date]:
    if unit == "day":
        first = today - timedelta(days=back)
        return first, first + timedelta(days=1)
    if unit == "week":
        first = today - timedelta(days=today.weekday() + 7 * back)
        return first, first + timedelta(days=7)
    if unit == "month":
        return _months(today.year, today.month - back, 1)
    return _months(today.year - back, 1, 12)


def _period_of(parts: Mapping[str, str | None]) -> tuple[date, date] | None:
    year, month, day = int(parts["year"] or 0), parts.get("month"), parts.get("day")
    if month is None:
        return _months(year, 1, 12)
    number = int(month) if month.isdigit() else _MONTHS.get(month.rstrip(".").casefold(), 0)
    try:
        first = date(year, number, int(day or 1))
        return _months(year, number, 1) if day is None else (first, first + timedelta(days=1))
    except (ValueError, OverflowError):
        return None


def _months(year: int, month: int, count: int) -> tuple[date, date]:
    """`count` months from one on; month 0 is the December before."""
    first, end = year * 12 + month - 1, year * 12 + month - 1 + count
    return date(first // 12, first % 12 + 1, 1), date(end // 12, end % 12 + 1, 1)


def _with_days(when: str, span: tuple[date, date]) -> str:
    """A period as written, with its first and last day."""
    first, last = span[0], span[1] - timedelta(days=1)
    days = f"{first}" if first == last else f"{first} to {last}"
    return when if when == days else f"{when} ({days})"


def _looks_like_a_file(name: str) -> bool:
    """Whether a word is almost certainly a file name: it has a suffix, or letters and digits.

    >>> _looks_like_a_file("friday.mp4"), _looks_like_a_file("lecture-3"), _looks_like_a_file("London")
    (True, True, False)
    """
    has_letters, has_digits = re.search(r"[^\W\d_]{2}", name), re.search(r"\d", name)
    return bool(re.fullmatch(r".+\.[a-z][a-z0-9]{1,4}", name, re.IGNORECASE) or (has_letters and has_digits))


def _file_names(record: VideoRecord) -> tuple[str, str]:
    """The name of a video's file, with and without its suffix."""
    path = Path(unambiguous(record.path))
    return path.name or record.video_id, path.stem or record.video_id


def _index(pairs: Iterable[tuple[str, str]]) -> Mapping[str, frozenset[str]]:
    ids_of: dict[str, set[str]] = {}
    for name, video_id in pairs:
        ids_of.setdefault(name, set()).add(video_id)
    return {name: frozenset(ids) for name, ids in ids_of.items()}


def _key(name: str) -> str:
    """The words and numbers of a name, for comparison.

    >>> _key("Lecture_03"), _key("lecture 3")
    ('lecture 3', 'lecture 3')
    """
    pieces = re.findall(r"[^\W\d_]+|[0-9]{1,9}", folded_name(name))
    return " ".join(str(int(piece)) if piece.isdecimal() else piece for piece in pieces)


def _joined(before: str, after: str) -> str:
    """The text around a cut-out part, without stray commas."""
    return " ".join(f"{before.rstrip(' ,')} {after.lstrip(' ,')}".split())
