"""Metrics: parse their names and compute values per query; `MEASURES` has a row and function for each.

Names are "R@10,IoU=0.5", "R@1,IoU=0.5,grade>=3", "SVMR R@1,IoU=0.7", "VR R@100", "nDCG@20,IoU=0.7", "mAP".
Functions return (B,) fractions in [0, 1], one per query of a block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from whenabouts.overlap import place_in_group
from whenabouts.types import UsageError
from whenabouts_bench.evaluation import highlights
from whenabouts_bench.evaluation.matching import (
    MOST_GRADE,
    Mask,
    Pairs,
    Rows,
    Truth,
    best_iou,
    first_ranks,
    inside_pools,
    judged_moments,
    matched_one_to_one,
    pairs_of,
    passes,
)
from whenabouts_bench.evaluation.protocols import Protocol
from whenabouts_bench.formats.annotations import Floats, Indices
from whenabouts_bench.formats.runs import Task

LENGTHS: dict[str, tuple[float, float]] = {"short": (0, 10), "middle": (10, 30), "long": (30, 150)}
"""Classes of moment lengths in seconds, (exclusive minimum, inclusive maximum] (QVHighlights)."""
MEAN_IOUS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""The thresholds over which mAP is averaged."""

_SHAPE = re.compile(
    r"(?:(?P<task>VCMR|SVMR|VMR|VR|HL)\s+)?(?P<measure>[A-Za-z]+)(?:@(?P<k>\d+))?"
    r"(?P<settings>(?:\s*,\s*[A-Za-z]+\s*>?=\s*[^,\s]+)*)",
    re.IGNORECASE,
)
_SETTING = re.compile(r"([A-Za-z]+)\s*(>?=)\s*([^,\s]+)")
_SETTINGS = {
    "k": "a rank",
    "iou": "an IoU",
    "length": "a length",
    "saliency": "a saliency",
    "grade": "a grade",
}
_SYNONYMS = {"recall": "r", "VMR": "SVMR"}
_MOST = {"iou": 1.0, "saliency": 4.0, "grade": float(MOST_GRADE)}

Gains = tuple[Indices, Indices, Floats]
"""Query, rank and gain of some rows."""


@dataclass(frozen=True)
class Metric:
    """A metric as its name states it.

    `task` is the list of the run that it reads, or HL for clip scores. `k` is its depth (None: unlimited),
    `iou` the minimal overlap of a hit (None if not applicable, or for the mean over 0.5, 0.55 ... 0.95),
    `length` a class of judged moments, `saliency` the minimal grade of a clip, `grade` that of a right moment
    (None: the protocol's, which is any above 0 by default).
    """

    measure: str
    task: Task | Literal["HL"] = "VCMR"
    k: int | None = None
    iou: float | None = None
    length: str | None = None
    saliency: int | None = None
    grade: float | None = None

    @property
    def name(self) -> str:
        task = "" if self.task == "VCMR" else f"{self.task} "
        depth = "" if self.k is None else f"@{self.k}"
        settings = {"IoU": self.iou, "length": self.length, "saliency": self.saliency}
        written = "".join(f",{key}={value}" for key, value in settings.items() if value is not None)
        level = "" if self.grade is None else f",grade>={self.grade:g}"
        return f"{task}{self.measure}{depth}{written}{level}"

    @property
    def depth(self) -> int | None:
        """The number of rows that it reads; None: all."""
        return 1 if self.row.first_only else self.k

    @property
    def row(self) -> Measure:
        return next(row for row in MEASURES if row.name == self.measure and self.task in row.tasks)


class Listing:
    """A task's rows and the judged moments that count, with values shared by several metrics."""

    def __init__(self, rows: Rows, truth: Truth, protocol: Protocol) -> None:
        self.rows, self.truth, self.protocol = rows, truth, protocol
        self._first_hits: dict[float, Indices] = {}
        self._matched: dict[float, Indices] = {}

    @property
    def queries(self) -> int:
        """The number B of queries."""
        return len(self.rows.queries)

    @cached_property
    def pairs(self) -> Pairs:
        """Each row with each judged moment of its query and video."""
        return pairs_of(self.rows, self.truth, self.protocol)

    @cached_property
    def best(self) -> NDArray[Any]:
        """(N,) the highest IoU of each row with a judged moment, or with enough annotators' spans."""
        return best_iou(self.rows, self.pairs, self.protocol.annotators)

    @cached_property
    def first_right_video(self) -> Indices:
        """(B,) rank of the first row in a video with a judged moment."""
        first, behind = judged_moments(self.rows, self.truth)
        return first_ranks(self.rows, behind > first)

    @cached_property
    def by_score(self) -> Listing:
        """The same rows in the order in which the protocol's mAP reads them."""
        return Listing(self.rows.by_score(), self.truth, self.protocol) if self.protocol.by_score else self

    @cached_property
    def gains(self) -> Floats:
        """(M,) the gain of each judged moment."""
        relevance = self.truth.relevance
        return relevance if self.protocol.gain == "linear" else np.exp2(relevance) - 1

    @cached_property
    def ideal(self) -> Gains:
        """The gains of the judged moments in the ideal order."""
        local = np.full(len(self.truth.query_ids), -1)
        local[self.rows.queries] = np.arange(self.queries)
        query = local[self.truth.query]
        here = np.flatnonzero(query >= 0)
        here = here[np.lexsort((-self.gains[here], query[here]))]
        rank = place_in_group(query[here])
        return query[here], rank, self.gains[here]

    def matched(self, iou: float) -> Indices:
        """(N,) the judged moment that each row takes, or -1."""
        if iou not in self._matched:
            enough = passes(self.pairs.iou, iou, self.protocol)
            self._matched[iou] = matched_one_to_one(self.rows.rank, self.pairs, enough)
        return self._matched[iou]

    def gained(self, iou: float) -> Gains:
        """The gains of the rows that match a judged moment."""
        hit = np.flatnonzero(self.matched(iou) >= 0)
        return self.rows.query[hit], self.rows.rank[hit], self.gains[self.matched(iou)[hit]]

    def first_hit(self, iou: float) -> Indices:
        """(B,) rank of the first row that overlaps a judged moment enough."""
        if iou not in self._first_hits:
            self._first_hits[iou] = first_ranks(self.rows, passes(self.best, iou, self.protocol))
        return self._first_hits[iou]


def recall(listing: Listing, metric: Metric) -> Floats:
    """R@K: whether one of the first K rows overlaps a judged moment enough."""
    return (listing.first_hit(cast(float, metric.iou)) < cast(int, metric.k)).astype(np.float64)


def recall_of_videos(listing: Listing, metric: Metric) -> Floats:
    """VR R@K: whether one of the first K videos has a judged moment."""
    return (listing.first_right_video < cast(int, metric.k)).astype(np.float64)


def mean_iou(listing: Listing, metric: Metric) -> Floats:
    """The best IoU of the first row with a judged moment; 0 without a row."""
    values = np.zeros(listing.queries)
    leads = listing.rows.rank == 0
    values[listing.rows.query[leads]] = listing.best[leads]
    return values


def ndcg(listing: Listing, metric: Metric) -> Floats:
    """nDCG@K (equation 1 of the TVR-Ranking paper, discount log2(rank + 1), 1-based rank).

    Without a grade above 0 the value is 0.
    """
    real, best = (
        discounted(*gains, cast(int, metric.k), listing.queries) for gains in gains_of(listing, metric)
    )
    return np.divide(real, best, out=np.zeros(listing.queries), where=best > 0)


def gains_of(listing: Listing, metric: Metric) -> tuple[Gains, Gains]:
    """The gains of the rows, and of the ideal order of all that was judged of the queries.

    Rows are matched with judged moments one to one. For VR, the gain of a video is that of its most relevant
    judgement, at its first row.
    """
    if metric.task != "VR":
        return listing.gained(cast(float, metric.iou)), listing.ideal
    once = listing.truth.where(np.diff(listing.truth.key, prepend=-1) != 0)  # most relevant first in a video
    videos = Listing(listing.rows, once, listing.protocol)
    first, behind = judged_moments(videos.rows, once)
    hit = np.flatnonzero(behind > first)
    hit = hit[np.sort(np.unique(first[hit], return_index=True)[1])]
    return (videos.rows.query[hit], videos.rows.rank[hit], videos.gains[first[hit]]), videos.ideal


def discounted(query: Indices, rank: Indices, gain: Floats, k: int, queries: int) -> Floats:
    """(B,) DCG@K of each query."""
    weighted = gain / np.log2(rank + 2)
    return np.bincount(query[rank < k], weighted[rank < k], queries).astype(np.float64)


def average_precision(listing: Listing, metric: Metric, also: Mask | None = None) -> Floats:
    """AP as in detection: one-to-one matching, interpolated precision; the mean over thresholds.

    With K, only the first K rows count. Queries without a judged moment have 0. Rows in `also` (N,) count as
    right, each with a judged moment of its own.
    """
    listing = listing.by_score
    rows, truth = listing.rows, listing.truth
    positives = np.bincount(truth.query, minlength=len(truth.query_ids))[rows.queries]
    if also is not None:
        positives = positives + np.bincount(rows.query[also], minlength=listing.queries)
    total = np.zeros(listing.queries)
    thresholds = MEAN_IOUS if metric.iou is None else (metric.iou,)
    for threshold in thresholds:
        right = listing.matched(threshold) >= 0
        right = right if also is None else right | also
        hits = np.flatnonzero(right if metric.k is None else right & (rows.rank < metric.k))
        total += _interpolated(rows.query[hits], rows.rank[hits], listing.queries)
    return np.divide(total / len(thresholds), positives, out=np.zeros(len(total)), where=positives > 0)


def _interpolated(query: Indices, rank: Indices, queries: int) -> Floats:
    """(B,) sum over the hits of a query of the highest precision at that hit or later."""
    if not len(query):
        return np.zeros(queries)
    number = place_in_group(query)
    precision = np.zeros((queries, int(number.max()) + 1))
    precision[query, number] = (number + 1) / (rank + 1)
    later = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    return np.bincount(query, later[query, number], queries).astype(np.float64)


@dataclass(frozen=True)
class Measure:
    """A kind of metric: its tasks, required and optional settings, and function.

    `value` takes a `Listing` and the metric, for the task HL the `Highlights` of all queries and the minimal
    saliency. `graded`: moments of grade 0 take part. `first_only`: K can only be 1.
    """

    name: str
    tasks: tuple[str, ...]
    example: str
    value: Callable[[Any, Any], Floats]
    needs: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()
    graded: bool = False
    first_only: bool = False


_MOMENTS = ("VCMR", "SVMR")
MEASURES = (
    Measure("R", _MOMENTS, "R@10,IoU=0.5", recall, frozenset({"k", "iou"}), frozenset({"length", "grade"})),
    Measure("R", ("VR",), "VR R@100", recall_of_videos, frozenset({"k"}), frozenset({"grade"})),
    Measure("nDCG", ("VR",), "VR nDCG@10", ndcg, frozenset({"k"}), graded=True),
    Measure("nDCG", _MOMENTS, "nDCG@20,IoU=0.7", ndcg, frozenset({"k", "iou"}), graded=True),
    Measure(
        "mAP", _MOMENTS, "mAP,IoU=0.5", average_precision, takes=frozenset({"k", "iou", "length", "grade"})
    ),
    Measure("mIoU", _MOMENTS, "mIoU", mean_iou, takes=frozenset({"k", "grade"}), first_only=True),
    Measure("mAP", ("HL",), "HL mAP,saliency=4", highlights.average_precision, frozenset({"saliency"})),
    Measure(
        "Hit",
        ("HL",),
        "HL Hit@1,saliency=4",
        highlights.hit_at_one,
        frozenset({"k", "saliency"}),
        first_only=True,
    ),
)
_EXAMPLES = ("SVMR R@1,IoU=0.7", "R@1,IoU=0.5,grade>=3", *(row.example for row in MEASURES))
ACCEPTED = ", ".join(f'"{example}"' for example in _EXAMPLES)


def parse_metric(text: str) -> Metric:
    """The metric of a name; case and blanks are ignored.

    >>> parse_metric("svmr r@5, iou=0.7").name
    'SVMR R@5,IoU=0.7'

    Raises UsageError with the problem and accepted names.
    """
    match = _SHAPE.fullmatch(text.strip())
    name, task = (match["measure"].lower(), (match["task"] or "VCMR").upper()) if match else ("", "")
    rows = [row for row in MEASURES if row.name.lower() == _SYNONYMS.get(name, name)]
    if match is None or not rows:
        raise UsageError(f"{text!r} is not a metric; accepted: {ACCEPTED}; compute others from --per-query")
    settings = _settings(text, match["settings"])
    metric = Metric(
        measure=rows[0].name,
        task=cast(Any, _SYNONYMS.get(task, task)),
        k=None if match["k"] is None else int(match["k"]),
        iou=_number(text, settings, "iou"),
        length=settings.get("length"),
        saliency=None if "saliency" not in settings else int(_number(text, settings, "saliency") or 0),
        grade=_number(text, settings, "grade"),
    )
    if problem := _problem(metric, rows):
        raise UsageError(f"metric {text!r}: {problem}; accepted: {ACCEPTED}")
    return metric


def metrics_of(protocol: Protocol, names: Iterable[str] = ()) -> tuple[Metric, ...]:
    """The distinct metrics of these names, by default the protocol's, with the protocol's level of relevance.

    Under a protocol of nDCG alone, a level of relevance adds `R@1,IoU=0.5`. Raises UsageError for a level
    that no metric takes, and for a metric that counts moments one by one, if the protocol's moments are
    several annotators' marks of one.
    """
    named = tuple(names)
    parsed = [parse_metric(name) for name in named or protocol.metrics]
    if protocol.relevant_from is not None:
        parsed = _from_grade(parsed, protocol.relevant_from, adds=not named)
    metrics = tuple(dict.fromkeys(parsed))
    if protocol.annotators > 1:
        for metric in metrics:
            if metric.measure not in ("R", "mIoU") or (metric.length, metric.grade) != (None, None):
                raise UsageError(
                    f"metric {metric.name!r}: counts moments one by one, but under {protocol.name} several "
                    'annotators mark the same moment; accepted: R@K as in "R@1,IoU=0.7", mIoU'
                )
    return metrics


def _from_grade(metrics: list[Metric], least: float, *, adds: bool) -> list[Metric]:
    """The metrics, those with right and wrong moments at a level of relevance."""
    if not 0 < least <= MOST_GRADE:
        raise UsageError(f"relevant from grade {least:g}: must lie above 0 and be at most {MOST_GRADE}")
    if not any("grade" in metric.row.takes for metric in metrics):
        if not adds:
            raise UsageError(
                f"relevant from grade {least:g}: {', '.join(metric.name for metric in metrics)} takes each "
                'grade as a gain; give a metric with right and wrong moments, such as "R@1,IoU=0.5"'
            )
        metrics = [*metrics, Metric("R", k=1, iou=0.5)]
    return [
        replace(metric, grade=least) if metric.grade is None and "grade" in metric.row.takes else metric
        for metric in metrics
    ]


def _settings(text: str, written: str) -> dict[str, str]:
    parts = [(key.lower(), sign, value) for key, sign, value in _SETTING.findall(written)]
    settings = {key: value.lower() for key, _, value in parts}
    unknown = sorted(set(settings) - {"iou", "length", "saliency", "grade"})
    misread = [key for key, sign, _ in parts if (sign == ">=") != (key == "grade")]
    if unknown or misread or len(settings) < len(parts):
        problem = f"no setting {unknown[0]!r}" if unknown else "a setting given twice"
        if misread and not unknown:
            problem = "a grade is written as grade>=3" if misread[0] == "grade" else f"{misread[0]} takes ="
        raise UsageError(f"metric {text!r}: {problem}; accepted: {ACCEPTED}")
    return settings


def _number(text: str, settings: dict[str, str], key: str) -> float | None:
    if key not in settings:
        return None
    try:
        value = float(settings[key])
    except ValueError:
        value = -1.0
    is_whole = key == "saliency"
    if not 0 < value <= _MOST[key] or (is_whole and value % 1):
        raise UsageError(
            f"metric {text!r}: {key} {settings[key]!r} must be a {'whole ' * is_whole}number above 0, "
            f"at most {_MOST[key]:g}; accepted: {ACCEPTED}"
        )
    return value


def _problem(metric: Metric, rows: Sequence[Measure]) -> str:
    """Why a metric is invalid, or "": it must have all settings that it needs, and no other."""
    row = next((row for row in rows if metric.task in row.tasks), None)
    if row is None:
        others = ", ".join(other.example for other in MEASURES if metric.task in other.tasks)
        return f"{rows[0].name} is a metric of {' and '.join(rows[0].tasks)}; {metric.task} has {others}"
    given = {key for key in _SETTINGS if getattr(metric, key) is not None}
    for key, name in _SETTINGS.items():
        if key in row.needs - given:
            return f"{row.name} of {metric.task} needs {name}, as in {row.example}"
        if key in given - row.needs - row.takes:
            return f"{row.name} of {metric.task} takes no {name.partition(' ')[2]}"
    if metric.k == 0 or (row.first_only and metric.k not in (None, 1)):
        return "K begins at 1" if metric.k == 0 else f"{row.name} reads only the first moment: K is 1"
    if metric.length is not None and metric.length not in LENGTHS:
        return f"length {metric.length!r} must be one of {', '.join(LENGTHS)}"
    return ""


def fill(
    values: Floats, rows: Rows, truth: Truth, metrics: Iterable[tuple[int, Metric]], protocol: Protocol,
    *, listed_videos: bool,
) -> None:  # fmt: skip
    """Write a block's values of some metrics into `values`.

    `listed_videos`: the rows are a list of videos already; otherwise VR reads the first row of each video.
    """
    if not len(rows.queries):
        return
    listings = Listings(rows, truth, protocol, listed_videos=listed_videos)
    for column, metric in metrics:
        values[rows.queries, column] = metric.row.value(listings.of(metric), metric)


class Listings:
    """The rows of a block as each metric reads them; `listed_videos` as in `fill`."""

    def __init__(self, rows: Rows, truth: Truth, protocol: Protocol, *, listed_videos: bool) -> None:
        self._rows = inside_pools(rows.upto(protocol.list_depth), truth)
        self._truth, self._protocol, self._listed_videos = truth, protocol, listed_videos
        self._made: dict[tuple[str, bool, str | None, float | None], Listing] = {}

    def of(self, metric: Metric) -> Listing:
        """The listing of a metric, shared by metrics that read the same."""
        key = (metric.task, metric.row.graded, metric.length, metric.grade)
        if key not in self._made:
            rows = self._rows
            if metric.task == "SVMR":
                rows = rows.where(rows.video == self._truth.given_video[rows.queries[rows.query]])
            elif metric.task == "VR" and not self._listed_videos:
                rows = rows.where(rows.is_first_of_video)
            judged = self._truth if metric.row.graded else _right_moments(self._truth, metric)
            self._made[key] = Listing(rows, judged, self._protocol)
        return self._made[key]


def _right_moments(truth: Truth, metric: Metric) -> Truth:
    """The judged moments that are right by a metric's grade and length."""
    right, length = truth.positives(metric.grade), metric.length
    return right if length is None else right.where(of_length(right.end - right.start, length))


def of_length(seconds: Floats, length: str) -> Mask:
    """Whether moments of these lengths belong to a class of lengths."""
    least, most = LENGTHS[length]
    return (seconds > least) & (seconds <= most)


def mark_not_applicable(values: Floats, metrics: Sequence[Metric], truth: Truth, protocol: Protocol) -> None:
    """Set NaN for metrics of a length if a query has no moment of that length.

    So are all metrics of moments if the judgements name only videos and the protocol wants moments.
    """
    only_videos = not protocol.spanless and not (truth.end > truth.start).any()
    for column, metric in enumerate(metrics):
        if only_videos and metric.task != "VR":
            values[:, column] = np.nan
        if metric.length is not None:
            judged = _right_moments(truth, metric)
            values[np.bincount(judged.query, minlength=len(values)) == 0, column] = np.nan


def means_of(values: Floats) -> Floats:
    """(M,) means of (Q, M) values over the queries that a metric applies to; NaN if there are none."""
    applies = ~np.isnan(values)
    total, count = np.where(applies, values, 0.0).sum(axis=0), applies.sum(axis=0)
    means: Floats = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return means


def without_nan(means: Mapping[str, float]) -> dict[str, float | None]:
    """Numbers for JSON, with None for NaN."""
    return {name: None if np.isnan(mean) else mean for name, mean in means.items()}
