"""A data set so small that a training takes a second: its sentences mean clips of its videos."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from whenabouts_systems.training import run_folder

CLIP = 2.0
EXPERIMENT = """\
title = "tiny"

[data]
train = "train.jsonl"
validation = "val.jsonl"

[features]
query = "query.h5"
streams = { vision = "vision.h5" }
clip_seconds = 2.0
max_clips = 16

[model]
system = "xml"
hidden = 16
heads = 2

[training]
epochs = 3
batch_size = 8
learning_rate = 1e-3
evaluate_every = 1
patience = "none"
"""


@dataclass(frozen=True)
class Tiny:
    """Features, annotations and an experiment in one folder."""

    folder: Path
    experiment: Path

    def replace_rows(self, file: str, name: str, rows: Any) -> None:
        """Other features for one item."""
        with h5py.File(self.folder / file, "r+") as opened:
            del opened[name]
            opened[name] = rows


@pytest.fixture(scope="session")
def shared_tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """20 examples in 5 videos to learn, 8 in 2 to validate; to be read only."""
    return make_tiny(tmp_path_factory.mktemp("shared") / "tiny")


@pytest.fixture()
def tiny(shared_tiny: Tiny, tmp_path: Path) -> Tiny:
    """The same in a folder of the test's own."""
    folder = shutil.copytree(shared_tiny.folder, tmp_path / "tiny")
    return Tiny(folder, folder / "tiny.toml")


def make_tiny(folder: Path) -> Tiny:
    folder.mkdir()
    random = np.random.default_rng(0)
    tokens, clips = {}, {}
    for split, videos in (("train", range(5)), ("val", range(5, 7))):
        lines = []
        for video in videos:
            name, count = f"v{video}", 6 + video
            clips[name] = random.normal(size=(count, 8)).astype(np.float32)
            for number in range(4):
                first = int(random.integers(0, count - 2))
                query = video * 4 + number
                tokens[str(query)] = np.repeat(clips[name][first : first + 2, :6], 2, axis=0)
                lines.append(
                    {
                        "vid_name": name,
                        "duration": count * CLIP,
                        "desc": f"sentence {query}",
                        "desc_id": query,
                        "type": "v",
                        "ts": [first * CLIP, (first + 2) * CLIP],
                    }
                )
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for file, rows in (("query.h5", tokens), ("vision.h5", clips)):
        with h5py.File(folder / file, "w") as opened:
            for name, one in rows.items():
                opened[name] = one
    experiment = folder / "tiny.toml"
    experiment.write_text(EXPERIMENT)
    return Tiny(folder, experiment)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Sums are added in one order, on a machine of any size."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def no_picture() -> Iterator[None]:
    """No picture of the curves: drawing takes longer than such a training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folder.RunFolder, "draw_curves", lambda *_: None)
        yield
