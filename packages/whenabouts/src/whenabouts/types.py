"""The core types of moment retrieval, used by all rooms. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from whenabouts.lines import one_line

Answer = Literal["match", "unsure", "no_match"]

LONGEST_SECONDS = 31 * 86_400.0
"""A month: no recording is longer. Greater times come from damaged headers and slips of the keyboard."""


class WhenaboutsError(Exception):
    """An error that the caller can fix; the message names the value and the remedy.

    Parts of it may come from files and libraries, so its text is always one line of at most 2,000 characters.
    """

    def __str__(self) -> str:
        text = super().__str__()
        text = text if text.isprintable() else one_line(text)
        # The remedy is at the end.
        return text if len(text) <= 2000 else f"{text[:1400]} … {text[-597:]}"


class UsageError(WhenaboutsError, ValueError):
    """An invalid question or option."""


def number_of(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun, for messages.

    >>> number_of(1, "query"), number_of(1200, "query"), number_of(2, "video has", "videos have")
    ('1 query', '1,200 queries', '2 videos have')
    """
    several = plural or (noun.removesuffix("y") + "ies" if noun.endswith("y") else noun + "s")
    return f"{count:,} {noun if count == 1 else several}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of an error for an unknown name: the nearest of `names`; "" without a near one.

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

    `duration` is in seconds, None if neither the container nor its packets state it. `path` is where the file
    was last seen; `metadata` come from its owner.
    """

    id: str
    duration: float | None
    path: str = ""
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    def __post_init__(self) -> None:
        if not self.id:
            raise UsageError("a video needs an id that is not empty")
        if self.duration is not None and not (math.isfinite(self.duration) and self.duration >= 0):
            raise UsageError(f"video {self.id!r}: duration {self.duration!r} is not a number of seconds")


@dataclass(frozen=True, slots=True)
class Query:
    """A sentence to search for; `id` links it to its judgements in `Qrels`.

    `metadata` are other facts from its data set, such as the kind of sentence or saliency scores.
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
        is_finite = math.isfinite(self.start) and math.isfinite(self.end)
        if is_finite and 0 <= self.start < self.end:
            return
        named = self.video_id if self.video_id.isprintable() else repr(self.video_id)
        problem = (
            " is empty, reversed or negative; a moment needs 0 <= start < end"
            if is_finite
            else ": times must be finite seconds"
        )
        raise UsageError(f"{named}: {round(self.start, 3)}-{round(self.end, 3)}{problem}")

    @property
    def duration(self) -> float:
        return self.end - self.start

    @property
    def name(self) -> str:
        """VIDEO@START-END to the millisecond, as commands and requests name a moment."""
        return f"{self.video_id}@{self.start:.3f}-{self.end:.3f}"

    @property
    def middle(self) -> float:
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
    """An annotator's grade of relevance for a moment; 1 in data sets without grades."""

    moment: Moment
    relevance: float = 1.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """A stream's evidence for a moment.

    `score` is the stream's score (only its order matters); `start`, `end` bound the strongest place in
    seconds; `text` is the words found there, "" for pictures. `box` is its place in the picture: left, top,
    right, bottom as shares of width and height; None without one. `recognised` in [0, 1] is a recogniser's
    mean certainty of the words; None for written words.
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
    """A checker's verdict on a moment (`--check`).

    `matches` says whether the moment answers the query, `reason` is the checker's explanation. `start` and
    `end` are better borders in seconds; None keeps the present ones.
    """

    matches: bool
    reason: str = ""
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Reranked:
    """A reranker's `score` of a moment (`--rerank`), and the rank that the search gave it."""

    score: float
    rank_before: int


@dataclass(frozen=True, slots=True)
class ScoredMoment:
    """A retrieved moment.

    - `score`: orders the moments of one query; may be negative.
    - `confidence`: the probability in [0, 1] that the moment is right, None if unknown.
    - `chance_percentile`: the share of unrelated queries that score lower on this corpus, None if unmeasured.
    - `path`, `title`: those of its video if a corpus answered, else "".
    - `verdict`: a checker's verdict, None without a check.
    - `says_query`: the query's words are said or written there literally.
    - `partner`: if the query asks for two events in order, the moment of the other one.
    - `reranked`: a reranker's score and the rank before, None without one.
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
    partner: Moment | None = field(default=None, kw_only=True)
    reranked: Reranked | None = field(default=None, kw_only=True)

    @property
    def video_id(self) -> str:
        return self.moment.video_id

    @property
    def start(self) -> float:
        return self.moment.start

    @property
    def end(self) -> float:
        return self.moment.end

    @property
    def sort_key(self) -> tuple[float, Moment]:
        """Total order: score descending, then the moment."""
        return (-self.score, self.moment)


Qrels = Mapping[str, Sequence[Judgement]]
Run = Mapping[str, Sequence[ScoredMoment]]
