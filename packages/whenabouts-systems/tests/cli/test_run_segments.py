"""`whenabouts run --segments`: long videos by segments, from the command line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.small_split import save_run, write_split

from whenabouts.types import UsageError
from whenabouts_bench import formats
from whenabouts_systems.cli import run
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking import Ranker
from whenabouts_systems.ranking.proposals import SegmentSettings
from whenabouts_systems.ranking.split import SplitRun
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.experiment import load_experiment


@pytest.fixture()
def features(tmp_path: Path) -> Path:
    return write_split(tmp_path / "features")


def _called(*command: object) -> int:
    parser = argparse.ArgumentParser()
    run.add_parser(parser.add_subparsers())
    options = parser.parse_args(["run", "--device", "cpu", "--json", *map(str, command)])
    return int(options.run(options))


def _blocks(path: Path) -> list[Any]:
    return list(formats.open_run(str(path)).blocks())


def test_the_answers_are_those_of_the_segment_ranker(features: Path, tmp_path: Path, capsys: Any) -> None:
    first, second = save_run(features, tmp_path / "first"), save_run(features, tmp_path / "second", seed=1)
    out = tmp_path / "run.jsonl"
    asked = ("--features", features, "--out", out, "--segments", "4", "--video-weight", "5")
    assert _called("--retriever", first, "--localizer", second, *asked) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["segments"], told["tasks"]) == (4.0, ["VCMR"])
    experiment = load_experiment(features / "tiny.toml")
    trained = [Trained.from_pretrained(place) for place in (first, second)]
    with ExperimentData.open(experiment.data, experiment.features, features, splits=("test",)) as material:
        split = material.split("test")
        ranker = Ranker.by_segments(
            (trained[0], split), (trained[1], split), SegmentSettings(4.0), video_weight=5.0
        )
        (expected,) = SplitRun(ranker, split, ("VCMR",)).blocks()
    (found,) = _blocks(out)
    assert found.query_ids == expected.query_ids
    assert np.array_equal(found.offsets, expected.offsets)
    assert [found.video_ids[at] for at in found.video] == [expected.video_ids[at] for at in expected.video]
    for name in ("start", "end", "score"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name))


def test_a_system_alone_chooses_its_own_segments_for_all_tasks(features: Path, tmp_path: Path) -> None:
    place, out = save_run(features, tmp_path / "one"), tmp_path / "submission.json"
    assert _called("--checkpoint", place, "--features", features, "--out", out, "--segments", "4") == 0
    submission = json.loads(out.read_text())
    assert {"VCMR", "SVMR", "VR"} <= set(submission)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--segments", "0"), "segments: seconds is 0.0; accepted: a finite number, above 0"),
        (("--segments", "4", "--on-disk", "kept"), "--on-disk is for whole videos"),
        (("--segments", "4", "--confidence"), "--confidence is for whole videos"),
        (("--segments", "4", "--retriever", "RUN"), "run.jsonl ranks only videos; give a trained retriever"),
    ],
)
def test_what_does_not_go_with_segments_is_told(
    features: Path, tmp_path: Path, more: tuple[str, ...], message: str
) -> None:
    place, listed = save_run(features, tmp_path / "one"), tmp_path / "run.jsonl"
    listed.write_text('{"query_id": "q0", "moments": [{"video_id": "v0", "score": 1.0}]}\n')
    command = [str(listed) if one == "RUN" else one for one in more]
    out = tmp_path / "out.jsonl"
    with pytest.raises(UsageError, match=message):
        _called("--checkpoint", place, "--features", features, "--out", out, *command)
    assert not out.exists()
