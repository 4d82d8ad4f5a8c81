"""Several trainings in one command: each stage is an experiment, and a later one builds on earlier ones.

A file of stages is `title = "..."` and `stages = ["first.toml", "second.toml"]`, files beside it, and
nothing else. They are trained in turn into folders of their names (without `.toml`) below one folder, and
"stage:first" in [data] of a later stage means the folder of that earlier one. At the end `system.json` says
which of them answers and which chooses the videos (see `models.staged`).

All stages are read and checked before the first step of the first: settings, what refers to another stage,
the lists of contents of the feature files, and the folders that would be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models.staged import write_stages
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.devices import DeviceSetup
from whenabouts_systems.training.experiment import KEYS, STAGE, Experiment, has_stages, load_experiment
from whenabouts_systems.training.launch import SEEDS, TrainingResult, different_seeds, launch, seeds_to_json
from whenabouts_systems.training.loop import Show
from whenabouts_systems.training.retrieval_lists import check_lists
from whenabouts_systems.training.run_folder import EXPERIMENT, RunFolder, write_json
from whenabouts_systems.training.tables import read_toml, refuse_unknown, set_values, value_of


@dataclass(frozen=True)
class StagedExperiment:
    """Experiments by the names of their stages, in their order; the last one is what answers."""

    name: str
    title: str
    stages: Mapping[str, Experiment]

    @property
    def localizer(self) -> str:
        """The last stage: it answers."""
        return list(self.stages)[-1]

    @property
    def retriever(self) -> str | None:
        """The stage whose lists the last one learns from: it chooses the videos. None: the last one does."""
        lists = self.stages[self.localizer].data.retrieved.lists
        return lists.removeprefix(STAGE) if lists.startswith(STAGE) else None

    def with_seed(self, seed: int) -> StagedExperiment:
        """The same with another seed in every stage."""
        return replace(self, stages={name: stage.with_seed(seed) for name, stage in self.stages.items()})

    def with_data(self, folder: str | Path) -> StagedExperiment:
        """The same with all annotations in that folder."""
        return replace(self, stages={name: stage.with_data(folder) for name, stage in self.stages.items()})


@dataclass(frozen=True)
class StagedResult:
    """The results of the stages, for each seed of each stage, below one folder."""

    title: str
    folder: Path
    stages: Mapping[str, Sequence[TrainingResult]]
    of_seeds: bool

    def to_json(self) -> dict[str, Any]:
        """As `train --json` prints it; each stage as a training, or as one of several seeds, is printed."""
        return {
            "title": self.title,
            "folder": str(self.folder),
            "stages": {
                name: seeds_to_json(results) if self.of_seeds else results[0].to_json()
                for name, results in self.stages.items()
            },
        }


def load_stages(path: str | Path, settings: Sequence[str] = ()) -> StagedExperiment:
    """The experiments that a file of stages names, changed by settings.

    "prem_localizer.training.epochs=3" is for the stage of that name, "training.epochs=3" for all, "title=…"
    for the whole. Raises FormatError or UsageError, naming file, key, what was found and what there is, as
    `load_experiment`; also for two stages of one name, and a stage that refers to none of the earlier ones.
    """
    place = Path(path)
    tables = read_toml(place)
    for key in tables:
        if key not in ("title", "stages"):
            raise FormatError(
                place,
                f"names stages and has {key!r} as well",
                accepted="title and stages; all else is theirs",
            )
    files = _files(place, tables["stages"])
    _check_names(place, files, settings)
    stages: dict[str, Experiment] = {}
    for name, file in files.items():
        if has_stages(file):
            raise FormatError(place, "names a file of stages as a stage:", field="stages", value=file.name)
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
    """All stages in turn, or what is left of them; for each of the `seeds` in a folder of its own.

    With `resume`, stages that are done are only read, one that was broken off goes on, the others begin.
    Raises before the first step what `check_stages` finds, and what `launch` does of each stage.
    """
    runs = [(staged, Path(out), "")]
    if seeds is not None:
        seeded = [(seed, staged.with_seed(seed)) for seed in different_seeds(seeds)]
        runs = [(run, Path(out) / f"seed-{seed}", f"seed {seed}, ") for seed, run in seeded]
    check_stages(staged, features)
    setup.by_first(lambda: _check_folders(runs, resume=resume, of_seeds=seeds is not None))
    results: dict[str, list[TrainingResult]] = {name: [] for name in staged.stages}
    for run, folder, before in runs:
        for number, (name, experiment) in enumerate(run.stages.items(), 1):
            if log and setup.writes:
                log(f"{before}stage {name} ({number} of {len(run.stages)})")
            begun = setup.agreed(resume and (folder / name / EXPERIMENT).exists())
            own = replace(setup, precision=experiment.training.precision)
            result = launch(experiment, features, folder / name, own, resume=begun, show=show, log=log)
            results[name].append(result)
            setup.agreed(None)  # what this stage wrote is there for every process
        if setup.writes:
            write_stages(folder, localizer=run.localizer, retriever=run.retriever)
    staged_result = StagedResult(staged.title or staged.name, Path(out), results, seeds is not None)
    if seeds is not None and setup.writes:
        write_json(Path(out) / SEEDS, staged_result.to_json())
    return staged_result


def check_stages(staged: StagedExperiment, features: str | Path) -> None:
    """Raise what is wrong with any stage before the first one begins, hours before it is its turn."""
    for experiment in staged.stages.values():
        inputs = ExperimentData.check(
            experiment.data, experiment.features, features, splits=("train", "validation")
        )
        experiment.check_negatives(experiment.config(inputs))
        check_lists(experiment, features)


def _files(place: Path, stages: Any) -> dict[str, Path]:
    """Name -> file of each stage."""
    accepted = 'a list of files, such as ["prem_retriever.toml", "prem_localizer.toml"]'
    if not isinstance(stages, list) or not stages:
        raise FormatError(
            place, "is no list of experiments:", field="stages", value=stages, accepted=accepted
        )
    files: dict[str, Path] = {}
    for name in stages:
        if not isinstance(name, str) or not name.endswith(".toml"):
            raise FormatError(
                place, "is no file of an experiment:", field="stages", value=name, accepted=accepted
            )
        file = place.parent / name
        if file.stem in files:
            raise FormatError(place, "two stages have the name", field="stages", value=file.stem)
        files[file.stem] = file
    return files


def _check_names(place: Path, files: Mapping[str, Path], settings: Sequence[str]) -> None:
    """Raise where a stage is called as a table of an experiment is, or a setting reaches neither."""
    for name in files:
        if name in KEYS or "." in name:
            raise FormatError(
                place,
                "is no name of a stage:",
                field="stages",
                value=name,
                accepted=f"a file whose name has no dot and is none of {', '.join(KEYS)}",
            )
    for setting in settings:
        name, equals, _ = setting.partition("=")
        first, _, rest = name.strip().partition(".")
        if equals and first in files and not rest:
            raise UsageError(f"--set {setting!r}: names a stage; accepted: such as {first}.training.epochs=3")
        if equals:
            refuse_unknown([first], [*files, *KEYS], f"--set {setting!r}: {place}")


def _settings_of(stage: str, files: Mapping[str, Path], settings: Sequence[str]) -> Iterator[str]:
    """The settings that reach a stage, in their order."""
    for setting in settings:
        first, _, rest = setting.strip().partition(".")
        if first == stage:
            yield rest
        elif first not in files and not _is_title(setting):
            yield setting


def _is_title(setting: str) -> bool:
    """Whether it names the whole, and no stage."""
    return setting.partition("=")[0].strip() == "title"


def _check_references(name: str, stages: Mapping[str, Experiment], place: Path) -> None:
    """Raise where a stage, the last of those read, names one that is not before it."""
    before = [stage for stage in stages if stage != name]
    data = stages[name].data
    for key, value in (
        ("first_stage", data.first_stage),
        ("retrieved.lists", data.retrieved.lists),
        ("retrieved.validation", data.retrieved.validation),
    ):
        if value.startswith(STAGE) and value.removeprefix(STAGE) not in before:
            raise UsageError(
                f"{stages[name].name} [data] {key} is {value!r}; before it {place} has the stages "
                f"{', '.join(before) or '(none)'}"
            )


def _check_folders(
    runs: Sequence[tuple[StagedExperiment, Path, str]], *, resume: bool, of_seeds: bool
) -> None:
    """Raise where a stage's folder is used, or, with `resume`, holds another training or none does."""
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
                begun = True
    if resume and not begun and not of_seeds:
        raise UsageError(f"{runs[0][1]}: there is no training here to resume; train without --resume")
