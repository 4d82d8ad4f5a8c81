"""The options of a search."""

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
"""Most moments that `all` lists; `skip` lists later ones."""


@dataclass(frozen=True)
class SearchOptions(Scope, ModelChoice, PlaceList, CheckChoice, RerankChoice, RewriteChoice):
    """Options of a search, the same for the command line, REST and Python.

    At most `k` moments are returned (without `k` or `all`: `best`), none below `min_confidence`. `streams`
    limits the search to these. `like` is an example, with or without words: a picture's file, VIDEO@T,
    VIDEO@START-END, a picture as an array (H, W, 3) of RGB, a `Moment` or an `Example`. `literal` names rules
    of `questions.py` to turn off ("all": every rule); their words are then searched literally. The other
    options are those of the base classes, each next to the code that reads it.

    Raises UsageError for options that contradict each other.
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
                "a retriever chooses videos for a trained system; also name that (--model, model=)"
            )
        if self.model is None and self.segments is not None:
            raise UsageError("segments are for a trained system; also name that (--model, model=)")
        if self.all and (self.model is not None or self.min_confidence):
            raise UsageError(
                "a list of all places works without a trained system and without a minimum confidence; "
                "leave those out, or --all (all=)"
            )
        if self.like is not None and (self.model is not None or self.all):
            raise UsageError(
                "an example (--like, like=) works with neither a trained system nor a list of all "
                "places; leave out --model (model=) and --all (all=), or the example"
            )
        if self.check is not None and self.all:
            raise UsageError("a list of all places is not checked; leave out the check, or --all (all=)")
        if self.all and (self.rerank is not None or self.rewrite is not None):
            raise UsageError(
                "a list of all places is in order of time; leave out the reranker and the rewriter, or --all "
                "(all=)"
            )
        for name in ("rerank_seconds", "rewrite_seconds", "check_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} is {getattr(self, name)}; give seconds, more than 0")
        if not 1 <= self.check_best <= MOST_CHECKED:
            raise UsageError(f"check_best is {self.check_best}; check 1 to {MOST_CHECKED} moments")
        if self.skip < 0 or (self.skip and not self.all):
            raise UsageError(f"skip is {self.skip}; give 0 or more, together with --all (all=)")

    @property
    def count(self) -> int:
        """The most moments to return: `k`, or its default."""
        if self.k is not None:
            return self.k
        return MOST_PLACES if self.all else self.best
