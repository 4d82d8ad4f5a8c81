"""A split of a data set, opened as the experiment of a checkpoint names it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from cuepoint.types import UsageError

if TYPE_CHECKING:
    from cuepoint.models.trained import Trained
    from cuepoint.training.experiment import Experiment
    from cuepoint.training.material import Lessons


def experiment_of(checkpoint: str, named: str | None, data: str | None) -> Experiment:
    """The experiment that names the files: the one given, or that of the checkpoint's training."""
    from cuepoint.training.experiment import load_experiment
    from cuepoint.training.run_folder import EXPERIMENT
    from cuepoint.training.start import with_data

    own = Path(checkpoint) / EXPERIMENT
    if named is None and not own.is_file():
        raise UsageError(
            f"{checkpoint}: has no {EXPERIMENT}, which names the feature files and annotations; "
            "give a file with the tables [data] and [features] with --experiment"
        )
    experiment = load_experiment(named or own)
    return with_data(experiment, data) if data else experiment


def opened_split(
    files: ExitStack, trained: Trained, experiment: Experiment, features: str, split: str
) -> Lessons:
    """The split, its features checked against what the checkpoint was trained on."""
    from cuepoint.training.material import SPLITS, Material

    if split not in SPLITS:
        raise UsageError(f"--split {split!r}: accepted: {', '.join(SPLITS)}")
    material = Material.open(
        experiment.data, experiment.features, features, inputs=trained.inputs, splits=(split,)
    )
    return files.enter_context(material).split(split)
