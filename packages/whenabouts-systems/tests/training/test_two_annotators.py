"""Experiments on data sets that a benchmark makes open on the files that the data set declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from whenabouts_bench.datasets import declaration_named
from whenabouts_systems.training.experiment import FOLDER, has_stages, load_experiment

FILES = [
    file
    for folder in ("activitynet_two_annotators", "titled_transcripts")
    for file in sorted((FOLDER / folder).glob("*.toml"))
    if not has_stages(file)
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_the_experiment_reads_the_files_that_the_data_set_declares(file: Path) -> None:
    experiment = load_experiment(file)
    declaration = declaration_named(experiment.data.dataset)
    assert declaration.name == file.parent.name.replace("_", "-")
    names = {name: feature for feature in declaration.features for name in feature.names}
    assert experiment.features.query in names
    (words,) = experiment.features.streams.values()
    assert names[words].clip_seconds == experiment.features.clip_seconds
    splits = {split.name for split in declaration.splits}
    assert {experiment.data.train, experiment.data.validation, experiment.data.test} <= splits
