"""Run several trainings in one command: each stage is an experiment, and later stages build on earlier ones.

A file of stages has only `title = "..."` and `stages = ["first.toml", "second.toml"]`, which are files beside
it. The stages are trained in turn, each into a subfolder of its name (without `.toml`). In [data] of a later
stage, "stage:NAME" means the folder of the earlier stage NAME. At the end, `system.json` says which stage
answers and which chooses the videos (`models.staged`).

Before the first training begins, all stages are checked: their settings, their references to other stages,
the tables of contents of the feature files, and the folders to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models.staged import write_stages
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.devices import DeviceSetup
from whenabouts_systems.training.experiment import KEYS, STAGE, Experiment, has_stages, load_experiment
from whenabouts_systems.training.launch import (
    SEEDS,
    TrainingResult,
    check_measure,
    different_seeds,
    launch,
    seeds_to_json,
)
from whenabouts_systems.training.loop import Show
from whenabouts_systems.training.retrieval_lists import check_lists, folder_of
from whenabouts_systems.training.run_folder import EXPERIMENT, RunFolder, write_json
from whenabouts_systems.training.tables import read_toml, refuse_unknown, set_values, value_of


@dataclass(frozen=True)
class StagedExperiment:
    """A file of stages: `stages` maps the name of each to its experiment, in order; the last one answers."""

    name: str
    title: str
    stages: Mapping[str, Experiment]

    @property
    def localizer(self) -> str:
        """The last stage, which answers queries."""
        return list(self.stages)[-1]

    @property
    def retriever(self) -> str | None:
        """The stage that chooses the videos, whose lists the last stage reads; None without such lists."""
        lists = self.stages[self.localizer].data.retrieved.lists
        return lists.removeprefix(STAGE) if lists.startswith(STAGE) else None

    def with_seed(self, seed: int) -> StagedExperiment:
        """The same stages with another seed in each."""
        return replace(self, stages={name: stage.with_seed(seed) for name, stage in self.stages.items()})

    def with_data(self, folder: str | Path) -> StagedExperiment:
        """The same stages with all annotations in `folder`."""
        return replace(self, stages={name: stage.with_data(folder) for name, stage in self.stages.items()})


@dataclass(frozen=True)
class StagedResult:
    """The results of all stages and seeds; everything lies below `folder`."""

    title: str
    folder: Path
    stages: Mapping[str, Sequence[TrainingResult]]
    of_seeds: bool

    def to_json(self) -> dict[str, Any]:
        """The JSON object that `train --json` prints; each stage as one training or as in `seeds_to_json`."""
        return {
            "title": self.title,
            "folder": str(self.folder),
            "stages": {
                name: seeds_to_json(results) if self.of_seeds else results[0].to_json()
                for name, results in self.stages.items()
            },
        }


def load_stages(path: str | Path, settings: Sequence[str] = ()) -> StagedExperiment:
    """Load the experiments of a file of stages, changed by settings.

    "prem_localizer.training.epochs=3" changes one stage, "training.epochs=3" all stages, and "title=…" the
    title of the file. Raises FormatError or UsageError as `load_experiment` does, and for two stages of the
    same name and a reference to a stage that is not an earlier one.
    """
    place = Path(path)
    tables = read_toml(place)
    for key in tables:
        if key not in ("title", "stages"):
            raise FormatError(
                place,
                f"lists stages and also has {key!r}",
                accepted="title and stages; everything else belongs in the stages' files",
            )
    files = _files(place, tables["stages"])
    _check_names(place, files, settings)
    stages: dict[str, Experiment] = {}
    for name, file in files.items():
        if has_stages(file):
            raise FormatError(place, "lists a file of stages as a stage:", field="stages", value=file.name)
        stages[name] = load_experiment(file, list(_settings_of(name, files, settings)))
        _check_references(name, stages, place)
    named = set_values(tables, [setting for setting in settings if _is_title(setting)])
    title = value_of(named.get("title", ""), str, f"{place} title")
    return StagedExperiment(str(place), title, stages)


def launch_stages(
    staged: StagedExperiment,
    features: str | Path,
    out: str | Path,
    setup: DeviceSetup,
    *,
    seeds: Sequence[int] | None = None,
    resume: bool = False,
    show: Show | None = None,
    log: Callable[[str], None] | None = None,
) -> StagedResult:
    """Train all stages in turn, for each of the `seeds` in a separate folder.

    With `resume`, finished stages are only read, an interrupted one continues, the others start. Raises the
    errors of `check_stages` before the first step, and those of `launch` for each stage.
    """
    runs = [(staged, Path(out), "")]
    if seeds is not None:
        seeded = [(seed, staged.with_seed(seed)) for seed in different_seeds(seeds)]
        runs = [(run, Path(out) / f"seed-{seed}", f"seed {seed}, ") for seed, run in seeded]
    check_stages([run for run, _, _ in runs], features)
    setup.by_first(lambda: _check_folders(runs, resume=resume, of_seeds=seeds is not None))
    results: dict[str, list[TrainingResult]] = {name: [] for name in staged.stages}
    for run, folder, before in runs:
        for number, (name, experiment) in enumerate(run.stages.items(), 1):
            if log and setup.writes:
                log(f"{before}stage {name} ({number} of {len(run.stages)})")
            begun = setup.agreed(resume and (folder / name / EXPERIMENT).exists())
            of_stage = replace(setup, precision=experiment.training.precision)
            result = launch(experiment, features, folder / name, of_stage, resume=begun, show=show, log=log)
            results[name].append(result)
            setup.agreed(None)  # wait, so that the stage's files exist for every process
        if setup.writes:
            write_stages(folder, localizer=run.localizer, retriever=run.retriever)
    staged_result = StagedResult(staged.title or staged.name, Path(out), results, seeds is not None)
    if seeds is not None and setup.writes:
        write_json(Path(out) / SEEDS, staged_result.to_json())
    return staged_result


def check_stages(runs: Sequence[StagedExperiment], features: str | Path) -> None:
    """Raise the errors of all stages' settings and files early; the runs differ only in their seeds."""
    for experiment in runs[0].stages.values():
        inputs = ExperimentData.check(
            experiment.data, experiment.features, features, splits=("train", "validation")
        )
        experiment.check_negatives(experiment.config(inputs))
        if experiment.data.validation and not experiment.data.retrieved.validation:
            check_measure(experiment, inputs)
    for experiment in (stage for run in runs for stage in run.stages.values()):
        check_lists(experiment, features)
        if (first_stage := experiment.data.first_stage) and not first_stage.startswith(STAGE):
            Trained.from_pretrained(folder_of(first_stage, "", experiment.training.seed))


def _files(place: Path, stages: Any) -> dict[str, Path]:
    """Name -> file of each stage."""
    accepted = 'a list of files, such as ["prem_retriever.toml", "prem_localizer.toml"]'
    if not isinstance(stages, list) or not stages:
        raise FormatError(
            place, "is not a list of experiments:", field="stages", value=stages, accepted=accepted
        )
    files: dict[str, Path] = {}
    for name in stages:
        if not isinstance(name, str) or not name.endswith(".toml"):
            raise FormatError(
                place, "is not the file of an experiment:", field="stages", value=name, accepted=accepted
            )
        file = place.parent / name
        if file.stem in files:
            raise FormatError(place, "two stages have the name", field="stages", value=file.stem)
        files[file.stem] = file
    return files


def _check_names(place: Path, files: Mapping[str, Path], settings: Sequence[str]) -> None:
    """Refuse stages and settings with unusable names.

    Raises FormatError for a stage whose name has a dot or is a key of experiments, and UsageError for a
    setting that begins with neither a stage nor such a key, or names a stage without a key.
    """
    for name in files:
        if name in KEYS or "." in name:
            raise FormatError(
                place,
                "cannot be the name of a stage:",
                field="stages",
                value=name,
                accepted=f"a file whose name has no dot and is not one of {', '.join(KEYS)}",
            )
    for setting in settings:
        name, equals, _ = setting.partition("=")
        first, _, key = name.strip().partition(".")
        if equals and first in files and not key:
            raise UsageError(
                f"--set {setting!r}: names a stage without a key; give one, such as {first}.training.epochs=3"
            )
        if equals:
            refuse_unknown([first], [*files, *KEYS], f"--set {setting!r}: {place}")


def _settings_of(stage: str, files: Mapping[str, Path], settings: Sequence[str]) -> Iterator[str]:
    """The settings that apply to a stage, in order, without the stage's name."""
    for setting in settings:
        first, _, of_stage = setting.strip().partition(".")
        if first == stage:
            yield of_stage
        elif first not in files and not _is_title(setting):
            yield setting


def _is_title(setting: str) -> bool:
    """Whether a setting changes the title of the file of stages."""
    return setting.partition("=")[0].strip() == "title"


def _check_references(name: str, stages: Mapping[str, Experiment], place: Path) -> None:
    """Raise UsageError if a stage refers to a stage that is not an earlier one."""
    before = [stage for stage in stages if stage != name]
    data = stages[name].data
    for key, value in (
        ("first_stage", data.first_stage),
        ("retrieved.lists", data.retrieved.lists),
        ("retrieved.validation", data.retrieved.validation),
    ):
        if value.startswith(STAGE) and value.removeprefix(STAGE) not in before:
            raise UsageError(
                f"{stages[name].name} [data] {key} is {value!r}; the earlier stages in {place} are "
                f"{', '.join(before) or '(none)'}"
            )


def _check_folders(
    runs: Sequence[tuple[StagedExperiment, Path, str]], *, resume: bool, of_seeds: bool
) -> None:
    """Raise UsageError if a stage's folder is used.

    With `resume`, raise it if a folder holds another training, or if no stage has begun (with seeds, that is
    allowed).
    """
    begun = False
    for run, folder, _ in runs:
        RunFolder(folder).refuse_training()
        for name, experiment in run.stages.items():
            place = RunFolder(folder / name)
            if not resume:
                place.refuse_used()
            elif (place.path / EXPERIMENT).exists():
                begun = True
                place.check_same(experiment)
            elif place.is_untouched:
                begun = True  # interrupted before anything was written
    if resume and not begun and not of_seeds:
        raise UsageError(f"{runs[0][1]}: there is no training here to resume; train without --resume")
