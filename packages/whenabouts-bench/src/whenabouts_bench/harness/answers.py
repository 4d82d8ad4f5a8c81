"""Check a system's answers and turn them into a run.

A system is not trusted: malformed rows raise an error with the query and what is accepted, because a misread
row would give a wrong number that looks right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whenabouts.types import UsageError
from whenabouts_bench.formats.annotations import Floats
from whenabouts_bench.formats.bench_results import BenchRun
from whenabouts_bench.formats.runs import RunBlock, RunBlockBuilder, RunRow
from whenabouts_bench.harness.system import BenchQuery

_ROW = "(video id, start, end, score) or (video id, start, end, score, probability), 0 <= start < end"
_VIDEO = "(video id, score) or (video id, score, probability)"


@dataclass(frozen=True)
class Answered(BenchRun):
    """The answers of a system to the queries of a task.

    `probability` (per query) belongs to the first row of the first list, if the system states it.
    """

    probability: Mapping[str, float] = field(default_factory=dict)


def block_of(
    queries: Sequence[BenchQuery], answers: Any, depth: int, *, of_videos: bool, named: str
) -> tuple[RunBlock, dict[str, float]]:
    """The rows of a list, best first, and the probability of each query's first row.

    At most `depth` rows of a query are kept; rows outside `BenchQuery.videos` are dropped. Raises UsageError
    for malformed rows.
    """
    builder, probabilities = RunBlockBuilder(), dict[str, float]()
    for query, rows in zip(queries, lists_of(queries, answers, named), strict=True):
        checked = [_checked(query, row, of_videos=of_videos, named=named) for row in rows]
        allowed = frozenset(query.videos)
        kept = [row for row in checked if not allowed or row[0][0] in allowed]
        kept.sort(key=lambda row: (-row[0][3], row[0][0], row[0][1], row[0][2]))
        if kept:  # a query without a row is missing from the run
            builder.add(query.id, [row for row, _ in kept[:depth]])
            if (probability := kept[0][1]) is not None:
                probabilities[query.id] = probability
    return builder.block(), probabilities


def lists_of(queries: Sequence[BenchQuery], answers: Any, named: str) -> Sequence[Iterable[Any]]:
    """A system's answers, if they are a list of rows for each query; else raises UsageError."""
    if not isinstance(answers, Sequence) or len(answers) != len(queries):
        returned = f"{len(answers)} lists" if isinstance(answers, Sequence) else type(answers).__name__
        raise UsageError(
            f"{named}: returns {returned} for {len(queries)} queries; accepted: one list for each"
        )
    for query, rows in zip(queries, answers, strict=True):
        if not isinstance(rows, Iterable):
            raise UsageError(f"{named}: query {query.id!r}: returns {rows!r}; accepted: a list of rows")
    return answers


def _checked(query: BenchQuery, row: Any, *, of_videos: bool, named: str) -> tuple[RunRow, float | None]:
    """A row of a run, and its probability."""
    accepted, width = (_VIDEO, 2) if of_videos else (_ROW, 4)
    try:
        video, *numbers = row
        values = [float(number) for number in numbers]
        fits = isinstance(video, str) and bool(video) and len(values) in (width - 1, width)
        fits = fits and all(map(math.isfinite, values))
    except (TypeError, ValueError, OverflowError):
        fits, values, video = False, [], ""
    probability = values[width - 1] if fits and len(values) == width else None
    start, end = (math.nan, math.nan) if of_videos else (values[0], values[1]) if fits else (0.0, 0.0)
    fits = fits and (of_videos or 0 <= start < end) and (probability is None or 0 <= probability <= 1)
    if not fits:
        shown = repr(row)
        raise UsageError(
            f"{named}: query {query.id!r}: {shown[:80] + '…' * (len(shown) > 80)} is not a row; "
            f"accepted: {accepted}"
        )
    return (video, start, end, values[width - 2]), probability


def scores_of_clips(queries: Sequence[BenchQuery], scores: Any, named: str) -> list[dict[str, Floats]]:
    """Per query, the scores of the clips (of two seconds) of each video, (T,) each.

    Raises UsageError for anything else, and for a score that is not finite.
    """
    accepted = (
        f"accepted: for each of {len(queries)} queries {{video id: scores of its clips}}, finite numbers"
    )
    if not isinstance(scores, Sequence) or len(scores) != len(queries):
        raise UsageError(f"{named}: returns {type(scores).__name__}; {accepted}")
    checked = []
    for query, of_query in zip(queries, scores, strict=True):
        try:
            videos = {str(video): np.asarray(clips, np.float64) for video, clips in of_query.items()}
        except (AttributeError, TypeError, ValueError):
            raise UsageError(f"{named}: query {query.id!r}: {type(of_query).__name__}; {accepted}") from None
        if not all(clips.ndim == 1 and np.isfinite(clips).all() for clips in videos.values()):
            raise UsageError(
                f"{named}: query {query.id!r}: scores that are not (T,) finite numbers; {accepted}"
            )
        checked.append(videos)
    return checked


def videos_of_clips(scores: Sequence[Mapping[str, Floats]]) -> list[list[tuple[str, float]]]:
    """Per query, each video with the score of its best clip."""
    return [
        [(video, float(clips.max())) for video, clips in of_query.items() if len(clips)]
        for of_query in scores
    ]


def clips_of_given(
    queries: Sequence[BenchQuery], scores: Sequence[Mapping[str, Floats]]
) -> dict[str, Floats]:
    """Query id -> scores of the clips of its only video."""
    return {
        query.id: of_query[query.videos[0]]
        for query, of_query in zip(queries, scores, strict=True)
        if len(query.videos) == 1 and query.videos[0] in of_query
    }
