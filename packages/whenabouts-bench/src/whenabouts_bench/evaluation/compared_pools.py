"""Comparison by pooled judgements: on condensed lists, and how much unjudged answers could change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from whenabouts_bench.evaluation.metrics import means_of, without_nan

if TYPE_CHECKING:
    from whenabouts_bench.evaluation.compared import Comparison, Difference
    from whenabouts_bench.evaluation.evaluate import Evaluation

Limits = tuple[float, float]


@dataclass(frozen=True)
class PooledComparison:
    """The effect of unjudged answers on a comparison.

    `condensed` is the comparison on condensed lists; `runs` has `Unjudged.means` by run and metric, `limits`
    has `possible_difference` by metric, system and baseline.
    """

    judged_iou: float
    condensed: Comparison
    runs: Mapping[str, Mapping[str, Mapping[str, float]]]
    limits: Mapping[tuple[str, str, str], Limits]

    def possible(self, metric: str, system: str, baseline: str) -> Limits:
        """Bounds of the difference of means over all grades of unjudged answers."""
        return self.limits[metric, system, baseline]

    def settled(self, metric: str, system: str, baseline: str) -> bool:
        """Whether unjudged answers cannot change the sign of the difference."""
        least, greatest = self.possible(metric, system, baseline)
        return least > 0 or greatest < 0

    def block(self, metric: str) -> list[str]:
        """The lines of one metric."""
        counts = [
            f"{int(run[metric]['unjudged']):,} of {int(run[metric]['answers']):,} answers of {name}"
            for name, run in self.runs.items()
            if run[metric]["unjudged"]
        ]
        if not counts:
            return ["  all answers that it reads were judged"]
        differences = (d for d in self.condensed.differences if d.metric == metric)
        return [
            f"  not judged: {', '.join(counts)}; without these:",
            *self.condensed.block(metric)[1:],
            *(f"  {self._possible_in_words(d)}" for d in differences),
        ]

    def _possible_in_words(self, d: Difference) -> str:
        least, greatest = self.possible(d.metric, d.system, d.baseline)
        settled = self.settled(d.metric, d.system, d.baseline)
        return f"{d.system} - {d.baseline}: {100 * least:+.2f} to {100 * greatest:+.2f} possible: " + (
            "whatever the unjudged answers are worth, its sign stays"
            if settled
            else "NO VERDICT, judge more: the unjudged answers could turn it"
        )

    def sentence(self) -> str:
        """An explanation of the blocks."""
        return (
            "Judgements from pools: an answer is judged from IoU "
            f"{self.judged_iou:g} with a judged moment (or what the metric asks, if that is less). The first "
            "lines of a metric count unjudged answers as wrong, the second leave them out (condensed "
            'lists). "possible": differences of the means over all grades of the unjudged answers; by R@K '
            "and mIoU an answer of both runs has one grade, by other metrics each run is bounded "
            "separately, and the limits may be narrower."
        )

    def to_json(self) -> dict[str, Any]:
        condensed = self.condensed.to_json()
        for pair in condensed["comparisons"]:
            for metric, numbers in pair["metrics"].items():
                names = (metric, pair["system"], pair["baseline"])
                least, greatest = self.possible(*names)
                numbers |= {"lower": least, "upper": greatest, "settled": self.settled(*names)}
        return {
            "judged_iou": self.judged_iou,
            "systems": [
                {"name": name, "metrics": {metric: without_nan(numbers) for metric, numbers in run.items()}}
                for name, run in self.runs.items()
            ],
            "condensed": {key: condensed[key] for key in ("systems", "comparisons")},
        }


def possible_difference(system: Evaluation, baseline: Evaluation, metric: str) -> Limits:
    """Bounds of the difference of two runs' means by a metric, over all grades of unjudged answers.

    For measures of hits (R@K, mIoU) exact under the assumptions of `bounds`: an answer of both runs with the
    same borders (VR: the same video) is right in both or in neither. For other measures each run is bounded
    separately, so the bounds are valid but may be loose.
    """
    first, second = system.unjudged, baseline.unjudged
    assert first is not None and second is not None
    column, opposite = system.metrics.index(metric), baseline.metrics.index(metric)
    place = {query_id: number for number, query_id in enumerate(baseline.query_ids)}
    order = [place[query_id] for query_id in system.query_ids]
    least = first.lower[:, column] - second.upper[order, opposite]
    greatest = first.upper[:, column] - second.lower[order, opposite]
    mine, theirs = first.open.get(column, {}), second.open.get(opposite, {})
    for row, query_id in enumerate(system.query_ids):
        given, answered = mine.get(query_id, set()), theirs.get(query_id, set())
        if given & answered:
            value, other = system.values[row, column], baseline.values[order[row], opposite]
            # All wrong, a shared one right, or one right that only one run gives.
            greatest[row] = max(value - other, 0.0, 1 - other if given - answered else 0.0)
            least[row] = min(value - other, 0.0, value - 1 if answered - given else 0.0)
    low, high = means_of(np.stack([least, greatest], axis=1)).tolist()
    return low, high
