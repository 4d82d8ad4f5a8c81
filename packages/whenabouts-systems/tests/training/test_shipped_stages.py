"""Every shipped file of stages, and every row of paper 000, trains to its end on features of a few videos.

Only sizes and file names differ from the shipped settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from whenabouts_bench.relevance.pairs import ListedPairs, PairSettings, RelevantPairs
from whenabouts_systems.models import model_names
from whenabouts_systems.models.staged import read_stages
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.training.devices import open_device
from whenabouts_systems.training.experiment import FOLDER, Experiment, has_stages, load_experiment
from whenabouts_systems.training.launch import launch
from whenabouts_systems.training.stages import launch_stages, load_stages

pytestmark = pytest.mark.usefixtures("no_picture")

SHIPPED = sorted(path for path in FOLDER.rglob("*.toml") if has_stages(path))
QUICK = {"tvr/prem.toml", "charades_sta/crocs_stages.toml"}
SIZES = {"hidden": 16, "heads": 2, "feedforward": 32, "span_hidden": 8, "joint": 8, "map_layers": 2}
FILES = ("data.dataset=", "data.train=train.jsonl", "data.validation=val.jsonl", "features.query=query.h5")


@pytest.fixture()
def features(tiny: Any) -> Path:
    """The tiny data set with subtitles, which leave a video out, and a file of pairs."""
    random = np.random.default_rng(2)
    with h5py.File(tiny.folder / "vision.h5") as seen, h5py.File(tiny.folder / "sub.h5", "w") as said:
        for name in seen:
            rows = random.normal(size=(len(seen[name]), 5)) * (random.random((len(seen[name]), 1)) < 0.4)
            said[name] = (rows if name != "v1" else np.zeros_like(rows)).astype(np.float32)
    RelevantPairs(
        tuple(str(query) for query in range(20)),
        np.arange(20, dtype=np.int32),
        tuple(f"sentence {query}" for query in range(20)),
        PairSettings("sent", 0.9, "made", "made"),
        ListedPairs(np.array([0, *[1] * 20]), np.array([4], np.int32), np.array([0.95], np.float16)),
    ).save(tiny.folder / "pairs.safetensors")
    return Path(tiny.folder)


def small(experiment: Experiment) -> list[str]:
    """Settings that make an experiment small."""
    files = {stream: "sub.h5" if stream == "sub" else "vision.h5" for stream in experiment.features.streams}
    settings = [f"features.streams.{stream}={file}" for stream, file in files.items()]
    settings += [f"model.{key}={value}" for key, value in SIZES.items() if key in experiment.model]
    if "pooling_counts" in experiment.model:
        settings += ["features.max_clips=32", "model.pooling_counts=[15]"]
    if experiment.features.query.startswith("tokenizer:"):  # words are features here: no text encoder
        settings += ["training.rates={}", "training.frozen={}"]
    if experiment.features.sentences:  # HERO is its head then
        settings.append("features.sentences=''")
    if experiment.data.pairs:
        settings.append("data.pairs=pairs.safetensors")
    return [*settings, "features.clip_seconds=2.0", "training.epochs=1", "training.batch_size=4"]


def shipped() -> Iterator[Any]:
    for path in SHIPPED:
        name = path.relative_to(FOLDER).as_posix()
        yield pytest.param(path, id=name, marks=[] if name in QUICK else [pytest.mark.slow])


@pytest.mark.slow
@pytest.mark.parametrize("path", [*shipped()])
def test_a_shipped_file_of_stages_trains_to_its_end(path: Path, features: Path, tmp_path: Path) -> None:
    whole = load_stages(path)
    made_small = [f"{name}.{setting}" for name, one in whole.stages.items() for setting in small(one)]
    staged = load_stages(path, [*FILES, *made_small])
    outcome = launch_stages(staged, features, tmp_path / "run", open_device("cpu"))
    assert outcome.title == whole.title
    for name, (one,) in outcome.stages.items():
        assert one.reason == "its one epoch", name
        assert one.score is not None and np.isfinite(one.score), name
    stages = read_stages(tmp_path / "run")
    trained = Trained.from_pretrained(stages.localizer)
    assert trained.decoding == whole.stages[whole.localizer].decoding
    assert (stages.retriever is None) == (trained.system == "crocs")


@pytest.mark.parametrize("row", ["xml_pr", "xml_pr_c1", "xml_sl", "xml_sl_pr", "xml_sl_pr_c1"])
@pytest.mark.parametrize("dataset", ["charades_sta", "didemo", "activitynet_two_annotators"])
def test_a_row_of_paper_000_is_one_command_on_each_data_set(
    dataset: str, row: str, features: Path, tmp_path: Path
) -> None:
    run = trained_small(f"{dataset}/{row}", features, tmp_path / "run")
    losses = json.loads((run / "curves.jsonl").read_text(encoding="utf-8").splitlines()[-1])["losses"]
    segments = {name for name in losses if "moment" in name}
    assert bool(segments) == ("sl" in row)
    model = Trained.from_pretrained(run).model.config
    assert (model.uses_pairs, model.confidence_is_one) == ("pr" in row, row.endswith("c1"))


@pytest.mark.slow
def test_localizers_on_didemo_train_on_the_lists_of_heros_head(features: Path, tmp_path: Path) -> None:
    lists = trained_small("didemo/hero", features, tmp_path / "hero")
    ranked = f"data.retrieved.lists={lists}"
    for name, more in (("conquer", []), ("squidnet", [f"data.retrieved.validation={lists}"])):
        run = trained_small(f"didemo/{name}", features, tmp_path / name, ranked, *more)
        assert Trained.from_pretrained(run).system == name


@pytest.mark.parametrize("name", ["bet", "g2l"])
def test_a_baseline_of_the_mvmr_papers_is_one_command(name: str, features: Path, tmp_path: Path) -> None:
    run = trained_small(f"charades_sta/{name}", features, tmp_path / name)
    assert Trained.from_pretrained(run).system == name


def test_every_system_has_an_experiment() -> None:
    experiments = [load_experiment(path) for path in FOLDER.rglob("*.toml") if not has_stages(path)]
    assert {experiment.system for experiment in experiments} == set(model_names())


def trained_small(name: str, features: Path, run: Path, *more: str) -> Path:
    """The folder of a shipped experiment's training with small sizes."""
    path = FOLDER / f"{name}.toml"
    experiment = load_experiment(path, [*FILES, *small(load_experiment(path)), *more])
    outcome = launch(experiment, features, run, open_device("cpu"))
    assert outcome.reason == "its one epoch"
    assert outcome.score is not None and np.isfinite(outcome.score)
    return run


def test_the_files_are_those_of_the_papers_data_sets() -> None:
    names = {path.relative_to(FOLDER).as_posix() for path in SHIPPED}
    assert {*QUICK, "didemo/prem.toml", "simulated_charades/prem.toml"} <= names
