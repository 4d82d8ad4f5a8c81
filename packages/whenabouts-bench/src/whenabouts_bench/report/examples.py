"""The report's example queries: each with its judged moments and the runs' answers on time lines.

`worst` and `won_and_lost` choose queries, `examples_of` collects what the page (`page.html.j2`) draws. A good
answer overlaps a judged moment with an IoU of at least `GOOD`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from whenabouts.times import format_time
from whenabouts.types import Video, number_of
from whenabouts_bench.evaluation.matching import NEVER, Mask, Truth, best_iou, judged_moments, pairs_of
from whenabouts_bench.evaluation.protocols import Protocol
from whenabouts_bench.formats.annotations import Annotations, Floats, Indices
from whenabouts_bench.formats.runs import RunSource
from whenabouts_bench.report.diagnosis import (
    CLASSES,
    GOOD,
    GOOD_FIRST,
    NOT_ANSWERED,
    Diagnosis,
    FailureClass,
    listed,
    moments_task,
)

MOST_OF_A_SIDE: Final = 12
"""At most this many queries that one run answers better than the other."""
MOST_OF_A_CLASS: Final = 6
"""At most this many queries of each failure class of a single run."""
FIRST_ROWS: Final = 3
"""Rows of a run's list that the page names for a query."""
MOST_TIMELINES: Final = 3
"""Right videos that are drawn for a query."""
MOST_BARS: Final = 6
"""Answers of a run, or graded moments, that are drawn on a time line."""


@dataclass(frozen=True)
class Row:
    """A row of a run's list. `rank` counts from 1; `iou` is the best one with a judged moment.

    `start` and `end` are seconds, NaN if the run names only the video. If it names no moments at all, `iou`
    is 1 in a right video.
    """

    rank: int
    video_id: str
    start: float
    end: float
    iou: float
    in_right_video: bool

    @property
    def has_span(self) -> bool:
        return self.start < self.end

    @property
    def is_good(self) -> bool:
        """Whether the row overlaps a judged moment enough; in a run of videos, whether its video is right."""
        return self.iou >= GOOD


@dataclass(frozen=True)
class Bar:
    """A coloured bar on a time line. It begins at `at` and is `width` wide, in percent of the axis."""

    at: float
    width: float
    label: str
    description: str
    is_good: bool = False


@dataclass(frozen=True)
class Timeline:
    """The time line of one video of `seconds`: bars for judged moments, and for each run's answers."""

    video_id: str
    seconds: float
    duration_known: bool
    truths: tuple[tuple[Bar, ...], ...]
    """Rows of bars: one row for all judged moments, or one for each if they have grades."""
    answers: tuple[tuple[Bar, ...], ...]

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """(position in percent, time) at round seconds."""
        steps = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 36000)
        step = next((step for step in steps if self.seconds / step <= 5), self.seconds / 4)
        count = int(self.seconds / step + 1e-9)
        return tuple(
            (round(100 * n * step / self.seconds, 3), format_time(n * step, 1).removesuffix(".0"))
            for n in range(count + 1)
        )


@dataclass(frozen=True)
class Answer:
    """One run's answer to the query: its failure class, also in words, and its first rows."""

    failure: FailureClass
    description: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Example:
    """A query of the page, with an answer of each run and the time lines of its right videos."""

    query_id: str
    text: str
    answers: tuple[Answer, ...]
    timelines: tuple[Timeline, ...]
    more_videos: int
    """Right videos without a time line."""


def worst(diagnosis: Diagnosis) -> dict[int, Indices]:
    """Index of a failure class -> positions of its worst queries, the lowest rank first."""
    rank = np.where(diagnosis.good_rank < NEVER, diagnosis.good_rank, diagnosis.video_rank)
    order = np.lexsort((diagnosis.best_iou, -rank))
    chosen = {}
    for number in range(len(CLASSES)):
        if number not in (GOOD_FIRST, NOT_ANSWERED):
            here = order[diagnosis.classes[order] == number]
            chosen[number] = here[:MOST_OF_A_CLASS]
    return {number: queries for number, queries in chosen.items() if len(queries)}


def won_and_lost(
    before: Floats, after: Floats, best_before: Floats, best_after: Floats
) -> tuple[Indices, Indices]:
    """(positions of queries that the second run answers better, and worse), largest differences first.

    `before` and `after` (Q,) are the quality of each run's answers. Ties are ordered by the difference of the
    best IoU, `best_before` and `best_after` (Q,).
    """
    gain = after - before
    overlap = best_after - best_before
    won = np.lexsort((-overlap, -gain))
    lost = np.lexsort((overlap, gain))
    return won[gain[won] > 0], lost[gain[lost] < 0]


def examples_of(
    annotations: Annotations,
    truth: Truth,
    protocol: Protocol,
    runs: Sequence[tuple[RunSource, Diagnosis]],
    positions: Indices,
) -> list[Example]:
    """The examples at some positions of the diagnoses. Reads the blocks of each run again."""
    positives = truth.positives()
    numbers = runs[0][1].queries[positions]
    rows = [_rows_of(source, positives, protocol, diagnosis, positions) for source, diagnosis in runs]
    examples = []
    for place, (position, number) in enumerate(zip(positions.tolist(), numbers.tolist(), strict=True)):
        of_runs = [of_run[place] for of_run in rows]
        timelines, more = _timelines(annotations, positives, number, of_runs)
        query = annotations.queries[number]
        answers = tuple(
            Answer(CLASSES[diagnosis.classes[position]], _describe(diagnosis, position), shown[:FIRST_ROWS])
            for (_, diagnosis), shown in zip(runs, of_runs, strict=True)
        )
        examples.append(Example(query.id, query.text, answers, timelines, more))
    return examples


def _describe(diagnosis: Diagnosis, position: int) -> str:
    rows = int(diagnosis.rows[position])
    if not rows:
        return "no rows"
    good, video = int(diagnosis.good_rank[position]), int(diagnosis.video_rank[position])
    best = f"best IoU {diagnosis.best_iou[position]:.2f}" if diagnosis.names_moments else ""
    if good < NEVER:
        where = f"{'good moment' if diagnosis.names_moments else 'right video'} at rank {good + 1:,}"
    elif video < NEVER:
        where = f"right video at rank {video + 1:,}"
    else:
        where, best = f"right video in none of {number_of(rows, 'row')}", ""
    return ", ".join(part for part in (where, best) if part)


def _rows_of(
    source: RunSource, positives: Truth, protocol: Protocol, diagnosis: Diagnosis, positions: Indices
) -> list[tuple[Row, ...]]:
    """The rows to show at each position: the first, those in right videos, and the first good one."""
    place_of = {int(diagnosis.queries[at]): place for place, at in enumerate(positions.tolist())}
    shown: list[tuple[Row, ...]] = [()] * len(positions)
    for block in source.blocks(moments_task(source)):
        if not any(positives.query_codes.get(name, -1) in place_of for name in block.query_ids):
            continue
        rows = listed(block, positives, protocol)
        first, behind = judged_moments(rows, positives)
        right = first < behind
        best = right.astype(np.float64)
        if diagnosis.names_moments:
            best = best_iou(rows, pairs_of(rows, positives, protocol), protocol.annotators)
        names = [*positives.video_codes, *block.video_ids]
        bounds = np.searchsorted(rows.query, np.arange(len(rows.queries) + 1))
        for local, number in enumerate(rows.queries.tolist()):
            if number not in place_of:
                continue
            of_query = np.arange(bounds[local], bounds[local + 1])
            chosen = of_query[_worth_showing(right[of_query], best[of_query])]
            videos = [names[video] for video in rows.video[chosen].tolist()]
            numbers = (column[chosen].tolist() for column in (rows.start, rows.end, best, right))
            ranks = (rows.rank[chosen] + 1).tolist()
            shown[place_of[number]] = tuple(map(Row, ranks, videos, *numbers))
    return shown


def _worth_showing(right: Mask, best: Floats) -> Indices:
    """Indices of the rows to show of one query's list, ascending; `right` and `best` (N,) are by row."""
    first, good = np.arange(min(FIRST_ROWS, len(best))), np.flatnonzero(best >= GOOD)
    nearest = [best.argmax()] if len(best) and best.max() > 0 else []
    chosen = (first, np.flatnonzero(right)[:FIRST_ROWS], good[:1], nearest)
    return np.unique(np.concatenate(chosen)).astype(np.int64)


def _timelines(
    annotations: Annotations, positives: Truth, number: int, shown: Sequence[tuple[Row, ...]]
) -> tuple[tuple[Timeline, ...], int]:
    """The time lines of a query's most relevant videos, and the number of its other right videos."""
    of_query = positives.query == number
    rows_of_query = np.flatnonzero(of_query)
    best_first = rows_of_query[np.argsort(-positives.relevance[rows_of_query], kind="stable")]
    graded = len(np.unique(positives.relevance)) > 1
    codes = list(dict.fromkeys(positives.video[best_first].tolist()))
    drawn = (
        _timeline(
            annotations.videos[code], positives.where(of_query & (positives.video == code)), graded, shown
        )
        for code in codes[:MOST_TIMELINES]
    )
    return tuple(drawn), max(len(codes) - MOST_TIMELINES, 0)


def _timeline(video: Video, judged: Truth, graded: bool, rows: Sequence[tuple[Row, ...]]) -> Timeline:
    columns = (judged.start.tolist(), judged.end.tolist(), judged.relevance.tolist())
    spans = [span for span in zip(*columns, strict=True) if span[0] < span[1]]
    here = [
        [row for row in of_run if row.video_id == video.id and row.has_span][:MOST_BARS] for of_run in rows
    ]
    ends = [end for _, end, _ in spans] + [row.end for of_run in here for row in of_run]
    # If a span ends after its video, the axis is extended.
    seconds = max([video.duration or 0.0, *ends]) or 1.0
    truths = _judged(spans, seconds, graded)
    answers = tuple(
        tuple(
            _bar(r.start, r.end, seconds, f"{r.rank}", f"rank {r.rank}, IoU {r.iou:.2f}", r.is_good)
            for r in of_run
        )
        for of_run in here
    )
    return Timeline(video.id, seconds, bool(video.duration), truths, answers)


def _judged(
    spans: Sequence[tuple[float, float, float]], seconds: float, graded: bool
) -> tuple[tuple[Bar, ...], ...]:
    """Rows of bars for (start, end, grade) spans; each graded span gets a row, because they may overlap."""
    if graded:
        labels = (f"grade {grade:g}" for *_, grade in spans)
        return tuple(
            (_bar(start, end, seconds, label, f"judged, {label}"),)
            for (start, end, _), label in zip(spans[:MOST_BARS], labels, strict=False)
        )
    label = "judged" if len(spans) == 1 else ""
    return (tuple(_bar(start, end, seconds, label, "judged") for start, end, _ in spans),)


def _bar(start: float, end: float, seconds: float, label: str, what: str, is_good: bool = False) -> Bar:
    at = min(max(100 * start / seconds, 0.0), 100.0)
    width = min(100 * (end - start) / seconds, 100.0 - at)
    described = f"{what}: {format_time(start, 1)}–{format_time(end, 1)}"
    return Bar(round(at, 3), round(width, 3), label, described, is_good)
