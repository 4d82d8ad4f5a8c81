"""Runs compared by judgements from pools: without what was not judged, and how far that could move them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whenabouts.research.evaluation.metrics import without_nan

if TYPE_CHECKING:
    from whenabouts.research.evaluation.compared import Comparison, Difference


@dataclass(frozen=True)
class PooledComparison:
    """What was not judged of the runs of a comparison.

    `condensed` is the same comparison on lists without it, `runs` has, by run and metric, what
    `Unjudged.means` says.
    """

    judged_iou: float
    condensed: Comparison
    runs: Mapping[str, Mapping[str, Mapping[str, float]]]

    def possible(self, metric: str, system: str, baseline: str) -> tuple[float, float]:
        """The least and greatest difference of means that the unjudged answers allow, each run by itself.

        An answer that both runs give is taken for right in one and wrong in the other, so the true limits
        may be narrower.
        """
        own, other = self.runs[system][metric], self.runs[baseline][metric]
        return own["lower"] - other["upper"], own["upper"] - other["lower"]

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
            'lists). "possible": differences of the means over all grades that the unjudged answers of each '
            "run could get."
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
