"""The experiment on ActivityNet's two annotators opens on the data set that `write_two_annotators` makes."""

from __future__ import annotations

from whenabouts_bench.datasets import declaration_named
from whenabouts_systems.training.experiment import FOLDER, load_experiment


def test_the_experiment_reads_the_files_that_the_data_set_declares() -> None:
    experiment = load_experiment(FOLDER / "activitynet_two_annotators" / "xml.toml")
    declaration = declaration_named(experiment.data.dataset)
    assert declaration.name == "activitynet-two-annotators"
    names = {name: feature for feature in declaration.features for name in feature.names}
    assert experiment.features.query in names
    (words,) = experiment.features.streams.values()
    assert names[words].clip_seconds == experiment.features.clip_seconds
    splits = {split.name for split in declaration.splits}
    assert {experiment.data.train, experiment.data.validation, experiment.data.test} == splits
