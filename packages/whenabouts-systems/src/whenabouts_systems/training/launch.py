"""A training from its experiment to its folder: claim it, open the data, train, write the result down."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import whenabouts
from whenabouts.types import UsageError
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.devices import DeviceSetup
from whenabouts_systems.training.experiment import Experiment
from whenabouts_systems.training.loop import Show, train
from whenabouts_systems.training.retrieval_lists import choose_negatives, lists_of_validation
from whenabouts_systems.training.run_folder import EXPERIMENT, RunFolder, State, read_state, write_json

_PACKAGES = ("torch", "numpy", "safetensors", "huggingface-hub", "lightning-fabric")
SEEDS = "seeds.json"


def launch(
    experiment: Experiment,
    features: str | Path,
    out: str | Path,
    setup: DeviceSetup,
    *,
    resume: bool = False,
    show: Show | None = None,
    log: Callable[[str], None] | None = None,
) -> TrainingResult:
    """One training, or what is left of it; `log` is called with lines on the data before it begins.

    With `resume`, a training that was broken off before anything was written begins.
    Raises UsageError where the folder `out` is used and `resume` is not asked for, and whatever
    `ExperimentData.open` finds wrong, before the first step.
    """
    folder = RunFolder(Path(out))
    resume = resume and not setup.agreed(folder.is_untouched)
    with setup.entered_by_first(folder.claimed(resume=resume)):
        if resume and (ended := setup.by_first(lambda: _ended(experiment, folder))):
            return TrainingResult.of(experiment, ended, folder.path)
        with ExperimentData.open(
            experiment.data, experiment.features, features, splits=("train", "validation")
        ) as data:
            say = log if log and setup.writes else _discard
            if experiment.data.retrieved.needs_lists:
                choose_negatives(experiment, data, folder.path, setup, say)
            retriever = lists_of_validation(experiment, data, folder.path, setup, say)
            for line in data.summary():
                say(line)
            about = _about(experiment, data, Path(features), setup)
            if setup.writes:
                folder.write_about(about)
            state = train(experiment, data, folder, setup, resume=resume, show=show, retriever=retriever)
        result = TrainingResult.of(experiment, state, folder.path)
        if setup.writes:
            folder.write_about({**about, **result.to_json()})
        return result


def _ended(experiment: Experiment, folder: RunFolder) -> State | None:
    """The state of a training that is finished; raises UsageError where the folder has another."""
    folder.check_same(experiment)
    state = read_state(folder.state_path) if folder.state_path.exists() else State()
    return state if state.finished else None


def launch_seeds(
    experiment: Experiment,
    seeds: Sequence[int],
    features: str | Path,
    out: str | Path,
    setup: DeviceSetup,
    *,
    resume: bool = False,
    show: Show | None = None,
    log: Callable[[str], None] | None = None,
) -> list[TrainingResult]:
    """A training for each seed, in a folder of its own below `out`, and `seeds.json` beside them.

    With `resume`, those that are done are only read, one that was broken off goes on, the others begin.
    """
    # A wrong one is refused before any begins.
    experiments = [experiment.with_seed(seed) for seed in different_seeds(seeds)]
    results: list[TrainingResult] = []
    for seed, seeded in zip(seeds, experiments, strict=True):
        place = Path(out) / f"seed-{seed}"
        begun = setup.agreed(resume and (place / EXPERIMENT).exists())
        if log and setup.writes:
            log(f"seed {seed}")
        # The data are the same for every seed: they are described once.
        described = None if results else log
        results.append(launch(seeded, features, place, setup, resume=begun, show=show, log=described))
    if setup.writes:
        write_json(Path(out) / SEEDS, seeds_to_json(results))
    return results


def different_seeds(seeds: Sequence[int]) -> Sequence[int]:
    """The seeds. Raises UsageError where one comes twice."""
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"seeds {', '.join(map(str, seeds))}: one comes twice")
    return seeds


def _discard(_: str) -> None:
    """Log nothing."""


def _about(
    experiment: Experiment, data: ExperimentData, features: Path, setup: DeviceSetup
) -> dict[str, Any]:
    """What `run.json` says before the training ends."""
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "simulated": experiment.simulated,
        "seed": experiment.training.seed,
        "features": str(features.expanduser().resolve()),
        "machine": {
            "device": setup.description,
            "processes": setup.processes,
            "threads": torch.get_num_threads(),
            "system": platform.platform(),
        },
        "versions": {
            "whenabouts": whenabouts.__version__,
            "python": platform.python_version(),
            **{name: installed for name in _PACKAGES if (installed := _version(name))},
        },
        "material": data.to_json(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@dataclass(frozen=True)
class TrainingResult:
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
    def of(cls, experiment: Experiment, state: State, folder: Path) -> TrainingResult:
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
class MetricSpread:
    """A metric over several seeds: mean and deviation (of the sample, n - 1), as fractions."""

    mean: float
    deviation: float
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> MetricSpread:
        """Of one value or more; the deviation of one is NaN.

        >>> MetricSpread.of([0.1, 0.2, 0.3])
        MetricSpread(mean=0.2, deviation=0.1, values=(0.1, 0.2, 0.3))
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


def spreads(results: Sequence[TrainingResult]) -> dict[str, MetricSpread]:
    """Metric -> its spread over trainings with different seeds; metrics that all of them have."""
    values = {
        name: [value for result in results if (value := result.metrics.get(name)) is not None]
        for name in (results[0].metrics if results else ())
    }
    return {name: MetricSpread.of(some) for name, some in values.items() if len(some) == len(results)}


def seeds_to_json(results: Sequence[TrainingResult]) -> dict[str, Any]:
    """As `train --seeds --json` prints it."""
    return {
        "seeds": [result.seed for result in results],
        "trainings": [result.to_json() for result in results],
        "metrics": {
            name: {
                "mean": spread.mean,
                "deviation": None if math.isnan(spread.deviation) else spread.deviation,
                "values": list(spread.values),
            }
            for name, spread in spreads(results).items()
        },
    }
