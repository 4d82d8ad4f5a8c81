"""Runs compared by judgements from pools: without what was not judged, and how far that could move them."""

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
    """What was not judged of the runs of a comparison.

    `condensed` is the same comparison on lists without it, `runs` has, by run and metric, what
    `Unjudged.means` says, and `limits` by metric, system and baseline what `possible_difference` says.
    """

    judged_iou: float
    condensed: Comparison
    runs: Mapping[str, Mapping[str, Mapping[str, float]]]
    limits: Mapping[tuple[str, str, str], Limits]

    def possible(self, metric: str, system: str, baseline: str) -> Limits:
        """The least and greatest difference of means that the unjudged answers allow."""
        return self.limits[metric, system, baseline]

    def settled(self, metric: str, system: str, baseline: str) -> bool:
        """Whether the unjudged answers cannot change which mean is higher."""
        least, greatest = self.possible(metric, system, baseline)
        return least > 0 or greatest < 0

    def block(self, metric: str) -> list[str]:
        """Lines for people about one metric."""
        counts = [
            f"{int(own[metric]['unjudged']):,} of {int(own[metric]['answers']):,} answers of {name}"
            for name, own in self.runs.items()
            if own[metric]["unjudged"]
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
        """What the words of the blocks mean."""
        return (
            "Judgements from pools: an answer is judged from IoU "
            f"{self.judged_iou:g} with a judged moment (or what the metric asks, if that is less). The first "
            "lines of a metric take what was not judged for wrong, the second leave it out (condensed "
            'lists). "possible": differences of the means over all grades that the unjudged answers could '
            "get; by R@K and mIoU an answer that both runs give has one grade, by other metrics each run is "
            "taken by itself, and the limits may be narrower."
        )

    def to_json(self) -> dict[str, Any]:
        """For programs, as `compare --json` prints it below "unjudged"."""
        condensed = self.condensed.to_json()
        for pair in condensed["comparisons"]:
            for metric, numbers in pair["metrics"].items():
                names = (metric, pair["system"], pair["baseline"])
                least, greatest = self.possible(*names)
                numbers |= {"lower": least, "upper": greatest, "settled": self.settled(*names)}
        return {
            "judged_iou": self.judged_iou,
            "systems": [
                {"name": name, "metrics": {metric: without_nan(numbers) for metric, numbers in own.items()}}
                for name, own in self.runs.items()
            ],
            "condensed": {key: condensed[key] for key in ("systems", "comparisons")},
        }


def possible_difference(own: Evaluation, other: Evaluation, metric: str) -> Limits:
    """The least and greatest difference of two runs' means by a metric, over all grades of unjudged answers.

    By measures of hits (R@K, mIoU) exact under the reading of `bounds`: an answer that both runs give, border
    for border (VR: its video), is right in both or in neither. By others each run is taken by itself, so
    the limits hold, and may be narrower.
    """
    first, second = own.unjudged, other.unjudged
    assert first is not None and second is not None
    column, opposite = own.metrics.index(metric), other.metrics.index(metric)
    place = {query_id: number for number, query_id in enumerate(other.query_ids)}
    order = [place[query_id] for query_id in own.query_ids]
    least = first.lower[:, column] - second.upper[order, opposite]
    greatest = first.upper[:, column] - second.lower[order, opposite]
    mine, theirs = first.open.get(column, {}), second.open.get(opposite, {})
    for row, query_id in enumerate(own.query_ids):
        given, answered = mine.get(query_id, set()), theirs.get(query_id, set())
        if given & answered:
            here, there = own.values[row, column], other.values[order[row], opposite]
            # All of them wrong, a shared one right, or one right that the other run does not give.
            greatest[row] = max(here - there, 0.0, 1 - there if given - answered else 0.0)
            least[row] = min(here - there, 0.0, here - 1 if answered - given else 0.0)
    low, high = means_of(np.stack([least, greatest], axis=1)).tolist()
    return low, high
