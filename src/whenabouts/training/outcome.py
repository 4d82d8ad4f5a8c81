"""What came of a training, and of several with different seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whenabouts.training.experiment import Experiment
    from whenabouts.training.state import State


@dataclass(frozen=True)
class Outcome:
    """The best evaluation of a training; `score` is the sum of `measure`, None where there was none."""

    title: str
    folder: Path
    seed: int
    measure: str
    score: float | None
    step: int
    steps: int
    seconds: float
    reason: str
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    simulated: bool = False

    @classmethod
    def of(cls, experiment: Experiment, state: State, folder: Path) -> Outcome:
        """What a finished state says."""
        return cls(
            title=experiment.title or experiment.name,
            folder=folder,
            seed=experiment.training.seed,
            measure=experiment.training.metric,
            score=state.best,
            step=state.best_step,
            steps=state.step,
            seconds=state.seconds,
            reason=state.finished,
            metrics=state.best_metrics,
            simulated=experiment.simulated,
        )

    def to_json(self) -> dict[str, Any]:
        """As `train --json` prints it."""
        return {
            "folder": str(self.folder),
            "title": self.title,
            "simulated": self.simulated,
            "seed": self.seed,
            "ended": self.reason,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "best": {"step": self.step, "metric": self.measure, "score": self.score},
            "metrics": dict(self.metrics),
        }


@dataclass(frozen=True)
class Spread:
    """A metric over several seeds: mean and deviation (of the sample, n - 1), as fractions."""

    mean: float
    deviation: float
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of one value or more; the deviation of one is NaN.

        >>> Spread.of([0.1, 0.2, 0.3])
        Spread(mean=0.2, deviation=0.1, values=(0.1, 0.2, 0.3))
        """
        mean = statistics.fmean(values)
        # Rounded where floats are not exact: a hundred-millionth of a metric means nothing.
        deviation = statistics.stdev(values) if len(values) > 1 else math.nan
        return cls(round(mean, 12), round(deviation, 12), tuple(values))

    @property
    def percent(self) -> str:
        """For people: "5.42 ± 0.13"."""
        deviation = "" if math.isnan(self.deviation) else f" ± {100 * self.deviation:.2f}"
        return f"{100 * self.mean:.2f}{deviation}"


def spreads(outcomes: Sequence[Outcome]) -> dict[str, Spread]:
    """Metric -> its spread over trainings with different seeds; metrics that all of them have."""
    return dict(_spreads(outcomes))


def _spreads(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, Spread]]:
    for name in outcomes[0].metrics if outcomes else ():
        values = [value for one in outcomes if (value := one.metrics.get(name)) is not None]
        if len(values) == len(outcomes):
            yield name, Spread.of(values)


def seeds_to_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """As `train --seeds --json` prints it."""
    return {
        "seeds": [one.seed for one in outcomes],
        "trainings": [one.to_json() for one in outcomes],
        "metrics": {
            name: {
                "mean": one.mean,
                "deviation": None if math.isnan(one.deviation) else one.deviation,
                "values": list(one.values),
            }
            for name, one in spreads(outcomes).items()
        },
    }
