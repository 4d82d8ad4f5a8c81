"""What narrows a search and what answers it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from whenabouts.search.finder import System
from whenabouts.types import UsageError

if TYPE_CHECKING:
    from whenabouts.checkers.protocol import Checker
    from whenabouts.search.example import Like

MOST_K = 1000
MOST_CHECKED = 50
MOST_PLACES = 10_000
"""Moments that `all` lists at most; those behind are listed with `skip`."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What narrows a search and what answers it: the same for the command line, REST and Python.

    At most `k` moments (10), none with less than `min_confidence`. `within` are videos by id, name or path;
    `streams` leaves only these; `after` (included) and `before` (excluded) are dates of recording; `where`
    are conditions such as "camera=drone*". `model` is a trained system that finds the moments: a folder, a
    hub's name or an object. On first use, and when videos have come or changed, it encodes them.
    `retriever` is another one that chooses the videos for it, in place of the one that a staged run names.
    `segments` (seconds, such as 4) is for long videos: pieces of that length are chosen, and the model
    looks into these. `like` is an example, with or without words beside it: the file of a picture, VIDEO@T,
    VIDEO@START-END, a picture as an array (H, W, 3) of RGB, a `Moment` or an `Example`.
    `all` lists every place where all of the query is said, in order of video and time, from
    the one behind the first `skip` on: all of them up to `MOST_PLACES`, or `k`. `check` is a checker
    (`whenabouts.checkers`), or its name, that looks at the first `check_best` moments once more, within about
    `check_seconds` (`checking.py`).

    Raises UsageError for options that cannot be honoured together.
    """

    k: int | None = None
    within: str | Sequence[str] = ()
    streams: str | Sequence[str] = ()
    min_confidence: float = 0.0
    after: str | datetime | None = None
    before: str | datetime | None = None
    where: str | Sequence[str] = ()
    model: System | None = None
    retriever: System | None = None
    segments: float | None = None
    all: bool = False
    skip: int = 0
    like: Like | None = None
    check: Checker | str | None = None
    check_best: int = 5
    check_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("within", "streams", "where"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        if self.model is not None and self.streams:
            raise UsageError("a trained system searches its own streams; leave out the streams, or the model")
        if self.model is None and self.retriever is not None:
            raise UsageError(
                "a retriever chooses videos for a trained system; name that as well (--model, model=)"
            )
        if self.model is None and self.segments is not None:
            raise UsageError("segments are chosen for a trained system; name that as well (--model, model=)")
        if self.all and (self.model is not None or self.min_confidence):
            raise UsageError(
                "every place where it is said is listed without a trained system and without a least "
                "confidence; leave those out, or --all (all=)"
            )
        if self.like is not None and (self.model is not None or self.all):
            raise UsageError(
                "an example (--like, like=) is compared by streams; neither a trained system nor a list of "
                "all places takes one: leave out --model (model=) and --all (all=), or the example"
            )
        if self.check is not None and self.all:
            raise UsageError(
                "every place where it is said is not checked; leave out the check, or --all (all=)"
            )
        if not 1 <= self.check_best <= MOST_CHECKED:
            raise UsageError(f"check_best is {self.check_best}; check 1 to {MOST_CHECKED} moments")
        if not 0 < self.check_seconds < math.inf:
            raise UsageError(f"check_seconds is {self.check_seconds}; give seconds, more than 0")
        if self.skip < 0 or (self.skip and not self.all):
            raise UsageError(f"skip is {self.skip}; give 0 or more, together with --all (all=)")

    @property
    def count(self) -> int:
        """At most how many moments: `k`, or what it is without one."""
        if self.k is not None:
            return self.k
        return MOST_PLACES if self.all else 10
