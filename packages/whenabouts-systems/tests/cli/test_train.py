"""`whenabouts train` as a person meets it: output, exit codes, one-line errors."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_systems.cli import train
from whenabouts_systems.training.run_folder import RunFolder

EXPERIMENT = """\
title = "tiny"
simulated = true
[data]
train = "train.jsonl"
validation = "train.jsonl"
[features]
query = "query.h5"
streams = { vision = "vision.h5" }
clip_seconds = 2.0
[model]
system = "xml"
hidden = 8
heads = 2
[training]
epochs = 2
batch_size = 4
"""


@pytest.fixture()
def features(tmp_path: Path) -> Path:
    """Six examples in three videos of five clips."""
    folder = tmp_path / "features"
    folder.mkdir()
    random = np.random.default_rng(0)
    with h5py.File(folder / "query.h5", "w") as tokens, h5py.File(folder / "vision.h5", "w") as clips:
        for video in range(3):
            clips[f"v{video}"] = random.normal(size=(5, 6)).astype(np.float32)
        for query in range(6):
            tokens[str(query)] = random.normal(size=(3, 4)).astype(np.float32)
    lines = [
        {
            "vid_name": f"v{query // 2}",
            "duration": 10.0,
            "desc": f"s {query}",
            "desc_id": query,
            "type": "v",
            "ts": [2, 6],
        }
        for query in range(6)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "tiny.toml").write_text(EXPERIMENT)
    return folder


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No picture, and one thread: such steps are too small to be shared."""
    monkeypatch.setattr(RunFolder, "draw_curves", lambda *_: None)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def ran(features: Path, *more: str, file: str = "tiny.toml") -> int:
    parser = argparse.ArgumentParser()
    train.add_parser(parser.add_subparsers())
    command = ["train", str(features / file), "--features", str(features), "--device", "cpu", *more]
    options = parser.parse_args(command)
    return int(options.run(options))


def test_a_training_is_told_as_a_table(features: Path, tmp_path: Path, capsys: Any) -> None:
    assert ran(features, "--out", str(tmp_path / "run"), "--table") == 0
    told = capsys.readouterr()
    assert "tiny (simulated features), seed 2018" in told.out
    assert "4 steps in 0 min" in told.out
    assert "ended: all 2 epochs" in told.out
    assert "VR R@1" in told.out
    assert "±" not in told.out
    lines = told.err.splitlines()
    assert [line.split("  ")[0] for line in lines if line.startswith("epoch")] == ["epoch 1/2", "epoch 2/2"]
    assert "R@1,IoU=0.5" in lines[-1]
    assert "steps/s" in lines[-1]


def test_a_training_is_told_as_json(features: Path, tmp_path: Path, capsys: Any) -> None:
    assert ran(features, "--out", str(tmp_path / "run"), "--json", "--set", "training.epochs=1") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ended"] == "its one epoch"
    assert told["simulated"] is True
    assert set(told["best"]) == {"step", "metric", "score"}


@pytest.mark.slow
def test_seeds_are_told_with_their_deviation(features: Path, tmp_path: Path, capsys: Any) -> None:
    assert ran(features, "--out", str(tmp_path / "runs"), "--seeds", "1,2", "--table") == 0
    shown = capsys.readouterr()
    told = shown.out
    assert "mean ± deviation, %" in told
    assert told.count(" ± ") > 10
    assert [line for line in shown.err.splitlines() if line.startswith("seed ")] == ["seed 1", "seed 2"]
    assert ran(features, "--out", str(tmp_path / "runs"), "--seeds", "1,2", "--json", "--resume") == 0
    again = json.loads(capsys.readouterr().out)
    assert again == json.loads((tmp_path / "runs" / "seeds.json").read_text())
    assert again["seeds"] == [1, 2]
    with pytest.raises(UsageError, match="--seeds '1,x': accepted: whole numbers"):
        ran(features, "--out", str(tmp_path / "more"), "--seeds", "1,x")


def test_options_reach_the_experiment(features: Path, tmp_path: Path, capsys: Any) -> None:
    moved = tmp_path / "annotations"
    moved.mkdir()
    (features / "train.jsonl").rename(moved / "train.jsonl")
    ran(features, "--out", str(tmp_path / "run"), "--data", str(moved), "--precision", "bf16", "--json")
    capsys.readouterr()
    resolved = (tmp_path / "run" / "experiment.toml").read_text()
    assert 'precision = "bf16"' in resolved
    assert f'folder = "{moved}"' in resolved
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["machine"]["device"] == "cpu, bf16"
    with pytest.raises(UsageError, match="none: not a folder; give the folder of the annotations"):
        ran(features, "--out", str(tmp_path / "x"), "--data", "none")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--set", "training.epocs=3"],
            r"tiny\.toml \[training\]: there is no 'epocs'; did you mean 'epochs'",
        ),
        (["--set", "model.heads=3"], r"tiny\.toml \[model\]: .*hidden = 8 is no multiple of heads = 3"),
        (["--set", "data.train=none.jsonl"], r"none\.jsonl: cannot be read"),
        (["--set", "features.query=none.h5"], r"none\.h5"),
        (["--set", "model.query_width=9"], r"tiny\.toml \[model\] query_width is 9, .* say 4; leave it out"),
        (["--set", "features.streams.vision=query.h5"], r"query\.h5.*'?v0'?"),
        (["--resume"], "no training here to resume"),
        (["--device", "tpu9"], "device 'tpu9' is not available"),
    ],
)
def test_what_is_wrong_is_one_line_before_anything_is_written(
    features: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    with pytest.raises(WhenaboutsError, match=message) as raised:
        ran(features, "--out", str(tmp_path / "run"), *options)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run" / "experiment.toml").exists()


def test_whoever_stops_a_training_is_told_how_it_goes_on(
    features: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("whenabouts_systems.cli.work.train.launch", stopped)
    with pytest.raises(KeyboardInterrupt):
        ran(features, "--out", str(tmp_path / "run"))
    assert "with --resume continues from the last saved state" in capsys.readouterr().err


def test_a_tilde_in_out_means_the_home_folder(
    features: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match=f"^{tmp_path / 'run'}: there is no training here to resume"):
        ran(features, "--out", "~/run", "--resume")


@pytest.fixture()
def staged(features: Path) -> Path:
    """XML, then CONQUER with negatives of XML's lists."""
    (features / "second.toml").write_text(
        'extends = "tiny.toml"\ntitle = "second"\n[data.retrieved]\nlists = "stage:tiny"\nvideos = 1\n'
        '[model]\nsystem = "conquer"\nclusters = 2\n[training]\nmetric = "SVMR R@1,IoU=0.5"\n'
    )
    (features / "both.toml").write_text('title = "both"\nstages = ["tiny.toml", "second.toml"]\n')
    return features


@pytest.mark.slow
def test_stages_are_told_one_after_the_other(staged: Path, tmp_path: Path, capsys: Any) -> None:
    one = "training.epochs=1"
    assert ran(staged, "--out", str(tmp_path / "run"), "--set", one, "--table", file="both.toml") == 0
    told = capsys.readouterr()
    begun = [line for line in told.err.splitlines() if line.startswith(("stage", "negatives"))]
    assert begun == [
        "stage tiny (1 of 2)",
        "stage second (2 of 2)",
        "negatives   1 for each query and epoch, of the first 100 videos in the lists of "
        f"{tmp_path}/run/tiny",
    ]
    assert [line for line in told.out.splitlines() if line.startswith("stage")] == [
        "stage tiny",
        "stage second",
    ]
    first, second = told.out.split("stage second")
    assert "\nVR R@1" in first  # CONQUER chooses no videos
    assert "\nVR R@1" not in second
    assert "\nSVMR R@1" in second
    assert f"both: {tmp_path / 'run'}" in told.out


@pytest.mark.slow
def test_stages_are_told_as_json_and_may_have_settings_and_seeds(
    staged: Path, tmp_path: Path, capsys: Any
) -> None:
    more = ("--set", "second.training.epochs=1", "--precision", "bf16", "--json")
    assert ran(staged, "--out", str(tmp_path / "run"), *more, file="both.toml") == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told["stages"]) == ["tiny", "second"]
    assert [one["ended"] for one in told["stages"].values()] == ["all 2 epochs", "its one epoch"]
    assert 'precision = "bf16"' in (tmp_path / "run" / "second" / "experiment.toml").read_text()
    about = json.loads((tmp_path / "run" / "second" / "run.json").read_text())
    assert about["machine"]["device"] == "cpu, bf16"
    short = ("--set", "training.epochs=1", "--json", "--seeds", "1,2")
    assert ran(staged, "--out", str(tmp_path / "runs"), *short, file="both.toml") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["stages"]["second"]["seeds"] == [1, 2]
    assert set(told["stages"]["second"]["metrics"]["SVMR R@1,IoU=0.5"]) == {"mean", "deviation", "values"}


def test_a_wrong_stage_is_one_line_before_anything_is_written(staged: Path, tmp_path: Path) -> None:
    for options, message in (
        (["--set", "thrd.training.epochs=1"], "there is no 'thrd'"),
        (["--set", "second.model.heads=3"], "no multiple of heads = 3"),
        (["--resume"], "no training here to resume"),
        (["--data", "none"], "none: not a folder"),
    ):
        with pytest.raises(WhenaboutsError, match=message) as raised:
            ran(staged, "--out", str(tmp_path / "run"), *options, file="both.toml")
        assert "\n" not in str(raised.value)
        assert not (tmp_path / "run").exists()


def test_no_process_at_all_is_refused(features: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--processes 0: accepted: a whole number, 1 or more"):
        ran(features, "--out", str(tmp_path / "run"), "--processes", "0")
    assert not (tmp_path / "run").exists()


def test_a_missing_feature_is_named_and_the_folder_can_be_used_afterwards(
    features: Path, tmp_path: Path
) -> None:
    with h5py.File(features / "vision.h5", "r+") as opened:
        rows = opened["v1"][:]
        del opened["v1"]
    with pytest.raises(WhenaboutsError, match="v1"):
        ran(features, "--out", str(tmp_path / "run"), "--json")
    with h5py.File(features / "vision.h5", "r+") as opened:
        opened["v1"] = rows
    assert ran(features, "--out", str(tmp_path / "run"), "--json") == 0
