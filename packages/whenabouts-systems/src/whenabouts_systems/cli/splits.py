"""Open a split of a data set and a trained system; the checkpoint's experiment names the files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whenabouts.cli.terminal import print_notes
from whenabouts.types import UsageError
from whenabouts_systems.models import staged
from whenabouts_systems.models.staged import SYSTEM
from whenabouts_systems.models.trained import FILES, Trained
from whenabouts_systems.ranking.split_run import check_pair
from whenabouts_systems.training.data import SPLITS, Examples, ExperimentData
from whenabouts_systems.training.experiment import Experiment, load_experiment
from whenabouts_systems.training.run_folder import EXPERIMENT


def stages_named(checkpoint: str, retriever: str | None) -> tuple[str | None, str]:
    """The system that chooses videos (None: the localizer itself), and the localizer, which finds moments.

    `retriever` replaces the retriever of a staged run (`models/staged.py`).
    """
    if retriever is not None:
        return str(staged.retriever_of(retriever)), str(staged.localizer_of(checkpoint))
    chooser, localizer = staged.stages_of(checkpoint)
    return (None if chooser is None else str(chooser)), str(localizer)


@dataclass(frozen=True, eq=False)
class OpenedSystem:
    """A trained system and the split that it reads; `place` is its folder or its name on a hub."""

    place: str
    trained: Trained
    experiment: Experiment
    split: Examples


@dataclass(frozen=True)
class SplitOptions:
    """Options of a split: name (None: see `_usual_split`), folders of features and annotations, device."""

    split: str | None
    features: str
    data: str | None
    device: Any

    def opened(self, files: ExitStack, place: str, experiment: str | None = None) -> OpenedSystem:
        """Open a system and the split; `experiment`, if given, names the files, else the system's own."""
        trained = Trained.from_pretrained(place)
        trained.model.to(self.device)
        named = experiment_of(place, experiment, self.data)
        split = opened_split(files, trained, named, self.features, self.split or _usual_split(named))
        return OpenedSystem(place, trained, named, split)

    def retriever(self, files: ExitStack, place: str, localizer: OpenedSystem) -> OpenedSystem:
        """Open a retriever for `localizer`. Raises UsageError if one of them cannot do its part."""
        opened = replace(self, split=localizer.split.name).opened(files, place)
        check_pair(opened, localizer, place)
        return opened


def _usual_split(experiment: Experiment) -> str:
    """The first of test, validation and train that the experiment has; with a note if it is not test."""
    split = next((name for name in ("test", "validation", "train") if getattr(experiment.data, name)), "test")
    if split != "test":
        print_notes([f"{experiment.name} names no test split: this is its {split} split (--split)"])
    return split


def files_of_system(place: str) -> Iterator[Path]:
    """The files that the folder of a trained system or staged run may have; these need not exist."""
    for name in (*FILES, SYSTEM, EXPERIMENT):
        yield Path(place).expanduser() / name


def files_of_features(experiment: Experiment, folder: str) -> Iterator[Path]:
    """The files that [features] of an experiment names, for any split; for a folder, all files in it."""
    names = (experiment.features.query, experiment.features.sentences, *experiment.features.streams.values())
    replaced = {name.replace("{split}", split) for name in names if name for split in SPLITS}
    for path in (Path(folder).expanduser() / name for name in replaced):
        yield from path.rglob("*") if path.is_dir() else (path,)


def experiment_of(checkpoint: str, named: str | None, data: str | None) -> Experiment:
    """The experiment that names the files: `named`, or that of the checkpoint's training."""
    in_checkpoint = Path(checkpoint).expanduser() / EXPERIMENT
    if named is None and not in_checkpoint.is_file():
        raise UsageError(
            f"{checkpoint}: has no {EXPERIMENT}, which names the feature files and annotations; "
            "give a file with the tables [data] and [features] with --experiment"
        )
    experiment = load_experiment(named or in_checkpoint)
    if named is None:
        # A checkpoint may come from a stranger, so its experiment must not choose where a cache is made.
        experiment = replace(experiment, features=replace(experiment.features, cache=""))
    return experiment.with_data(data) if data else experiment


def opened_split(
    files: ExitStack, trained: Trained, experiment: Experiment, features: str, split: str
) -> Examples:
    """Open the split; its features must match those that the checkpoint was trained on."""
    if split not in SPLITS:
        raise UsageError(f"--split {split!r}: accepted: {', '.join(SPLITS)}")
    material = ExperimentData.open(
        experiment.data, experiment.features, features, inputs=trained.inputs, splits=(split,)
    )
    return files.enter_context(material).split(split)
