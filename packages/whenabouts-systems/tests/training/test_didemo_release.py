"""DiDeMo as HERO's authors released it: queries in a folder a split, features in LMDB; both train."""

from __future__ import annotations

import io
import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from whenabouts_systems.training.devices import open_device
from whenabouts_systems.training.experiment import FOLDER as SHIPPED
from whenabouts_systems.training.experiment import load_experiment
from whenabouts_systems.training.launch import launch

pytestmark = pytest.mark.usefixtures("no_picture")
lmdb = pytest.importorskip("lmdb")

EXPERIMENTS = SHIPPED / "didemo"
SMALL = (
    "model.hidden=16",
    "model.heads=2",
    "training.epochs=1",
    "training.batch_size=4",
    "training.warmup=0",
)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six videos of 20 clips, three of them to train on; a query each, marked by four annotators."""
    folder, random = tmp_path_factory.mktemp("didemo"), np.random.default_rng(0)
    with h5py.File(folder / "didemo_query_roberta.h5", "w") as words:
        for number in range(6):
            words[str(number)] = random.standard_normal((4, 8)).astype(np.float32)
    with (
        lmdb.open(str(folder / "resnet_slowfast_1.5"), map_size=1 << 24) as features,
        features.begin(write=True) as writing,
    ):
        for number in range(6):
            array = io.BytesIO()
            np.savez_compressed(array, features=random.standard_normal((20, 12)).astype(np.float16))
            writing.put(f"video {number}.mov".encode(), array.getvalue())
    for split, numbers in (("train", (0, 1, 2)), ("val", (3, 4)), ("test", (5,))):
        path = folder / f"didemo_{split}.db" / "query_data.jsonl"
        path.parent.mkdir()
        path.write_text("".join(line(number) for number in numbers), encoding="utf-8")
    return folder


def line(number: int) -> str:
    """A query about its video, whose moment three of four annotators marked."""
    moment = [5 * number, 5 * number + 5]
    told = {"desc_id": number, "desc": f"thing {number}", "vid_name": f"video {number}.mov"}
    return json.dumps({**told, "ts": [moment, [0, 30], moment, moment]}) + "\n"


@pytest.mark.parametrize("name", ["reloclnet.toml", "xml_slowfast.toml"])
def test_an_experiment_trains_on_the_release_as_it_is_unpacked(
    name: str, release: Path, tmp_path: Path
) -> None:
    experiment = load_experiment(EXPERIMENTS / name, list(SMALL))
    assert experiment.data.dataset == "didemo"
    lines: list[str] = []
    outcome = launch(experiment, release, tmp_path / "run", open_device("cpu"), log=lines.append)
    assert outcome.reason == "its one epoch"
    assert outcome.score is not None
    assert np.isfinite(outcome.score)
    assert any("3 examples of 3 queries in 3 videos, 60 clips" in told for told in lines), lines
