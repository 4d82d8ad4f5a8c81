"""The metrics of one block: rows and judged moments -> a value per query and metric."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from whenabouts.evaluation import measures
from whenabouts.evaluation.matching import (
    Pairs,
    Rows,
    best_iou,
    first_of_each_video,
    first_ranks,
    in_given_video,
    inside_pools,
    judged_moments,
    matched_one_to_one,
    pairs_of,
    passes,
)
from whenabouts.evaluation.metrics import LENGTHS, Metric
from whenabouts.evaluation.protocols import Protocol
from whenabouts.evaluation.truth import Truth
from whenabouts.formats.annotations import Floats, Indices
from whenabouts.formats.runs import RunSource


def fill(
    values: Floats,
    rows: Rows,
    truth: Truth,
    asked: Sequence[tuple[int, Metric]],
    source: RunSource,
    protocol: Protocol,
) -> None:
    """Write the values of one block's queries into their rows of `values`."""
    if not len(rows.queries):
        return
    rows = inside_pools(rows.upto(protocol.list_depth), truth)
    moments = [(column, metric) for column, metric in asked if metric.task == "VCMR"]
    given = [(column, metric) for column, metric in asked if metric.task == "SVMR"]
    videos = [(column, metric) for column, metric in asked if metric.task == "VR"]
    told: dict[int, Floats] = {}
    if moments:
        told |= _of_moments(rows, truth, moments, protocol)
    if given:
        told |= _of_moments(in_given_video(rows, truth), truth, given, protocol)
    if videos:
        listed = rows if "VR" in source.tasks else first_of_each_video(rows)
        told |= _of_videos(listed, truth, videos)
    for column, value in told.items():
        values[rows.queries, column] = value


def _of_videos(rows: Rows, truth: Truth, asked: Iterable[tuple[int, Metric]]) -> dict[int, Floats]:
    first, behind = judged_moments(rows, truth.positives())
    ranks = first_ranks(rows, behind > first)
    return {column: measures.recall(ranks, metric.k or 1) for column, metric in asked}


def _of_moments(
    rows: Rows, truth: Truth, asked: Sequence[tuple[int, Metric]], protocol: Protocol
) -> dict[int, Floats]:
    told: dict[int, Floats] = {}
    graded = [(column, metric) for column, metric in asked if metric.measure == "nDCG"]
    if graded:
        pairs = pairs_of(rows, truth, protocol)
        for iou in {metric.iou for _, metric in graded}:
            matched = matched_one_to_one(rows.rank, pairs, passes(pairs.iou, cast(float, iou), protocol))
            ks = tuple({cast(int, metric.k) for _, metric in graded if metric.iou == iou})
            by_k = measures.ndcg(rows, matched, truth, ks, protocol)
            told |= {column: by_k[metric.k] for column, metric in graded if metric.iou == iou and metric.k}
    for length in dict.fromkeys(metric.length for _, metric in asked if metric.measure != "nDCG"):
        some = _of_length(truth.positives(), length)
        same = [(c, m) for c, m in asked if m.length == length and m.measure != "nDCG"]
        told |= _of_positives(rows, some, same, protocol)
    return told


def _of_length(truth: Truth, length: str | None) -> Truth:
    if length is None:
        return truth
    least, most = LENGTHS[length]
    seconds = truth.end - truth.start
    return truth.where((seconds > least) & (seconds <= most))


def _of_positives(
    rows: Rows, truth: Truth, asked: Sequence[tuple[int, Metric]], protocol: Protocol
) -> dict[int, Floats]:
    """Recall, mean IoU and mAP against moments that are all right."""
    told: dict[int, Floats] = {}
    pairs = pairs_of(rows, truth, protocol)
    best = best_iou(rows, pairs)
    ranks: dict[float, Indices] = {}
    scored: tuple[Rows, Pairs] | None = None
    for column, metric in asked:
        if metric.measure == "R":
            iou = cast(float, metric.iou)
            if iou not in ranks:
                ranks[iou] = measures.first_hit(rows, best, iou, protocol)
            told[column] = measures.recall(ranks[iou], cast(int, metric.k))
        elif metric.measure == "mIoU":
            told[column] = measures.mean_iou(rows, best)
        else:
            if scored is None:
                ordered = rows.by_score() if protocol.by_score else rows
                scored = (ordered, pairs_of(ordered, truth, protocol) if protocol.by_score else pairs)
            thresholds = measures.MEAN_IOUS if metric.iou is None else (metric.iou,)
            told[column] = measures.average_precision(*scored, truth, thresholds, protocol, metric.k)
    return told


def not_applicable(values: Floats, asked: tuple[Metric, ...], truth: Truth) -> None:
    """A metric of a length does not apply to a query that has no moment of that length."""
    for column, metric in enumerate(asked):
        if metric.length is not None:
            some = _of_length(truth.positives(), metric.length)
            has = np.bincount(some.query, minlength=len(values)) > 0
            values[~has, column] = np.nan
