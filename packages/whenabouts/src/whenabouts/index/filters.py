"""Filters of a search: the videos that may answer, by id, date of recording and metadata.

A filter is evaluated on the ledger first and becomes a set of video ids that each stream's search takes, so
no stream can forget a condition.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import translate
from functools import lru_cache
from typing import Any, Literal

from whenabouts.budget import check_budget
from whenabouts.index.records import VideoRecord
from whenabouts.times import parse_date
from whenabouts.types import UsageError
from whenabouts.video.files import folded_name

Operator = Literal["=", "!=", ">=", "<=", ">", "<"]
_CONDITION = re.compile(r"\s*+([\w.\- ]++)\s*+(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
# `[*]`, `[?]` and `[[]`, as `glob.escape` writes them, mean the sign inside.
_LITERAL = re.compile(r"\[([*?[])\]|[?[]")

# Metadata keys of a recording's date, best first.
DATE_KEYS = ("recorded", "creation_time", "date")

# Every video has these fields.
_ALWAYS = ("duration", "name", "path")
_MOST_KEYS = 30


@dataclass(frozen=True, slots=True)
class Condition:
    """`key operator value` over a video's metadata; `path`, `name` and `duration` always exist."""

    key: str
    operator: Operator
    value: str

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition such as `key=value`. Raises UsageError.

        >>> Condition.parse("camera!=drone*")
        Condition(key='camera', operator='!=', value='drone*')
        """
        match = _CONDITION.fullmatch(text)
        if not match or not match.group(1).strip():
            raise UsageError(f"{text!r} is not a condition; write KEY=VALUE, KEY!=VALUE, KEY>=N or KEY<=N")
        key, operator, value = match.group(1).strip(), match.group(2), match.group(3).strip()
        is_pattern = operator in ("=", "!=") and "*" in value
        if key == "duration" and not is_pattern and not _is_finite(_number(value)):
            raise UsageError(
                f"{text!r}: {value!r} is not a number; durations are in seconds, such as duration{operator}90"
            )
        return cls(key, operator, value)  # type: ignore[arg-type]

    def names(self, name: str) -> bool:
        """Whether the condition's value matches a name, whatever the operator."""
        return _alike(name, self.value)

    def accepts(self, facts: Mapping[str, Any]) -> bool:
        """Whether a video's metadata fit; a video that lacks the key fits only `!=`."""
        fact = facts.get(self.key)
        if fact is None:
            return self.operator == "!="
        values = fact if isinstance(fact, list | tuple) else [fact]
        if self.operator == "!=":
            return not any(_alike(value, self.value) for value in values)
        if self.operator == "=":
            return any(_alike(value, self.value) for value in values)
        return any(_compare(value, self.operator, self.value) for value in values)


def _alike(fact: Any, value: str) -> bool:
    text, (sought, pattern) = folded_name(str(fact)), _pattern(value)
    if text == sought or pattern.match(text):
        return True
    return isinstance(fact, int | float) and fact == _number(value)


@lru_cache(maxsize=256)
def _pattern(value: str) -> tuple[str, re.Pattern[str]]:
    """The folded value, and its pattern, in which only `*` is special."""
    folded = folded_name(value)
    return folded, re.compile(translate(_LITERAL.sub(lambda sign: f"[{sign[1] or sign[0]}]", folded)))


def _number(value: Any) -> float | None:
    """The value as a number, None if it is not one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def _is_finite(number: float | None) -> bool:
    return number is not None and math.isfinite(number)


def _compare(fact: Any, operator: str, value: str) -> bool:
    """Compare texts without case, dates as texts, and finite numbers with finite numbers only."""
    left: Any = _number(fact)
    right: Any = _number(value)
    are_texts = right is None and not _is_finite(left) and not isinstance(fact, int | float)
    are_dates = None in (left, right) and date_of(fact) and date_of(value)
    if are_texts or are_dates:
        left, right = folded_name(str(fact)), _pattern(value)[0]
    elif not (_is_finite(left) and _is_finite(right)):
        return False
    order = (left > right) - (left < right)
    return bool({">": order > 0, "<": order < 0, ">=": order >= 0, "<=": order <= 0}[operator])


@dataclass(frozen=True, slots=True)
class Filter:
    """The videos that may answer; an empty filter allows all.

    `within` holds video ids; `after` (included) and `before` (excluded) are dates of recording.
    """

    within: tuple[str, ...] = ()
    after: datetime | None = None
    before: datetime | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.within or self.after or self.before or self.conditions)

    def choose(self, videos: Iterable[VideoRecord]) -> list[str]:
        """Ids of the videos that fit, in their order."""
        within = set(self.within)
        return [
            video.video_id
            for video in videos
            if (not within or video.video_id in within)
            and self._fits_dates(video)
            and self._fits_facts(video)
        ]

    def parted(self, keys: Collection[str]) -> tuple[Filter, tuple[Condition, ...]]:
        """The filter without its conditions on some keys, and these conditions."""
        removed = tuple(condition for condition in self.conditions if condition.key in keys)
        left = tuple(condition for condition in self.conditions if condition.key not in keys)
        return replace(self, conditions=left), removed

    def notes(self, videos: Sequence[VideoRecord], more: Iterable[str] = ()) -> list[str]:
        """Notes on conditions whose key no video has, with the known keys; `more` are further known keys."""
        listed = sorted({*_ALWAYS, *more, *(key for video in videos for key in video.metadata)})
        keys = dict.fromkeys(condition.key for condition in self.conditions)
        unknown = [key for key in keys if key not in listed]
        others = f" and {len(listed) - _MOST_KEYS} more" if len(listed) > _MOST_KEYS else ""
        fields = ", ".join(listed[:_MOST_KEYS]) + others
        return [f"no video has a field {key!r}; known fields: {fields}" for key in unknown]

    def _fits_dates(self, video: VideoRecord) -> bool:
        if self.after is None and self.before is None:
            return True
        date = recorded_at(video)
        return (self.after is None or date >= self.after) and (self.before is None or date < self.before)

    def _fits_facts(self, video: VideoRecord) -> bool:
        if not self.conditions:
            return True
        check_budget()
        name = re.split(r"[/\\]", video.path)[-1]
        facts = {**video.metadata, "path": video.path, "name": name, "duration": video.duration}
        return all(condition.accepts(facts) for condition in self.conditions)


def recorded_at(video: VideoRecord) -> datetime:
    """When a video was recorded, by its metadata or else by its file's modification time (UTC)."""
    return recorded(video)[0]


def recorded(video: VideoRecord) -> tuple[datetime, str]:
    """The recording date and the metadata key that gave it; "modified": the file's modification time."""
    for key in DATE_KEYS:
        if (date := date_of(video.metadata.get(key))) is not None:
            return date, key
    return datetime.fromtimestamp(video.modified_ns / 1e9, UTC), "modified"


def date_of(value: Any) -> datetime | None:
    """The date that a value of metadata names; None if it names none. The number 2024 is a year."""
    if isinstance(value, int) and 1000 <= value <= 9999:
        value = str(value)
    try:
        return parse_date(value) if isinstance(value, str) else None
    except UsageError:
        return None


def check_dates(facts: Mapping[str, Any], where: str = "") -> None:
    """Raises UsageError if metadata that a user gives hold an unreadable date of recording."""
    for key in DATE_KEYS:
        if (value := facts.get(key)) is not None and date_of(value) is None:
            raise UsageError(
                f"{where}{key}={value!r} is not a date; write 2024, 2024-05-01 or 2024-05-01T13:30"
            )


@dataclass(frozen=True)
class Scope:
    """Options of a search that become a `Filter`: the videos that may answer, as a user names them.

    `within` are videos by id, name or path; `after` (included) and `before` (excluded) are dates of
    recording; `where` are conditions such as "camera=drone*".
    """

    within: str | Sequence[str] = ()
    after: str | datetime | None = None
    before: str | datetime | None = None
    where: str | Sequence[str] = ()


def make_filter(
    within: Sequence[str] = (),
    after: str | datetime | None = None,
    before: str | datetime | None = None,
    where: str | Sequence[str] = (),
) -> Filter:
    """A filter from the user's input; dates without a zone are in UTC. Raises UsageError if malformed."""
    first, last = (None if date is None else parse_date(str(date)) for date in (after, before))
    conditions = [where] if isinstance(where, str) else where
    return Filter(tuple(within), first, last, tuple(map(Condition.parse, conditions)))
