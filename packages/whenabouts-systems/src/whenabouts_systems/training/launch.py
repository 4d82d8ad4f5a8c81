"""Run a training: lock its folder, open the data, train, and write the results."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import whenabouts
from whenabouts import plugins
from whenabouts.intake.files import read_json
from whenabouts.types import UsageError
from whenabouts_bench.evaluation.metrics import parse_metric
from whenabouts_systems.models import new_model
from whenabouts_systems.models.inputs import Inputs
from whenabouts_systems.models.trained import version_of
from whenabouts_systems.ranking.candidates import RankedVideos, can_retrieve
from whenabouts_systems.ranking.localize import can_localize
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.devices import DeviceSetup
from whenabouts_systems.training.experiment import Experiment
from whenabouts_systems.training.loop import Show, Training
from whenabouts_systems.training.retrieval_lists import choose_negatives, lists_of_validation
from whenabouts_systems.training.run_folder import ABOUT, EXPERIMENT, RunFolder, State, read_state, write_json

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
    """Run one training, or resume it; `log` gets lines about the data before the training begins.

    With `resume`, a training that was interrupted before it wrote anything starts anew, and a finished one is
    only read. Raises UsageError if the folder `out` is used and `resume` is false, and the errors of
    `ExperimentData.open`, both before the first step.
    """
    folder = RunFolder(Path(out))
    resume = resume and not setup.agreed(folder.is_untouched)
    with setup.entered_by_first(folder.claimed(resume=resume)):
        if resume and (ended := setup.by_first(lambda: _ended(experiment, folder))):
            return _concluded(experiment, ended, folder, setup)
        with ExperimentData.open(
            experiment.data, experiment.features, features, splits=("train", "validation")
        ) as data:
            say: Callable[[str], None] = log if log and setup.writes else lambda _: None
            if experiment.data.retrieved.needs_lists:
                choose_negatives(experiment, data, folder.path, setup, say)
            retriever: RankedVideos | None = None
            if experiment.data.retrieved.validation and experiment.data.validation:
                retriever = lists_of_validation(experiment, data, folder.path, setup, say)
            elif experiment.data.validation:
                check_measure(experiment, data.inputs)
            for line in data.summary():
                say(line)
            about = _about(experiment, data, Path(features), setup)
            if resume:
                setup.by_first(lambda: folder.check_same_data(about["material"]))
            if setup.writes:
                write_json(folder.path / ABOUT, about)
            state = Training(experiment, data, folder, setup, show, retriever).run(resume)
        return _concluded(experiment, state, folder, setup)


def _concluded(experiment: Experiment, state: State, folder: RunFolder, setup: DeviceSetup) -> TrainingResult:
    """The result of a training, written into its folder unless that was done before."""
    result, path = TrainingResult.of(experiment, state, folder.path), folder.path / ABOUT
    if setup.writes and "ended" not in (about := read_json(path) if path.exists() else {}):
        folder.draw_curves(state)
        write_json(path, {**about, **result.to_json()})
    return result


def check_measure(experiment: Experiment, inputs: Inputs) -> None:
    """Raise UsageError for a metric of videos, or of moments, if the system cannot choose or find them."""
    with torch.device("meta"):
        model = new_model(experiment.system, experiment.config(inputs))
    measures = [parse_metric(name) for name in experiment.training.metrics]
    beyond = [measure.name for measure in measures if measure.task in ("VCMR", "VR")]
    if beyond and not can_retrieve(model):
        raise UsageError(
            f"{experiment.name} [training] metric is {beyond[0]!r}, which needs a choice of videos, and "
            f"{experiment.system} does not choose videos; give lists for the validation queries with "
            "--set data.retrieved.validation=RUN, or a metric in given videos, such as SVMR R@1,IoU=0.5"
        )
    of_moments = [measure.name for measure in measures if measure.task != "VR"]
    if of_moments and not can_localize(model):
        raise UsageError(
            f"{experiment.name} [training] metric is {of_moments[0]!r}, and {experiment.system} finds no "
            'moments; give a metric of videos: --set training.metric="VR R@1"'
        )


def _ended(experiment: Experiment, folder: RunFolder) -> State | None:
    """The state of a finished training, else None. Raises UsageError if the folder has another training."""
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
    """Run a training for each seed, each in its folder below `out`, and write `seeds.json` beside them.

    With `resume`, finished trainings are only read, an interrupted one continues, the others start.
    """
    # Refuse wrong seeds and used folders before the first training.
    runs = [(Path(out) / f"seed-{seed}", experiment.with_seed(seed)) for seed in different_seeds(seeds)]
    setup.by_first(lambda: _check_folders(runs, resume=resume))
    results: list[TrainingResult] = []
    for place, seeded in runs:
        begun = setup.agreed(resume and (place / EXPERIMENT).exists())
        if log and setup.writes:
            log(f"seed {seeded.training.seed}")
        # All seeds use the same data, so describe it once.
        described = None if results else log
        results.append(launch(seeded, features, place, setup, resume=begun, show=show, log=described))
    if setup.writes:
        write_json(Path(out) / SEEDS, seeds_to_json(results))
    return results


def _check_folders(runs: Sequence[tuple[Path, Experiment]], *, resume: bool) -> None:
    """Raise UsageError if a folder is used, or with `resume`, if it holds another training."""
    for place, experiment in runs:
        folder = RunFolder(place)
        if not resume:
            folder.refuse_used()
        elif (place / EXPERIMENT).exists():
            folder.check_same(experiment)


def different_seeds(seeds: Sequence[int]) -> Sequence[int]:
    """The seeds. Raises UsageError for repeated ones."""
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"seeds {', '.join(map(str, seeds))}: one is repeated; give different seeds")
    return seeds


def _about(
    experiment: Experiment, data: ExperimentData, features: Path, setup: DeviceSetup
) -> dict[str, Any]:
    """The facts that `run.json` holds while the training runs; results are added at its end."""
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
            **{name: installed for name in _PACKAGES if (installed := version_of(name))},
            **plugins.packages("datasets", "encoders", "formats", "layouts", "models"),
        },
        "material": data.to_json(),
    }


@dataclass(frozen=True)
class TrainingResult:
    """The best evaluation of a training; `score` is the sum of `measure`, None without a validation."""

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
        """The result of a finished training."""
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
        """The JSON object that `train --json` prints."""
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
    """A metric over several seeds: mean and sample standard deviation (n - 1), as fractions."""

    mean: float
    deviation: float
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> MetricSpread:
        """The spread of one or more values; the deviation of a single value is NaN.

        >>> MetricSpread.of([0.1, 0.2, 0.3])
        MetricSpread(mean=0.2, deviation=0.1, values=(0.1, 0.2, 0.3))
        """
        mean = statistics.fmean(values)
        # Rounding removes the inexact digits of floats.
        deviation = statistics.stdev(values) if len(values) > 1 else math.nan
        return cls(round(mean, 12), round(deviation, 12), tuple(values))

    @property
    def percent(self) -> str:
        """The spread in percent as text, such as "5.42 ± 0.13"."""
        deviation = "" if math.isnan(self.deviation) else f" ± {100 * self.deviation:.2f}"
        return f"{100 * self.mean:.2f}{deviation}"


def spreads(results: Sequence[TrainingResult]) -> dict[str, MetricSpread]:
    """Metric -> its spread over trainings with different seeds, for the metrics that all of them have."""
    values = {
        name: [value for result in results if (value := result.metrics.get(name)) is not None]
        for name in (results[0].metrics if results else ())
    }
    return {name: MetricSpread.of(each) for name, each in values.items() if len(each) == len(results)}


def seeds_to_json(results: Sequence[TrainingResult]) -> dict[str, Any]:
    """The JSON object that `train --seeds --json` prints."""
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
