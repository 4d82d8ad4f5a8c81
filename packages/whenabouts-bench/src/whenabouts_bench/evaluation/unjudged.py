"""Count unjudged answers, and measure the value without them and how much they could change it.

Judgements of large collections come from pools: the best answers of some runs. Answers of another run may be
unjudged, and count as wrong. Each value is therefore reported with the number of such answers, the value of
the *condensed list* without them (Sakai, "Alternatives to Bpref", SIGIR 2007), and the bounds of the value
(`bounds`).

An answer is judged if its IoU with a judged moment of its query, of any grade, is at least `judged_iou`, or
enough for a hit of the metric. A video of VR is judged if any moment in it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from whenabouts.types import UsageError
from whenabouts_bench.evaluation.bounds import bounds_of
from whenabouts_bench.evaluation.matching import Mask, Rows, Truth, best_iou, judged_moments, pairs_of, passes
from whenabouts_bench.evaluation.metrics import (
    MEAN_IOUS,
    Listing,
    Listings,
    Metric,
    fill,
    means_of,
    of_length,
    without_nan,
)
from whenabouts_bench.evaluation.protocols import Protocol
from whenabouts_bench.formats.annotations import Floats, Indices

JUDGED_IOU = 0.5
"""The default minimal IoU of a judged answer with a judged moment."""

HITS = ("R", "mIoU")
"""Measures that are 1 with one right answer."""
COLUMNS = ("answers", "unjudged", "condensed", "lower", "upper")


@dataclass(frozen=True)
class Unjudged:
    """Unjudged answers of a run. The arrays are (Q, M) as `Evaluation.values`.

    `answers` is the number of answers up to the metric's depth, `unjudged` the number of unjudged ones,
    `condensed` the value without them, `lower` and `upper` its bounds; all NaN if a metric does not apply.
    For each metric of `HITS`, `open` maps query ids to hashes of unjudged answers that could be right, by
    which two runs of one process are compared.
    """

    judged_iou: float
    most_grade: float
    answers: Floats
    unjudged: Floats
    condensed: Floats
    lower: Floats
    upper: Floats
    open: Mapping[int, dict[str, set[int]]] = field(default_factory=dict, kw_only=True)

    @classmethod
    def empty(cls, queries: int, metrics: int, judged_iou: float, most_grade: float) -> Unjudged:
        """Zeros, to be filled blockwise. Raises UsageError for an invalid IoU."""
        if not 0 < judged_iou <= 1:
            raise UsageError(f"judged IoU {judged_iou!r}: must lie above 0 and be at most 1")
        zeros = [np.zeros((queries, metrics)) for _ in COLUMNS]
        return cls(judged_iou, most_grade, *zeros, open=defaultdict(dict))

    def fill(
        self, rows: Rows, truth: Truth, judged: Truth, metrics: Sequence[tuple[int, Metric]],
        protocol: Protocol, values: Floats, video_ids: Sequence[str], *, listed_videos: bool,
    ) -> None:  # fmt: skip
        """Write a block's numbers into the columns of some metrics; `values` (Q, M) has their values.

        The metrics read `truth`; `judged` has all judgements, grade 0 included. `video_ids` are the block's.
        """
        if not len(rows.queries):
            return
        listings = Listings(rows, truth, protocol, listed_videos=listed_videos)
        for column, metric in metrics:
            listing = listings.of(metric)
            listing = listing.by_score if metric.measure == "mAP" else listing
            can_be_right = self._fill_metric(listing, column, metric, judged, values)
            if metric.measure in HITS:
                self._keep_open(listing.rows, can_be_right, column, metric, truth, video_ids)
        for least in {self._least_iou(metric) for _, metric in metrics}:
            chosen = [(column, metric) for column, metric in metrics if self._least_iou(metric) == least]
            condensed = rows.where(~_unjudged(rows, judged, least, protocol))
            fill(self.condensed, condensed, truth, chosen, protocol, listed_videos=listed_videos)

    def means(self, metrics: Sequence[str]) -> dict[str, dict[str, float]]:
        """Metric -> total answers and unjudged ones, and means of the three values; NaN if not applicable."""
        totals = {name: np.nansum(getattr(self, name), axis=0) for name in COLUMNS[:2]}
        means = {name: means_of(getattr(self, name)) for name in COLUMNS[2:]}
        return {
            metric: {name: int(numbers[column]) for name, numbers in totals.items()}
            | {name: float(numbers[column]) for name, numbers in means.items()}
            for column, metric in enumerate(metrics)
        }

    def of_query(self, row: int, metrics: Sequence[str]) -> dict[str, dict[str, float | None]]:
        """Metric -> the numbers of one query, None if not applicable."""
        columns = {name: getattr(self, name)[row].tolist() for name in COLUMNS}
        return {
            metric: without_nan({name: values[column] for name, values in columns.items()})
            for column, metric in enumerate(metrics)
        }

    def to_json(self, metrics: Sequence[str]) -> dict[str, Any]:
        means = {metric: without_nan(numbers) for metric, numbers in self.means(metrics).items()}
        return {"judged_iou": self.judged_iou, "most_grade": self.most_grade, "metrics": means}

    def sentence(self) -> str:
        """The rule by which answers count as judged, as a line of text."""
        return (
            f"judgements from pools: an answer is judged from IoU {self.judged_iou:g} with a judged moment "
            f"(or what the metric asks, if that is less); bounds: grades up to {self.most_grade:g}"
        )

    def _fill_metric(
        self, listing: Listing, column: int, metric: Metric, judged: Truth, values: Floats
    ) -> Mask:
        """Write a metric's numbers; returns (N,) the unjudged rows that could be right."""
        rows = listing.rows
        read = np.ones(len(rows.rank), bool) if metric.depth is None else rows.rank < metric.depth
        open_rows = read & _unjudged(rows, judged, self._least_iou(metric), listing.protocol)
        can_be_right = open_rows
        if metric.task == "VR":  # a list of videos may repeat one, which counts once
            can_be_right = open_rows & rows.is_first_of_video
        if metric.length is not None:
            can_be_right = open_rows & of_length(rows.end - rows.start, metric.length)
        plain = values[rows.queries, column]
        lower, upper = bounds_of(listing, metric, can_be_right, plain, self.most_grade)
        for name, chosen in (("answers", read), ("unjudged", open_rows)):
            count = np.bincount(rows.query[chosen], minlength=listing.queries)
            getattr(self, name)[rows.queries, column] = count
        self.lower[rows.queries, column], self.upper[rows.queries, column] = lower, upper
        return can_be_right

    def _keep_open(
        self, rows: Rows, chosen: Mask, column: int, metric: Metric, truth: Truth, video_ids: Sequence[str]
    ) -> None:
        names = (*truth.video_codes, *video_ids)  # indices of a block's videos follow the truth's
        columns = (rows.queries[rows.query[chosen]], rows.video[chosen], rows.start[chosen], rows.end[chosen])
        for query, video, *span in zip(*(values.tolist() for values in columns), strict=True):
            named = (names[video],) if metric.task == "VR" else (names[video], *span)
            self.open[column].setdefault(truth.query_ids[query], set()).add(hash(named))

    def _least_iou(self, metric: Metric) -> float | None:
        """The minimal IoU of a judged answer; None if the video suffices."""
        if metric.task == "VR":
            return None
        hit = min(MEAN_IOUS) if metric.measure == "mAP" and metric.iou is None else metric.iou
        return self.judged_iou if hit is None else min(self.judged_iou, hit)

    def finished(self, values: Floats, metrics: Sequence[Metric], kept: Indices) -> Unjudged:
        """The numbers of the queries `kept`; those of highlights, which have no pools, are their `values`."""
        for column, metric in enumerate(metrics):
            if metric.task == "HL":
                for numbers in (self.condensed, self.lower, self.upper):
                    numbers[:, column] = values[:, column]
        columns: dict[str, Any] = {
            name: np.where(np.isnan(values), np.nan, getattr(self, name))[kept] for name in COLUMNS
        }
        return replace(self, **columns)


def _unjudged(rows: Rows, judged: Truth, least: float | None, protocol: Protocol) -> Mask:
    """(N,) the unjudged rows."""
    if least is None:
        first, behind = judged_moments(rows, judged)
        return behind <= first
    return ~passes(best_iou(rows, pairs_of(rows, judged, protocol)), least, protocol)
