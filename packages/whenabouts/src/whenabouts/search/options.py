"""What narrows a search and what answers it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whenabouts.checkers.protocol import CheckChoice
from whenabouts.checkers.reranker import RerankChoice
from whenabouts.checkers.rewriter import RewriteChoice
from whenabouts.index.filters import Scope
from whenabouts.search.finder import ModelChoice
from whenabouts.search.places import PlaceList
from whenabouts.search.questions import EVERY_RULE, RULES
from whenabouts.types import UsageError

if TYPE_CHECKING:
    from whenabouts.search.example import Like

MOST_K = 1000
MOST_CHECKED = 50
MOST_PLACES = 10_000
"""Moments that `all` lists at most; those behind are listed with `skip`."""


@dataclass(frozen=True)
class SearchOptions(Scope, ModelChoice, PlaceList, CheckChoice, RerankChoice, RewriteChoice):
    """What narrows a search and what answers it: the same for the command line, REST and Python.

    At most `k` moments, none with less than `min_confidence`; `best` is `k` where neither it nor `all` is
    given. `streams` leaves only these. `like` is an example, with or without words beside it: the file of a
    picture, VIDEO@T, VIDEO@START-END, a picture as an array (H, W, 3) of RGB, a `Moment` or an `Example`.
    `literal` names rules of `questions.py` that are off ("all": every rule), so that their words are searched
    as they stand. All other options are those of the classes above, each beside the code that reads it.

    Raises UsageError for options that cannot be honoured together.
    """

    k: int | None = None
    streams: str | Sequence[str] = ()
    min_confidence: float = 0.0
    like: Like | None = None
    literal: str | Sequence[str] = ()
    best: int = 10

    def __post_init__(self) -> None:
        for name in ("within", "streams", "where", "literal"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        if unknown := set(self.literal) - {*RULES, EVERY_RULE}:
            names = ", ".join((*RULES, EVERY_RULE))
            raise UsageError(f"literal is {min(unknown)[:50]!r}; name rules: {names}")
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
        if self.all and (self.rerank is not None or self.rewrite is not None):
            raise UsageError(
                "every place where your words are said is listed in order of time; leave out the reranker "
                "and the rewriter, or --all (all=)"
            )
        for name in ("rerank_seconds", "rewrite_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} is {getattr(self, name)}; give seconds, more than 0")
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
        return MOST_PLACES if self.all else self.best
