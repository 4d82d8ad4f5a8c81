"""A split of six videos and their sentences with feature files, and small systems that read it."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import torch

from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.experiment import load_experiment

EXPERIMENT = """\
title = "tiny"
simulated = true
[data]
test = "test.jsonl"
[features]
query = "query.h5"
streams = { vision = "vision.h5" }
clip_seconds = 2.0
[model]
system = "xml"
hidden = 16
heads = 2
[training]
protocol = "vcmr"
"""
WIDTH, TOKENS, VIDEOS, QUERIES = 6, 4, 6, 8
CLIPS = 8
WORDS = ("a person opens", "the red door", "dogs run away", "she sits down", "he reads it", "they eat lunch")


def write_split(folder: Path) -> Path:
    """Eight queries of three words; the last two have the same ones."""
    folder.mkdir()
    random = np.random.default_rng(0)
    with h5py.File(folder / "query.h5", "w") as tokens, h5py.File(folder / "vision.h5", "w") as clips:
        for video in range(VIDEOS):
            clips[f"v{video}"] = random.normal(size=(CLIPS, WIDTH)).astype(np.float32)
        for query in range(QUERIES):
            tokens[f"q{query}"] = random.normal(size=(3, TOKENS)).astype(np.float32)
    lines = [
        {
            "vid_name": f"v{query % VIDEOS}",
            "duration": 2.0 * CLIPS - 0.5,
            "desc": "the same words" if query >= VIDEOS else f"{WORDS[query]}.",
            "desc_id": f"q{query}",
            "type": "v",
            "ts": [2.0, 5.0],
        }
        for query in range(QUERIES)
    ]
    (folder / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "tiny.toml").write_text(EXPERIMENT)
    return folder


def save_run(features: Path, place: Path, seed: int = 0, **decoding: object) -> Path:
    """A checkpoint as a training leaves it; random weights, large enough that its scores differ."""
    experiment = load_experiment(features / "tiny.toml")
    with ExperimentData.open(experiment.data, experiment.features, features, splits=("test",)) as material:
        inputs = material.inputs
    torch.manual_seed(seed)
    settings = {"streams": {"vision": WIDTH}, "query_width": TOKENS, "hidden": 16, "heads": 2}
    model = new_model("xml", config_of("xml", {**settings, "initializer_range": 0.3})).eval()
    Trained("xml", model, inputs, Decoding(max_clips=4, **decoding)).save_pretrained(place)  # type: ignore[arg-type]
    (place / "experiment.toml").write_text(experiment.to_toml())
    return place
