"""Systems that answer windows train by their experiment files on files as QVHighlights has them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from whenabouts.types import UsageError
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.devices import open_device
from whenabouts_systems.training.experiment import FOLDER as SHIPPED
from whenabouts_systems.training.experiment import load_experiment
from whenabouts_systems.training.launch import launch

EXPERIMENTS = SHIPPED / "qvhighlights"
SMALL = (
    "training.epochs=2",
    "training.batch_size=8",
    "training.learning_rate=0.001",
    "training.evaluate_every=2",
    "model.hidden=16",
    "model.feedforward=24",
    "model.heads=2",
)
MORE = {"uvcom": ("model.inner=16",), "cg_detr": ("model.text_heads=2",)}
CLIPS, WIDTH = 20, 512


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Annotations and CLIP features of a few videos, in which a moment shows what the words say."""
    folder, generator = tmp_path_factory.mktemp("qvhighlights"), np.random.default_rng(0)
    for name in ("data", "features/clip_features", "features/clip_text_features"):
        (folder / name).mkdir(parents=True)
    asked = 0
    for split, count in {"train": 16, "val": 6, "test": 1}.items():
        lines = []
        for number in range(count):
            video, start = f"{split}{number}_0.0_40.0", int(generator.integers(0, 12))
            rows = generator.standard_normal((CLIPS, WIDTH)).astype(np.float32)
            words = generator.standard_normal((5, WIDTH)).astype(np.float32)
            rows[start : start + 6] = words[0]
            features = folder / "features"
            np.savez(features / "clip_features" / f"{video}.npz", features=rows)
            np.savez(features / "clip_text_features" / f"qid{asked}.npz", last_hidden_state=words)
            line = {"qid": asked, "query": "what it shows", "vid": video, "duration": 2 * CLIPS}
            told = {
                "relevant_windows": [[2 * start, 2 * start + 12], *([[38, 40]] if number % 4 == 0 else [])],
                "relevant_clip_ids": list(range(start, start + 6)),
                "saliency_scores": [[3, 4, 2]] * 6,
            }
            lines.append(json.dumps(line if split == "test" else line | told))
            asked += 1
        (folder / "data" / f"highlight_{split}_release.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_a_split_without_public_labels_is_no_training_set(folder: Path, tmp_path: Path) -> None:
    changes = [f"data.folder={folder / 'data'}", "data.train=test"]
    experiment = load_experiment(EXPERIMENTS / "qd_detr.toml", changes)
    with pytest.raises(
        UsageError, match=r"test: has no example .*: this split of qvhighlights has no public"
    ):
        launch(experiment, folder / "features", tmp_path / "run", open_device("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.toml")), ids=lambda path: path.stem)
def test_a_query_of_several_windows_comes_once_in_an_epoch_with_all_of_them(path: Path, folder: Path) -> None:
    experiment = load_experiment(path, [*SMALL, f"data.folder={folder / 'data'}"])
    with ExperimentData.open(experiment.data, experiment.features, folder / "features") as opened:
        train = opened.split("train")
        batches = list(train.batches(size=experiment.training.batch_size, epoch=1))
        planned = np.concatenate(train.plan(8, 0, 1))
    assert len(train) == 20
    assert sorted(train.query[planned].tolist()) == list(range(16))
    counts = torch.cat([batch.labels["windows"].isfinite().all(2).sum(1) for batch in batches])
    assert sorted(counts.tolist()) == [1] * 12 + [2] * 4


def test_max_windows_limits_the_windows_in_a_batch(folder: Path) -> None:
    """Four of the 16 queries have two windows; with a limit of one, each epoch draws one of them."""
    changes = [f"data.folder={folder / 'data'}", "data.max_windows=1"]
    experiment = load_experiment(EXPERIMENTS / "qd_detr.toml", changes)
    with ExperimentData.open(experiment.data, experiment.features, folder / "features") as opened:
        train = opened.split("train")
        windows = [train.batch(np.arange(20), epoch).labels["windows"] for epoch in range(8)]
    assert {tuple(one.shape) for one in windows} == {(20, 1, 2)}
    assert not all(torch.equal(one, windows[0]) for one in windows)


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_released_programs_learn_at_most_five_windows(path: Path) -> None:
    limits = [load_experiment(path, [f"as_released={value}"]).data.max_windows for value in ("false", "true")]
    assert limits == [0, 5]


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.toml")), ids=lambda path: path.stem)
def test_an_experiment_trains_and_is_measured(path: Path, folder: Path, tmp_path: Path) -> None:
    changes = [*SMALL, *MORE.get(path.stem, ()), f"data.folder={folder / 'data'}"]
    experiment = load_experiment(path, changes)
    launch(experiment, folder / "features", tmp_path / "run", open_device("cpu"))
    trained = Trained.from_pretrained(tmp_path / "run")
    assert trained.system == path.stem
    lines = (tmp_path / "run" / "curves.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    assert 0 <= last["metrics"]["R@1,IoU=0.5"] <= 1, last
