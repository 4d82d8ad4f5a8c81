"""Measure the drop from answers with the right video given (VMR) to answers from a pool of videos (MVMR).

A system that answers well only if the right video is given is overconfident: it finds a moment in any video
(paper 002, figure 6: the mean of R@1 and R@5 at IoU 0.5; paper 001, table 2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from whenabouts.types import UsageError
from whenabouts_bench.evaluation.comparison import clusters_of
from whenabouts_bench.evaluation.evaluate import Evaluation, annotations_of, evaluate
from whenabouts_bench.evaluation.protocols import PROTOCOLS, Protocol, find_protocol
from whenabouts_bench.evaluation.significance import bootstrap_intervals
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.runs import RunSource

RANKS = (1, 5, 20, 50)
IOUS = (0.3, 0.5, 0.7)
FIGURE_METRICS = ("R@1,IoU=0.5", "R@5,IoU=0.5")
"""The metrics averaged in figure 6 of paper 002."""


@dataclass(frozen=True)
class Drop:
    """A system's loss: metric -> mean over the same queries, with the video given and in the pool.

    `intervals` are 95 % intervals of `mean("given")` and `mean("pool")`, if known.
    """

    name: str
    given: Mapping[str, float]
    pool: Mapping[str, float]
    queries: int
    notes: tuple[str, ...] = field(default=())
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def points(self, metric: str) -> float:
        """VMR minus MVMR, as a fraction."""
        return self.given[metric] - self.pool[metric]

    def share(self, metric: str) -> float:
        """The share of VMR that is lost; NaN if VMR is 0."""
        return self.points(metric) / self.given[metric] if self.given[metric] else float("nan")

    def mean(self, side: str, metrics: Sequence[str] = FIGURE_METRICS) -> float:
        """The mean of some metrics, "given" or "pool": a bar of the figure."""
        means = self.given if side == "given" else self.pool
        return float(np.mean([means[metric] for metric in metrics]))

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.name,
            "queries": self.queries,
            "metrics": {
                metric: {
                    "VMR": self.given[metric],
                    "MVMR": self.pool[metric],
                    "drop": self.points(metric),
                    "share_lost": None if np.isnan(self.share(metric)) else self.share(metric),
                }
                for metric in self.pool
            },
            "figure": {
                "metrics": list(FIGURE_METRICS),
                **{side: self.mean(side) for side in ("given", "pool")},
                "intervals": {side: list(ends) for side, ends in self.intervals.items()},
            },
            "notes": list(self.notes),
        }


def drop_of(
    truth: Annotations | str | Path,
    pool: RunSource | str | Path,
    given: RunSource | str | Path,
    *,
    protocol: Protocol | str = "mvmr",
    name: str = "",
) -> Drop:
    """The drop from answers with the given video to answers in the pool, over the same queries.

    Both are evaluated under `protocol`. `given` answers in each query's given video (SVMR). Raises UsageError
    and FormatError as `evaluate` does, and UsageError for a protocol without pools, for a `given` run that
    ranked pools or a corpus or answers none of the queries, and if `protocol` leaves out unanswered queries
    and the runs answer different ones.
    """
    chosen = find_protocol(protocol) if isinstance(protocol, str) else protocol
    if not chosen.full_pools:
        accepted = ", ".join(other.name for other in PROTOCOLS.values() if other.full_pools)
        raise UsageError(f"{chosen.name}: has no pools, so there is no drop to measure; accepted: {accepted}")
    judged = annotations_of(truth, chosen)
    names = [f"R@{k},IoU={iou}" for iou in IOUS for k in RANKS]
    in_pool = evaluate(judged, pool, names, protocol=chosen)
    in_video = evaluate(judged, given, [f"SVMR {name}" for name in names], protocol=chosen)
    _refuse_other_answers(in_video)
    if in_video.query_ids != in_pool.query_ids:
        raise UsageError(
            f"{in_video.run} and {in_pool.run} answer different queries; use mvmr, where missing ones are 0"
        )
    means = in_video.means()
    missing = {"MVMR": len(in_pool.missing), "VMR": len(in_video.missing)}
    notes = [f"{what}: {count:,} queries are missing" for what, count in missing.items() if count]
    with_video = {metric: means[f"SVMR {metric}"] for metric in names}
    clusters = clusters_of(judged)
    intervals = {"given": _interval(in_video, "SVMR ", clusters), "pool": _interval(in_pool, "", clusters)}
    queries = len(in_pool.query_ids)
    return Drop(name or in_pool.run, with_video, in_pool.means(), queries, tuple(notes), intervals)


def _interval(result: Evaluation, task: str, clusters: Mapping[str, int]) -> tuple[float, float]:
    """The 95 % interval of the mean of `FIGURE_METRICS`, from a bootstrap over videos."""
    values = np.mean([result.column(f"{task}{metric}") for metric in FIGURE_METRICS], axis=0)
    labels = np.array([clusters[query_id] for query_id in result.query_ids], np.int64)
    low, high = bootstrap_intervals(values[:, None], labels)[0].tolist()
    return low, high


def _refuse_other_answers(result: Evaluation) -> None:
    if result.not_answered:
        raise UsageError(
            f"{result.run}: ranked moments of several videos for a query; the run with the video given is "
            "written by `whenabouts run --pools FILE --task svmr`"
        )
    if set(result.query_ids) <= set(result.missing):
        raise UsageError(
            f"{result.run}: answers none of the {len(result.missing):,} judged queries; the run with the "
            "video given must have the judgements' query ids (`whenabouts run --pools FILE --task svmr`)"
        )
