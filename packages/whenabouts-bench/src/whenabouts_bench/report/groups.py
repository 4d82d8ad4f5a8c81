"""Group queries: by length, position and number of their moments, by number of words, by label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whenabouts_bench.evaluation.matching import Truth
from whenabouts_bench.formats.annotations import Annotations, Floats, Indices

# The least value of each group; queries with fewer positives than the least have none.
SECONDS: Final = (0.0, 5.0, 10.0, 20.0, 40.0, 80.0)
WORDS: Final = (0, 6, 11, 16, 21)
POSITIVES: Final = (1, 2, 3, 4, 6, 11, 21)
FIFTHS: Final = ("first fifth", "second fifth", "third fifth", "fourth fifth", "last fifth")
MOST_LABELS: Final = 12
"""The limit of labels in a grouping; rarer ones are merged."""


@dataclass(frozen=True)
class Grouping:
    """Queries grouped by one property; `members` (Q,) are indices of `labels`."""

    title: str
    what: str
    """A phrase, with braces where a label goes: "moments of {}"."""
    labels: tuple[str, ...]
    members: Indices

    def counts(self) -> Indices:
        """(G,) queries per label."""
        return np.bincount(self.members, minlength=len(self.labels)).astype(np.int64)

    def means(self, values: NDArray[Any]) -> Floats:
        """(G,) mean of a value over the queries of each label."""
        sums = np.bincount(self.members, weights=values, minlength=len(self.labels))
        return sums / np.maximum(self.counts(), 1)

    def table(self, classes: Indices, width: int) -> Indices:
        """(G, `width`) queries per label and class."""
        cells = np.bincount(self.members * width + classes, minlength=len(self.labels) * width)
        return cells.reshape(len(self.labels), width).astype(np.int64)


@dataclass(frozen=True)
class QueryProperties:
    """Properties of queries, independent of the answers; all are (Q,).

    `length` and `middle` (seconds) belong to the most relevant positive (ties: the first), `duration` to its
    video; they are NaN for a query without positives. `length` is 0 if the positive has no span.
    """

    words: Indices
    positives: Indices
    length: Floats
    middle: Floats
    duration: Floats


def properties_of(annotations: Annotations, truth: Truth, queries: Indices) -> QueryProperties:
    """The properties of `queries`, rows of the truth's queries, which are those of `annotations` in order."""
    positives = truth.positives()
    order = np.lexsort((-positives.relevance, positives.query))
    answered, at = np.unique(positives.query[order], return_index=True)
    row = np.full(len(truth.query_ids), len(order))
    row[answered] = order[at]
    durations = [np.nan if video.duration is None else video.duration for video in annotations.videos]

    def of_first(values: Floats) -> Floats:
        return np.asarray(np.append(values, np.nan)[row[queries]])

    return QueryProperties(
        words=np.array([len(query.text.split()) for query in annotations.queries], np.int64)[queries],
        positives=np.bincount(positives.query, minlength=len(truth.query_ids))[queries],
        length=of_first(positives.end - positives.start),
        middle=of_first((positives.start + positives.end) / 2),
        duration=of_first(np.array(durations, np.float64)[positives.video]),
    )


def groupings(properties: QueryProperties, given: Mapping[str, Sequence[str]]) -> tuple[Grouping, ...]:
    """All groupings of the queries, without unused labels; `given` are labels from the data set."""
    return (
        *(by_label(name, labels) for name, labels in given.items()),
        by_moment_length(properties.length),
        by_query_length(properties.words),
        by_position(properties.middle, properties.duration),
        by_positives(properties.positives),
    )


def by_moment_length(length: Floats) -> Grouping:
    """Queries grouped by the length of their most relevant positive, in seconds."""
    between = (f"{a:g}–{b:g} s" for a, b in pairwise(SECONDS[1:]))
    names = (f"under {SECONDS[1]:g} s", *between, f"{SECONDS[-1]:g} s and more")
    members = np.searchsorted(SECONDS, length, "right") - 1
    return _by_class("Moment length", "moments of {}", names, members, length > 0, "no length")


def by_query_length(words: Indices) -> Grouping:
    """Queries grouped by their number of words."""
    names = (*(f"{a}–{b - 1} words" for a, b in pairwise((1, *WORDS[1:]))), f"{WORDS[-1]} words and more")
    members = np.searchsorted(WORDS, words, "right") - 1
    return _by_class("Query length", "queries of {}", names, members, words > 0, "no words")


def by_position(middle: Floats, duration: Floats) -> Grouping:
    """Queries grouped by the position of their most relevant positive's middle in its video."""
    is_placed = np.isfinite(duration) & np.isfinite(middle) & (duration > 0)
    share = np.divide(middle, duration, out=np.zeros(len(middle)), where=is_placed)
    members = np.clip((share * len(FIFTHS)).astype(np.int64), 0, len(FIFTHS) - 1)
    title, what = "Position in the video", "moments in the {} of the video"
    return _by_class(title, what, FIFTHS, members, is_placed, "unknown part")


def by_positives(positives: Indices) -> Grouping:
    """Queries grouped by their number of positives."""
    several = (f"{a}" if b == a + 1 else f"{a}–{b - 1}" for a, b in pairwise(POSITIVES[1:]))
    last = f"{POSITIVES[-1]} positives and more"
    names = ("no positive", "1 positive", *(f"{name} positives" for name in several), last)
    members = np.searchsorted(POSITIVES, positives, "right").astype(np.int64)
    return _shown("Positives of the query", "queries with {}", names, members)


def _by_class(
    title: str,
    what: str,
    names: Sequence[str],
    members: NDArray[Any],
    has_class: NDArray[np.bool_],
    none: str,
) -> Grouping:
    """Queries grouped by indices of `names`; `none` labels queries without a class."""
    return _shown(title, what, (*names, none), np.where(has_class, members, len(names)).astype(np.int64))


def by_label(name: str, labels: Sequence[str]) -> Grouping:
    """Queries grouped by labels of the data set, sorted."""
    distinct, members, counts = np.unique(
        np.array(labels, dtype=np.str_), return_inverse=True, return_counts=True
    )
    names = tuple(str(label) or "none" for label in distinct)
    members = members.reshape(-1)
    if len(names) > MOST_LABELS:
        kept = np.sort(np.argsort(-counts, kind="stable")[: MOST_LABELS - 1])
        place = np.full(len(names), len(kept), np.int64)
        place[kept] = np.arange(len(kept))
        names = (*(names[at] for at in kept), "all others")
        members = place[members]
    return _shown(f"Query {name}", f"queries of {name} {{}}", names, members)


def _shown(title: str, what: str, labels: Sequence[str], members: Indices) -> Grouping:
    """A grouping with the labels that some query has."""
    used = np.unique(members)
    return Grouping(
        title, what, tuple(labels[at] for at in used), np.searchsorted(used, members).astype(np.int64)
    )
