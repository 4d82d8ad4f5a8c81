"""Several trainings in one command: what is checked before the first, what is left, what goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import h5py
import pytest
import torch
from safetensors.torch import load_file
from tests.training.broken_off import Killed, assert_same_tensors, dying_at

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_systems.models.staged import read_stages
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.devices import open_device
from whenabouts_systems.training.experiment import has_stages, load_experiment
from whenabouts_systems.training.launch import launch
from whenabouts_systems.training.loop import Progress
from whenabouts_systems.training.stages import StagedResult, launch_stages, load_stages

pytestmark = pytest.mark.usefixtures("no_picture")

TENSORS = ("model.safetensors", "state.safetensors")

SECOND = """\
extends = "tiny.toml"
title = "second"
[data.retrieved]
lists = "stage:tiny"
videos = 2
[model]
system = "conquer"
clusters = 2
span_hidden = 8
span_kernel = 3
[training]
epochs = 2
metric = "SVMR R@1,IoU=0.5"
"""


@pytest.fixture()
def staged(tiny: Any) -> Path:
    """XML, and CONQUER with negatives of XML's lists."""
    return both(tiny)


def both(tiny: Any) -> Path:
    (tiny.folder / "second.toml").write_text(SECOND)
    return stages_file(tiny.folder, ["tiny.toml", "second.toml"])


@pytest.fixture(scope="module")
def whole(
    shared_tiny: Any, no_picture: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Any, Any]:
    """A staged training that was not broken off: folder, result, lines logged; to be read only."""
    out, lines = tmp_path_factory.mktemp("whole") / "run", list[str]()
    return out, trained(both(shared_tiny), out, log=lines.append), lines


@pytest.fixture(scope="module")
def short(shared_tiny: Any, no_picture: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder and the result of a staged training of one epoch each; to be read only."""
    out = tmp_path_factory.mktemp("short") / "run"
    return out, trained(both(shared_tiny), out, "training.epochs=1")


def stages_file(folder: Path, stages: Sequence[Any], name: str = "both.toml") -> Path:
    path = folder / name
    path.write_text(f'title = "both"\nstages = {json.dumps(stages)}\n')
    return path


def trained(path: Path, out: Path, *settings: str, **more: Any) -> StagedResult:
    return launch_stages(load_stages(path, settings), path.parent, out, open_device("cpu"), **more)


def test_stages_are_trained_in_turn_into_folders_of_their_names(whole: tuple[Path, Any, Any]) -> None:
    run, outcome, lines = whole
    assert [line for line in lines if line.startswith("stage")] == [
        "stage tiny (1 of 2)",
        "stage second (2 of 2)",
    ]
    assert {path.name for path in run.iterdir()} == {"tiny", "second", "system.json"}
    assert json.loads((run / "system.json").read_text()) == {
        "format": 1,
        "retriever": "tiny",
        "localizer": "second",
    }
    found = read_stages(run)
    assert Trained.from_pretrained(found.retriever or "").system == "xml"
    assert Trained.from_pretrained(found.localizer).system == "conquer"
    assert {name: [one.reason for one in each] for name, each in outcome.stages.items()} == {
        "tiny": ["all 3 epochs"],
        "second": ["all 2 epochs"],
    }
    assert outcome.to_json()["stages"]["second"]["folder"] == str(run / "second")


@pytest.mark.slow
def test_stages_give_what_trainings_one_by_one_give(
    whole: tuple[Path, Any, Any], staged: Path, tmp_path: Path
) -> None:
    machine, folder = open_device("cpu"), staged.parent
    launch(load_experiment(folder / "tiny.toml"), folder, tmp_path / "one", machine)
    settings = [f"data.retrieved.lists={tmp_path / 'one'}"]
    launch(load_experiment(folder / "second.toml", settings), folder, tmp_path / "two", machine)
    assert_same_tensors(whole[0] / "tiny", tmp_path / "one", *TENSORS)
    assert_same_tensors(whole[0] / "second", tmp_path / "two", *TENSORS)


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "step"), [("tiny", 5), ("second", 2)])
def test_a_training_killed_in_any_stage_goes_on_to_the_same_numbers(
    whole: tuple[Path, Any, Any], staged: Path, tmp_path: Path, stage: str, step: int
) -> None:
    begun: list[str] = []

    def kill(progress: Progress) -> None:
        if stage in begun[-1] and progress.state.step == step:
            raise Killed

    with pytest.raises(Killed):
        trained(staged, tmp_path / "broken", show=kill, log=lambda line: _note(begun, line))
    assert not (tmp_path / "broken" / "system.json").exists()
    told: list[str] = []
    outcome = trained(staged, tmp_path / "broken", resume=True, log=told.append)
    for name in ("tiny", "second"):
        assert_same_tensors(whole[0] / name, tmp_path / "broken" / name, *TENSORS)
    assert (tmp_path / "broken" / "system.json").is_file()
    assert outcome.stages["second"][0].reason == "all 2 epochs"
    if stage == "second":  # the first one is only told again
        assert sum("20 examples" in line for line in told) == 1


def _note(begun: list[str], line: str) -> None:
    if line.startswith("stage"):
        begun.append(line)


def test_a_folder_that_was_moved_goes_on(short: tuple[Path, Any], staged: Path, tmp_path: Path) -> None:
    shutil.copytree(short[0], tmp_path / "there")
    shutil.rmtree(tmp_path / "there" / "second")
    outcome = trained(staged, tmp_path / "there", "training.epochs=1", resume=True)
    assert outcome.stages["second"][0].steps == 3
    assert_same_tensors(short[0] / "second", tmp_path / "there" / "second", *TENSORS)


def test_settings_reach_one_stage_or_all(staged: Path) -> None:
    settings = ["training.epochs=7", "second.training.epochs=5", "second.model.hidden=8", "training.seed=3"]
    found = load_stages(staged, settings).stages
    assert [one.training.epochs for one in found.values()] == [7, 5]
    assert [one.model["hidden"] for one in found.values()] == [16, 8]
    assert [one.training.seed for one in found.values()] == [3, 3]
    later = load_stages(staged, ["second.training.epochs=5", "training.epochs=7"]).stages
    assert [one.training.epochs for one in later.values()] == [7, 7]


def test_a_title_that_is_set_is_that_of_the_whole(staged: Path) -> None:
    found = load_stages(staged, ["title=Both, longer", "second.title=The second", "training.epochs=2"])
    assert found.title == "Both, longer"
    assert [one.title for one in found.stages.values()] == ["tiny", "The second"]
    with pytest.raises(UsageError, match=r"both\.toml title is 3; accepted: a text"):
        load_stages(staged, ["title=3"])
    with pytest.raises(UsageError, match="accepted: KEY=VALUE"):
        load_stages(staged, ["title"])


@pytest.mark.slow
def test_stages_that_were_broken_off_before_anything_was_written_begin(staged: Path, tmp_path: Path) -> None:
    settings = ("training.epochs=1",)
    with pytest.raises(Killed):
        trained(staged, tmp_path / "run", *settings, log=dying_at("train"))
    assert {path.name for path in (tmp_path / "run").rglob("*")} == {"tiny", ".lock"}
    outcome = trained(staged, tmp_path / "run", *settings, resume=True)
    assert [len(one) for one in outcome.stages.values()] == [1, 1]


@pytest.mark.slow
def test_each_seed_has_all_stages_in_a_folder_of_its_own(staged: Path, tmp_path: Path) -> None:
    told: list[str] = []
    settings = ("training.epochs=1",)
    outcome = trained(staged, tmp_path / "runs", *settings, seeds=[1, 2], log=told.append)
    assert [line for line in told if line.startswith("seed")] == [
        f"seed {seed}, stage {name} ({at} of 2)"
        for seed in (1, 2)
        for at, name in enumerate(("tiny", "second"), 1)
    ]
    for seed in (1, 2):
        folder = tmp_path / "runs" / f"seed-{seed}"
        assert read_stages(folder).localizer == folder / "second"
        for name in ("tiny", "second"):
            assert load_experiment(folder / name / "experiment.toml").training.seed == seed
    kept = json.loads((tmp_path / "runs" / "seeds.json").read_text())
    assert kept == outcome.to_json()
    assert kept["stages"]["second"]["seeds"] == [1, 2]
    more = trained(staged, tmp_path / "runs", *settings, seeds=[1, 2, 3], resume=True)
    assert [one.seed for one in more.stages["second"]] == [1, 2, 3]
    with pytest.raises(UsageError, match="one is repeated"):
        trained(staged, tmp_path / "x", seeds=[1, 1])


def test_the_last_stage_stands_alone_where_it_learns_from_no_lists(tiny: Any, tmp_path: Path) -> None:
    (tiny.folder / "more.toml").write_text(
        'extends = "tiny.toml"\n[data]\nfirst_stage = "stage:tiny"\nnegatives = { videos = 0, queries = 0 }\n'
    )
    path = stages_file(tiny.folder, ["tiny.toml", "more.toml"])
    settings = ["tiny.training.epochs=1", "more.training.learning_rate=1e-12", "more.training.epochs=1"]
    trained(path, tmp_path / "run", *settings)
    told = json.loads((tmp_path / "run" / "system.json").read_text())
    assert told == {"format": 1, "localizer": "more"}
    first, second = (load_file(tmp_path / "run" / name / "model.safetensors") for name in ("tiny", "more"))
    for name, weight in first.items():
        torch.testing.assert_close(second[name], weight, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["secnd.training.epochs=3"], r"there is no 'secnd'; did you mean 'second'.*tiny, second, title"),
        (
            ["second=3"],
            r"--set 'second=3': names a stage without a key; give one, such as second\.training\.epochs=3",
        ),
        (["second.training.epocs=3"], r"second\.toml \[training\]: there is no 'epocs'"),
        (["stages=[]"], r"there is no 'stages'"),
        (["training.epochs"], r"--set 'training\.epochs': accepted: KEY=VALUE"),
        (
            ["second.data.retrieved.lists=stage:first"],
            r"second\.toml \[data\] retrieved\.lists is 'stage:first'; the earlier stages in .* are tiny",
        ),
        (
            ["second.data.retrieved.lists=stage:second"],
            r"is 'stage:second'; the earlier stages in .* are tiny",
        ),
        (
            ["tiny.data.first_stage=stage:second"],
            r"first_stage is 'stage:second'; the earlier stages in .* are \(none\)",
        ),
    ],
)
def test_a_wrong_setting_is_named_before_anything_is_read(
    staged: Path, settings: list[str], message: str
) -> None:
    with pytest.raises(WhenaboutsError, match=message):
        load_stages(staged, settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stages = []", "stages: is not a list of experiments"),
        ('stages = "tiny.toml"', "is not a list of experiments"),
        ('stages = ["tiny.toml", 3]', "is not the file of an experiment"),
        ('stages = ["tiny"]', "is not the file of an experiment"),
        ('stages = ["tiny.toml", "none.toml"]', r"none\.toml: "),
        ('stages = ["tiny.toml", "tiny.toml"]', "two stages have the name"),
        ('stages = ["both.toml"]', "lists a file of stages as a stage"),
        ('stages = ["data.toml"]', "cannot be the name of a stage"),
        ('stages = ["tiny.toml"]\n[training]\nepochs = 3', "lists stages and also has 'training'"),
        ('stages = ["tiny.toml"]\ntitle = 3', "title is 3; accepted: a text"),
    ],
)
def test_a_wrong_file_of_stages_is_named(tiny: Any, text: str, message: str) -> None:
    path = tiny.folder / "both.toml"
    path.write_text(text)
    with pytest.raises(WhenaboutsError, match=message) as raised:
        load_stages(path)
    assert "\n" not in str(raised.value)


def test_a_file_of_stages_is_no_experiment(staged: Path) -> None:
    assert has_stages(staged)
    assert not has_stages(staged.parent / "tiny.toml")
    with pytest.raises(UsageError, match=r"both\.toml: lists stages"):
        load_experiment(staged)
    with pytest.raises(FormatError):
        has_stages(staged.parent / "none.toml")


def _break_features(folder: Path) -> str:
    with h5py.File(folder / "vision.h5") as clips, h5py.File(folder / "some.h5", "w") as some:
        for name in ("v0", "v1"):
            some[name] = clips[name][:]
    return "second.features.streams.vision=some.h5"


@pytest.mark.slow
def test_what_is_wrong_with_a_later_stage_is_told_before_the_first(staged: Path, tmp_path: Path) -> None:
    wrong = {
        "second.features.query=none.h5": r"none\.h5",
        "second.data.validation=none.jsonl": r"none\.jsonl",
        "second.data.pairs=none.safetensors": r"none\.safetensors",
        "second.model.heads=3": "heads = 3",
        "second.training.metric=R@1,IoU=0.5": r"metric is 'R@1,IoU=0\.5', which needs a choice of videos",
        "second.data.retrieved.lists=nowhere": "lists is 'nowhere'",
        "second.data.retrieved.lists=": "lists is missing",
        "second.data.first_stage=nowhere second.data.retrieved.videos=0": "nowhere: no such folder",
        _break_features(staged.parent): r"some\.h5: has no features for 3 of the 5 videos",
    }
    for setting, message in wrong.items():
        with pytest.raises(WhenaboutsError, match=message):
            trained(staged, tmp_path / "run", *setting.split())
        assert not (tmp_path / "run").exists()


def test_places_of_each_seed_are_looked_for_before_the_first_step(
    staged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = Mock(wraps=ExperimentData.check)
    monkeypatch.setattr(ExperimentData, "check", checked)
    lists = f"second.data.retrieved.lists={tmp_path / 'lists-{seed}'}"
    for seed, problem in ((1, "lists-2"), (2, None)):
        (tmp_path / f"lists-{seed}").mkdir()
        with pytest.raises(UsageError if problem else Killed, match=problem):
            trained(staged, tmp_path / "run", lists, seeds=[1, 2], log=dying_at("seed 1"))
        assert not (tmp_path / "run").exists()
    assert checked.call_count == 4, "two calls check the features of two stages once for all seeds"


def test_folders_that_are_used_are_refused_before_the_first_step(
    short: tuple[Path, Any], staged: Path, tmp_path: Path
) -> None:
    settings = ("training.epochs=1",)
    with pytest.raises(UsageError, match="there is no training here to resume"):
        trained(staged, tmp_path / "run", *settings, resume=True)
    shutil.copytree(short[0], tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "tiny")
    with pytest.raises(UsageError, match=r"second: holds .* of another training; continue it with --resume"):
        trained(staged, tmp_path / "run", *settings)
    assert not (tmp_path / "run" / "tiny").exists()
    with pytest.raises(UsageError, match=r"second: its training has training\.epochs = 1, this one 2"):
        trained(staged, tmp_path / "run", *settings, "second.training.epochs=2", resume=True)
    assert not (tmp_path / "run" / "tiny").exists()


def test_a_training_and_stages_do_not_share_a_folder(
    short: tuple[Path, Any], staged: Path, tmp_path: Path
) -> None:
    settings = ("training.epochs=1",)
    shutil.copytree(short[0], tmp_path / "run")
    experiment = load_experiment(staged.parent / "tiny.toml", settings)
    with pytest.raises(UsageError, match=r"run: holds system\.json of another training"):
        launch(experiment, staged.parent, tmp_path / "run", open_device("cpu"))
    with pytest.raises(UsageError, match=r"tiny: holds .*of a training without stages"):
        trained(staged, tmp_path / "run" / "tiny", *settings)


def test_a_second_run_of_finished_stages_gives_the_same(short: tuple[Path, Any], staged: Path) -> None:
    run, first = short
    assert trained(staged, run, "training.epochs=1", resume=True).to_json() == first.to_json()
