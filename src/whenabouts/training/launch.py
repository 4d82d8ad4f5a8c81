"""A training from its settings to its folder: claim it, open the material, train, write down what it was."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import whenabouts
from whenabouts.formats.files import write_atomically
from whenabouts.training.data import ExperimentData
from whenabouts.training.devices import DeviceSetup
from whenabouts.training.experiment import Experiment
from whenabouts.training.loop import train
from whenabouts.training.progress import Show
from whenabouts.training.retrieval_lists import choose_retrieved
from whenabouts.training.run_folder import EXPERIMENT, RunFolder
from whenabouts.training.state import State, read_state
from whenabouts.types import UsageError

_PACKAGES = ("torch", "numpy", "safetensors", "huggingface-hub", "lightning-fabric")
SEEDS = "seeds.json"


def launch(
    experiment: Experiment,
    features: str | Path,
    out: str | Path,
    machine: DeviceSetup,
    *,
    resume: bool = False,
    show: Show | None = None,
    tell: Callable[[str], None] | None = None,
) -> TrainingResult:
    """One training, or what is left of it; `tell` hears sentences of what was found before it begins.

    With `resume`, a training that was broken off before anything was written begins.
    Raises UsageError where the folder `out` is used and `resume` is not asked for, and whatever
    `ExperimentData.open` finds wrong, before the first step.
    """
    folder = RunFolder(Path(out))
    resume = resume and not machine.agreed(folder.is_untouched)
    with folder.claimed(resume=resume) if machine.writes else folder.shared():
        if resume:
            folder.check_same(experiment)
            if folder.state_path.exists() and (state := read_state(folder.state_path)).finished:
                return TrainingResult.of(experiment, state, folder.path)
        with ExperimentData.open(
            experiment.data, experiment.features, features, splits=("train", "validation")
        ) as material:
            say = tell if tell and machine.writes else _silent
            choose_retrieved(experiment, material, folder.path, machine.device, say)
            for line in material.summary():
                say(line)
            about = _about(experiment, material, Path(features), machine)
            if machine.writes:
                folder.write_about(about)
            state = train(experiment, material, folder, machine, resume=resume, show=show)
            outcome = TrainingResult.of(experiment, state, folder.path)
        if machine.writes:
            folder.write_about({**about, **outcome.to_json()})
        return outcome


def launch_seeds(
    experiment: Experiment,
    seeds: Sequence[int],
    features: str | Path,
    out: str | Path,
    machine: DeviceSetup,
    *,
    resume: bool = False,
    show: Show | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[TrainingResult]:
    """A training for each seed, in a folder of its own below `out`, and `seeds.json` beside them.

    With `resume`, those that are done are only read, one that was broken off goes on, the others begin.
    """
    # A wrong one is refused before any begins.
    experiments = [experiment.with_seed(seed) for seed in different_seeds(seeds)]
    outcomes, summary = [], tell
    for seed, seeded in zip(seeds, experiments, strict=True):
        place = Path(out) / f"seed-{seed}"
        begun = resume and (place / EXPERIMENT).exists()
        if tell and machine.writes:
            tell(f"seed {seed}")
        outcomes.append(launch(seeded, features, place, machine, resume=begun, show=show, tell=summary))
        summary = None
    if machine.writes:
        write_json(Path(out) / SEEDS, seeds_to_json(outcomes))
    return outcomes


def different_seeds(seeds: Sequence[int]) -> Sequence[int]:
    """The seeds. Raises UsageError where one comes twice."""
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"seeds {', '.join(map(str, seeds))}: one comes twice")
    return seeds


def write_json(path: Path, value: Any) -> None:
    """Write a value as a file of JSON."""
    import json

    with write_atomically(path) as stream:
        stream.write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def _silent(_: str) -> None:
    """Nobody listens."""


def _about(
    experiment: Experiment, material: ExperimentData, features: Path, machine: DeviceSetup
) -> dict[str, Any]:
    """What `run.json` says before the training ends."""
    import torch

    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "simulated": experiment.simulated,
        "seed": experiment.training.seed,
        "features": str(features.expanduser().resolve()),
        "machine": {
            "device": machine.described,
            "processes": machine.processes,
            "threads": torch.get_num_threads(),
            "system": platform.platform(),
        },
        "versions": {
            "whenabouts": whenabouts.__version__,
            "python": platform.python_version(),
            **{name: told for name in _PACKAGES if (told := _version(name))},
        },
        "material": material.to_json(),
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


def spreads(outcomes: Sequence[TrainingResult]) -> dict[str, MetricSpread]:
    """Metric -> its spread over trainings with different seeds; metrics that all of them have."""
    return dict(_spreads(outcomes))


def _spreads(outcomes: Sequence[TrainingResult]) -> Iterator[tuple[str, MetricSpread]]:
    for name in outcomes[0].metrics if outcomes else ():
        values = [value for one in outcomes if (value := one.metrics.get(name)) is not None]
        if len(values) == len(outcomes):
            yield name, MetricSpread.of(values)


def seeds_to_json(outcomes: Sequence[TrainingResult]) -> dict[str, Any]:
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
