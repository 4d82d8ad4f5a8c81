"""The nouns of moment retrieval. Standard library only; every other room speaks in these."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

Answer = Literal["match", "unsure", "no_match"]


class WhenaboutsError(Exception):
    """A fault that the caller can do something about; the message names the value and the remedy."""


class UsageError(WhenaboutsError, ValueError):
    """A question or an option that cannot be honoured as it was asked."""


def number_of(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun, for messages.

    >>> number_of(1, "query"), number_of(1200, "query"), number_of(2, "video has", "videos have")
    ('1 query', '1,200 queries', '2 videos have')
    """
    several = plural or (noun.removesuffix("y") + "ies" if noun.endswith("y") else noun + "s")
    return f"{count:,} {noun if count == 1 else several}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of an error for an unknown name: the one of `names` that is nearest; "" where none is near.

    >>> did_you_mean("qvhighlights", ["tvr", "qvh"])
    "; did you mean 'qvh'?"
    """
    import difflib

    accepted, low = list(names), name.lower()
    begin = [other for other in accepted if other and (low.startswith(other) or other.startswith(low))]
    near = sorted(begin, key=len)[-1:] if low else []
    near = near or difflib.get_close_matches(low, accepted, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


@dataclass(frozen=True, slots=True)
class Video:
    """An item of the corpus.

    `duration` is float seconds, or None where neither the container nor its packets tell.
    `path` is where the file lay when it was last seen; `metadata` is what its owner says of it.
    """

    id: str
    duration: float | None
    path: str = ""
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not self.id:
            raise UsageError("a video needs an id that is not empty")
        if self.duration is not None and not (math.isfinite(self.duration) and self.duration >= 0):
            raise UsageError(f"video {self.id!r}: duration {self.duration!r} is no length of time in seconds")


@dataclass(frozen=True, slots=True)
class Query:
    """A sentence and the id under which judgements of its answers are filed.

    `metadata` is what its data set says of it besides: the kind of sentence, saliency scores.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), hash=False)


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """A half-open span [start, end) of one video, in float seconds.

    >>> Moment("dinner", 12.5, 20.0).duration
    7.5
    """

    video_id: str
    start: float
    end: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.start) and math.isfinite(self.end)):
            raise UsageError(f"{self.video_id}: {self.start!r}-{self.end!r}: times must be finite seconds")
        if not 0 <= self.start < self.end:
            raise UsageError(
                f"{self.video_id}: {self.start!r}-{self.end!r} is empty, reversed or negative; "
                "a moment needs 0 <= start < end"
            )

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return self.end - self.start

    @property
    def middle(self) -> float:
        """The moment's centre in seconds."""
        return (self.start + self.end) / 2

    def overlap(self, other: Moment) -> float:
        """Shared seconds with `other`; 0 in different videos."""
        if self.video_id != other.video_id:
            return 0.0
        return max(0.0, min(self.end, other.end) - max(self.start, other.start))

    def iou(self, other: Moment) -> float:
        """Temporal intersection over union in [0, 1]; 0 in different videos.

        >>> Moment("a", 0, 10).iou(Moment("a", 5, 15))
        0.3333333333333333
        """
        shared = self.overlap(other)
        return shared / (self.duration + other.duration - shared)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What annotators said of a moment: its relevance, 1 where a data set has no grades."""

    moment: Moment
    relevance: float = 1.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why one stream speaks for a moment.

    `score` is the stream's own number (only its order means anything); `start`, `end` bound the
    strongest place in seconds; `text` is the words found there, empty for pictures. `box` is where in the
    picture it is: left, top, right, bottom as shares of its width and height; None where it is nowhere.
    `recognised` in [0, 1] is how sure a recogniser was of the words on average; None where they were written.
    """

    stream: str
    score: float
    start: float
    end: float
    text: str = ""
    box: tuple[float, float, float, float] | None = None
    recognised: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a model said that looked at a moment a second time (`--check`).

    Whether it `matches`, the `reason` in its own words, and where it would have the moment start and end, in
    seconds; None where it would leave it.
    """

    matches: bool
    reason: str = ""
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True)
class ScoredMoment:
    """A moment that was retrieved.

    `score` orders moments of one query; it may be negative. `confidence` in [0, 1] is the probability that
    the moment is right, None where nothing is known of it. `chance_percentile` in [0, 1] is the share of
    unrelated queries that score lower on this corpus, None where that was not measured. `path` and `title`
    are those of its video where a corpus answered, else empty. `verdict` is what a checker said of it, None
    where none was asked. `says_query`: the query's words are said or
    written there, as they stand.
    """

    moment: Moment
    score: float
    confidence: float | None = None
    chance_percentile: float | None = field(default=None, kw_only=True)
    evidence: Mapping[str, Evidence] = field(default_factory=lambda: MappingProxyType({}))
    text: str = ""
    path: str = ""
    title: str = ""
    verdict: Verdict | None = field(default=None, kw_only=True)
    says_query: bool = field(default=False, kw_only=True)

    @property
    def video_id(self) -> str:
        """The video's id."""
        return self.moment.video_id

    @property
    def start(self) -> float:
        """Where the moment starts, in seconds."""
        return self.moment.start

    @property
    def end(self) -> float:
        """Where the moment ends, in seconds."""
        return self.moment.end

    @property
    def sort_key(self) -> tuple[float, Moment]:
        """Order is total: score descending, then the moment."""
        return (-self.score, self.moment)


Qrels = Mapping[str, Sequence[Judgement]]
Run = Mapping[str, Sequence[ScoredMoment]]
