"""A training from its material to its folder, broken off and continued, and steps that cannot be made."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.training.broken_off import Killed, assert_same_tensors, dying_after, dying_at

from whenabouts.types import UsageError
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.training import run_folder
from whenabouts_systems.training.devices import open_device
from whenabouts_systems.training.experiment import load_experiment
from whenabouts_systems.training.launch import TrainingResult, launch, launch_seeds
from whenabouts_systems.training.loop import TrainingFault, validate

pytestmark = pytest.mark.usefixtures("no_picture")


def begun(tiny: Any, out: Path, *settings: str, **more: Any) -> TrainingResult:
    experiment = load_experiment(tiny.experiment, settings)
    return launch(experiment, tiny.folder, out, open_device("cpu"), **more)


def curves(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "curves.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(shared_tiny: Any, no_picture: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that was not broken off; to be read only."""
    out = tmp_path_factory.mktemp("whole") / "run"
    begun(shared_tiny, out)
    return out


@pytest.fixture()
def finished(whole: Path, tmp_path: Path) -> Path:
    """The same in a folder of the test's own."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def assert_same(one: Path, other: Path) -> None:
    """Two folders hold the same numbers, to the last bit."""
    assert_same_tensors(one, other, "model.safetensors", "state.safetensors")
    for name in ("curves.jsonl", "validation.run.jsonl", "validation.queries.jsonl", "config.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.slow
def test_a_training_leaves_a_folder_that_can_be_used(tiny: Any, tmp_path: Path) -> None:
    lines_logged: list[str] = []
    outcome = begun(tiny, tmp_path / "run", log=lines_logged.append)
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {
        "model.safetensors", "config.json", "README.md", "experiment.toml", "run.json", "curves.jsonl",
        "validation.run.jsonl", "validation.queries.jsonl", "state.safetensors", ".lock",
    }  # fmt: skip
    assert outcome.reason == "all 3 epochs"
    assert outcome.steps == 3 * 3
    assert any("20 examples" in line for line in lines_logged)
    lines = curves(tmp_path / "run")
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert outcome.score == max(line["metric"] for line in lines)
    trained = Trained.from_pretrained(tmp_path / "run")
    assert trained.system == "xml"
    assert trained.about["title"] == "tiny"
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["seed"] == 2018
    assert about["versions"]["torch"] == torch.__version__
    assert "whenabouts-bench" in about["versions"]  # as it declares an encoder, like a plugin
    assert about["ended"] == "all 3 epochs"
    again = load_experiment(tmp_path / "run" / "experiment.toml")
    assert again.training == load_experiment(tiny.experiment).training
    queries = (tmp_path / "run" / "validation.queries.jsonl").read_text().splitlines()
    assert len(queries) == 8


def test_a_training_learns(tiny: Any, tmp_path: Path) -> None:
    settings = ("training.epochs=30", "training.evaluate_every=15", "training.learning_rate=2e-3")
    begun(tiny, tmp_path / "run", *settings, "data.validation=train.jsonl")
    lines = curves(tmp_path / "run")
    losses = [line["losses"] for line in lines]
    assert losses[-1]["total"] < 0.7 * losses[0]["total"]
    # The cosine of queries with their own videos is recorded, but is not part of the loss.
    assert -1 < losses[0]["own_cosine"] < losses[-1]["own_cosine"] < 1
    terms = {name: value for name, value in losses[-1].items() if name not in ("own_cosine", "gradient")}
    assert terms.pop("total") == pytest.approx(sum(terms.values()), rel=1e-5)
    best = max(lines, key=lambda line: line["metric"])
    assert best["metrics"]["VR R@1"] > 0.5


@pytest.mark.slow
def test_the_best_weights_are_kept_and_not_the_last(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([0.1, 0.5, 0.2, 0.5])
    monkeypatch.setattr(
        "whenabouts_systems.training.loop.validate",
        lambda *some: replace(validate(*some), score=next(scores)),
    )
    begun(tiny, tmp_path / "long", "training.epochs=4", "training.schedule=constant")
    lines = curves(tmp_path / "long")
    best = lines[1]
    assert best["metric"] == 0.5
    kept, last = (
        load_file(tmp_path / "long" / "model.safetensors"),
        load_file(tmp_path / "long" / "state.safetensors"),
    )
    assert any(not torch.equal(one, last[f"model.{name}"]) for name, one in kept.items())
    card = json.loads((tmp_path / "long" / "config.json").read_text())
    assert card["about"]["metrics"] == best["metrics"]


@pytest.mark.slow
def test_the_same_seed_trains_the_same_and_another_does_not(tiny: Any, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        torch.manual_seed(len(name))
        begun(tiny, tmp_path / name, f"training.seed={seed}", "training.epochs=1")
    assert_same(tmp_path / "a", tmp_path / "b")
    ours, theirs = (load_file(tmp_path / name / "state.safetensors") for name in "ac")
    assert any(not torch.equal(one, theirs[name]) for name, one in ours.items())


@pytest.mark.slow
def test_the_learning_rate_rises_and_falls_to_nearly_nothing(tiny: Any, tmp_path: Path) -> None:
    settings = ("training.epochs=8", "training.warmup=0.25", 'data.validation=""')
    begun(tiny, tmp_path / "run", *settings)
    rates = [line["learning_rate"] for line in curves(tmp_path / "run")]
    assert rates[0] < rates[1] < rates[2]
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[-1] == pytest.approx(1e-3 / 24 / 0.75)


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "optimizer"), [(1, "bertadam"), (5, "adamw")])
def test_a_training_goes_on_to_the_numbers_of_an_unbroken_one(
    tiny: Any, tmp_path: Path, steps: int, optimizer: str
) -> None:
    settings = [f"training.optimizer={optimizer}", "training.epochs=2", "training.save_minutes=1e-9"]
    begun(tiny, tmp_path / "whole", *settings)
    with pytest.raises(Killed):
        begun(tiny, tmp_path / "broken", *settings, show=dying_after(steps))
    outcome = begun(tiny, tmp_path / "broken", *settings, resume=True)
    assert outcome.reason == "all 2 epochs"
    assert_same(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.slow
def test_evaluations_inside_an_epoch_are_resumed_too(tiny: Any, tmp_path: Path) -> None:
    settings = ["training.evaluate_every=0.34", "training.epochs=2"]
    begun(tiny, tmp_path / "whole", *settings)
    assert [line["step"] for line in curves(tmp_path / "whole")] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(Killed):
        begun(tiny, tmp_path / "broken", *settings, show=dying_after(5))
    begun(tiny, tmp_path / "broken", *settings, resume=True)
    assert_same(tmp_path / "whole", tmp_path / "broken")


_KILLED = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from whenabouts_systems.cli import train as command
from whenabouts_systems.training import loop
import argparse
moment, arguments = sys.argv[1], sys.argv[2:]
count = 0

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def after(steps, once):
    def count_down(*_):
        global count
        count += 1
        if count == steps:
            once()
    return count_down

if moment.startswith("step-"):
    step = loop.Training._step
    tick = after(int(moment[5:]), die)
    def slow(self, batch):
        tick()
        return step(self, batch)
    loop.Training._step = slow
elif moment.startswith("rename-"):
    # In the middle of writing: the new file lies aside, whole, and has not taken its name.
    replace = Path.replace
    tick = after(int(moment[7:]), die)
    def renamed(self, target):
        tick()
        return replace(self, target)
    Path.replace = renamed
parser = argparse.ArgumentParser()
command.add_parser(parser.add_subparsers())
options = parser.parse_args(["train", *arguments])
sys.exit(options.run(options))
"""


def killed(tiny: Any, out: Path, moment: str, *more: str) -> int:
    """The exit code of a training in a process that kills itself at a moment."""
    arguments = [
        str(tiny.experiment),
        "--features",
        str(tiny.folder),
        "--out",
        str(out),
        "--device",
        "cpu",
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _KILLED, moment, *arguments, *more],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


@pytest.mark.slow
def test_a_training_that_was_killed_goes_on_to_the_same_numbers(
    tiny: Any, whole: Path, tmp_path: Path
) -> None:
    assert killed(tiny, tmp_path / "broken", "step-5") == -signal.SIGKILL
    begun(tiny, tmp_path / "broken", resume=True)
    assert_same(whole, tmp_path / "broken")


@pytest.mark.slow
def test_a_training_may_be_killed_at_any_moment_again_and_again(tiny: Any, tmp_path: Path) -> None:
    settings = ("--set", "training.save_minutes=1e-9")
    begun(tiny, tmp_path / "whole", settings[1])
    killed(tiny, tmp_path / "broken", "step-1", *settings)
    for moment in [f"rename-{number}" for number in range(1, 14)] + ["step-1", "step-2"]:
        killed(tiny, tmp_path / "broken", moment, *settings, "--resume")
    assert killed(tiny, tmp_path / "broken", "never", *settings, "--resume") == 0
    assert_same(tmp_path / "whole", tmp_path / "broken")


def test_a_finished_training_is_only_read_again(tiny: Any, finished: Path) -> None:
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    again = begun(tiny, finished, resume=True)
    assert (again.reason, again.steps) == ("all 3 epochs", 9)
    assert again.score == max(line["metric"] for line in curves(finished))
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


def test_a_training_that_was_killed_before_its_end_was_written_is_concluded(
    tiny: Any, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "killed")
    path = tmp_path / "killed" / "run.json"
    whole = json.loads(path.read_text())
    begin = {name: value for name, value in whole.items() if name not in ("ended", "metrics", "best")}
    path.write_text(json.dumps(begin))
    begun(tiny, tmp_path / "killed", resume=True)
    assert json.loads(path.read_text()) == {**whole, "folder": str(tmp_path / "killed")}


def test_a_used_folder_is_refused_and_stays_as_it_is(tiny: Any, finished: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(UsageError, match=r"run: holds state\.safetensors of another training; .*--resume"):
        begun(tiny, tmp_path / "run", "training.seed=3")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_resuming_with_other_settings_names_the_first_that_differs(
    tiny: Any, finished: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"its training has training\.epochs = 3, this one 9; --resume"):
        begun(tiny, tmp_path / "run", "training.epochs=9", resume=True)
    with pytest.raises(UsageError, match=r"model\.margin"):
        begun(tiny, tmp_path / "run", "model.margin=0.3", resume=True)


def test_resuming_with_streams_in_another_order_is_refused(tiny: Any, tmp_path: Path) -> None:
    """Weights are laid out in the order of the streams, and the moments of the optimizer as well."""
    streams = ("a = 'vision.h5'", "b = 'vision.h5'")
    folder = run_folder.RunFolder(tmp_path)
    folder.begin(load_experiment(tiny.experiment, [f"features.streams={{{', '.join(streams)}}}"]))
    other = load_experiment(tiny.experiment, [f"features.streams={{{', '.join(streams[::-1])}}}"])
    with pytest.raises(UsageError, match=r"features\.streams = \['a', 'b'\], this one \['b', 'a'\]"):
        folder.check_same(other)


def test_resuming_without_a_setting_of_the_training_is_refused(
    tiny: Any, finished: Path, tmp_path: Path
) -> None:
    trained = (finished / "experiment.toml").read_text()
    frozen = trained.replace("[training.frozen]", "[training.frozen]\nquery_encoder = 1")
    (finished / "experiment.toml").write_text(frozen)
    told = r"its training has training\.frozen\.query_encoder = 1, this one 'none'"
    with pytest.raises(UsageError, match=told):
        begun(tiny, finished, resume=True)


def test_resuming_with_other_data_is_refused(tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        begun(tiny, tmp_path / "run", show=dying_after(4))
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    truth = tiny.folder / "train.jsonl"
    was = truth.read_text()
    truth.write_text(was.replace("sentence 3", "something else"))
    with pytest.raises(UsageError, match=r"other annotations or features of train; --resume needs the same"):
        begun(tiny, tmp_path / "run", resume=True)
    truth.write_text(was)
    with h5py.File(tiny.folder / "vision.h5") as opened:
        rows = opened["v5"][()]
    tiny.replace_rows("vision.h5", "v5", rows + 1)
    with pytest.raises(UsageError, match=r"other annotations or features of validation"):
        begun(tiny, tmp_path / "run", resume=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    about = json.loads(before["run.json"])
    for split in about["material"].values():
        del split["digest"]  # as folders of earlier versions
    (tmp_path / "run" / "run.json").write_text(json.dumps(about))
    assert begun(tiny, tmp_path / "run", resume=True).reason == "all 3 epochs"


def test_a_training_that_was_broken_off_before_anything_was_written_begins(tiny: Any, tmp_path: Path) -> None:
    settings = ("training.epochs=1",)
    with pytest.raises(Killed):
        begun(tiny, tmp_path / "run", *settings, log=dying_at("train"))
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    outcome = begun(tiny, tmp_path / "run", *settings, resume=True)
    assert outcome.to_json()["steps"] == 3
    assert begun(tiny, tmp_path / "run", *settings, resume=True).steps == 3


def test_there_must_be_something_to_resume(tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no training here to resume"):
        begun(tiny, tmp_path / "run", resume=True)


def test_a_training_whose_state_is_gone_does_not_begin_again_unasked(
    tiny: Any, finished: Path, tmp_path: Path
) -> None:
    (tmp_path / "run" / "state.safetensors").unlink()
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(UsageError, match=r"its state\.safetensors is missing"):
        begun(tiny, tmp_path / "run", resume=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.slow
def test_a_training_that_died_before_its_first_epoch_begins_again(
    tiny: Any, whole: Path, tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        begun(tiny, tmp_path / "run", show=dying_after(1))
    assert not (tmp_path / "run" / "state.safetensors").exists()
    begun(tiny, tmp_path / "run", resume=True)
    assert_same(whole, tmp_path / "run")


def test_two_trainings_do_not_share_a_folder(tiny: Any, tmp_path: Path) -> None:
    folder = run_folder.RunFolder(tmp_path / "run")
    with folder.claimed(resume=False):
        for _ in range(2):
            with pytest.raises(UsageError, match="another training is writing here"):
                begun(tiny, tmp_path / "run")
            (tmp_path / "run" / run_folder.LOCK).unlink()  # it lets nobody in


@pytest.mark.slow
def test_it_stops_after_evaluations_without_a_gain(tiny: Any, tmp_path: Path) -> None:
    outcome = begun(
        tiny, tmp_path / "run", "training.epochs=50", "training.patience=2", "training.learning_rate=1e-9"
    )
    assert outcome.reason == "no gain in 3 evaluations"
    assert len(curves(tmp_path / "run")) == 4
    assert (
        begun(
            tiny,
            tmp_path / "run",
            "training.epochs=50",
            "training.patience=2",
            "training.learning_rate=1e-9",
            resume=True,
        )
        == outcome
    )


@pytest.mark.parametrize(
    ("optimizer", "clipped"), [("adamw", {0.5}), ("adamw-as-released", {0.5}), ("bertadam", set())]
)
def test_gradients_are_clipped_together_unless_the_optimizer_clips_each(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str, clipped: set[float]
) -> None:
    norms: set[float] = set()
    monkeypatch.setattr(
        "whenabouts_systems.training.loop.nn.utils.clip_grads_with_norm_",
        lambda parameters, max_norm, total: norms.add(max_norm),
    )
    settings = (f"training.optimizer={optimizer}", "training.max_norm=0.5", "training.epochs=1")
    begun(tiny, tmp_path / "run", *settings, 'data.validation=""')
    assert norms == clipped


def test_without_a_validation_the_last_weights_are_kept(tiny: Any, tmp_path: Path) -> None:
    outcome = begun(tiny, tmp_path / "run", 'data.validation=""')
    assert outcome.score is None
    assert outcome.metrics == {}
    kept, last = (load_file(tmp_path / "run" / name) for name in ("model.safetensors", "state.safetensors"))
    assert all(torch.equal(one, last[f"model.{name}"]) for name, one in kept.items())
    assert not (tmp_path / "run" / "validation.run.jsonl").exists()


def test_a_loss_that_is_no_number_names_step_term_and_queries(tiny: Any, tmp_path: Path) -> None:
    settings = [
        "training.optimizer=adamw",
        "training.learning_rate=1e30",
        "training.max_norm=0",
        "training.epochs=9",
    ]
    with pytest.raises(TrainingFault) as raised:
        begun(tiny, tmp_path / "run", *settings)
    message = str(raised.value)
    assert "\n" not in message
    for part in ("epoch", "batch", "is not finite", "queries: ", "The state before it is saved in"):
        assert part in message
    kept = load_file(tmp_path / "run" / "state.safetensors")
    assert all(bool(one.isfinite().all()) for name, one in kept.items() if name.startswith("model."))


def test_a_gradient_that_is_no_number_is_refused_before_the_step(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whenabouts_systems.models import xml

    loss = xml.Model.loss

    def bad(self: Any, batch: Any) -> Any:
        # The square root of nothing: a finite value with an infinite slope.
        first = next(iter(self.parameters()))
        return {**loss(self, batch), "crooked": (first * 0.0).sum().sqrt()}

    monkeypatch.setattr(xml.Model, "loss", bad)
    with pytest.raises(
        TrainingFault, match=r"step 1 \(epoch 1, batch 1\): gradient = nan is not finite; its 8 queries: "
    ):
        begun(tiny, tmp_path / "run")


def test_a_system_that_breaks_its_contract_is_named(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whenabouts_systems.models import xml

    loss = xml.Model.loss
    monkeypatch.setattr(xml.Model, "loss", lambda self, batch: sum(loss(self, batch).values()))
    with pytest.raises(UsageError, match=r"^whenabouts_systems\.models\.xml: loss returns Tensor; expected"):
        begun(tiny, tmp_path / "run")
    monkeypatch.setattr(xml.Model, "video_weight", None)
    with pytest.raises(UsageError, match=r"^whenabouts_systems\.models\.xml: video_weight is None; accepted"):
        begun(tiny, tmp_path / "run")


def test_features_that_are_no_numbers_are_found_before_the_first_step(tiny: Any, tmp_path: Path) -> None:
    tiny.replace_rows("vision.h5", "v1", np.full((7, 8), np.nan, np.float32))
    with pytest.raises(Exception, match="v1"):
        begun(tiny, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_validation_without_labels_is_refused_before_the_first_step(tiny: Any, tmp_path: Path) -> None:
    lines = map(json.loads, (tiny.folder / "val.jsonl").read_text().splitlines())
    unlabelled = [
        {key: value for key, value in line.items() if key not in ("ts", "vid_name")} for line in lines
    ]
    (tiny.folder / "val.jsonl").write_text("".join(json.dumps(line) + "\n" for line in unlabelled))
    with pytest.raises(
        UsageError, match=r"data\.validation = .val\.jsonl.: none of its queries has a relevant moment"
    ):
        begun(tiny, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("system", ["gmmformer", "ms_sl"])
def test_a_metric_of_moments_is_refused_for_a_system_that_finds_none(
    tiny: Any, tmp_path: Path, system: str
) -> None:
    settings = tiny.experiment.read_text().split("[model]")
    tiny.experiment.write_text(f'{settings[0]}[model]\nsystem = "{system}"\n[training]\nepochs = 1\n')
    told = rf"'R@1,IoU=0\.5', and {system} finds no moments; .* --set training\.metric=\"VR R@1\""
    with pytest.raises(UsageError, match=told):
        begun(tiny, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_what_is_refused_before_a_state_is_kept_leaves_no_folder(tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"training\.rates: no parameter's name begins with 'nosuch'"):
        begun(tiny, tmp_path / "run", "training.rates={nosuch=3.0}")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match=r"names? .*training\.metric"):
        begun(tiny, tmp_path / "run", "training.metric=mAP,length=long")
    assert not (tmp_path / "run").exists()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(UsageError):
        begun(tiny, mine, "training.rates={nosuch=3.0}")
    assert {one.name for one in mine.iterdir()} == {"notes.txt", ".lock"}
    begun(tiny, mine)


def test_bf16_trains_as_well(tiny: Any, tmp_path: Path) -> None:
    experiment = load_experiment(tiny.experiment, ["training.precision=bf16", "training.epochs=1"])
    outcome = launch(experiment, tiny.folder, tmp_path / "run", open_device("cpu", precision="bf16"))
    assert outcome.reason == "its one epoch"
    assert all(
        one.dtype == torch.float32 for one in load_file(tmp_path / "run" / "model.safetensors").values()
    )


def test_a_used_folder_of_any_seed_is_refused_before_the_first_training(
    tiny: Any, finished: Path, tmp_path: Path
) -> None:
    finished.rename(tmp_path / "seed-2")
    experiment = load_experiment(tiny.experiment)
    with pytest.raises(UsageError, match="seed-2: holds"):
        launch_seeds(experiment, [1, 2], tiny.folder, tmp_path, open_device("cpu"))
    with pytest.raises(UsageError, match=r"seed-2: its training has training\.seed = 2018, this one 2"):
        launch_seeds(experiment, [1, 2], tiny.folder, tmp_path, open_device("cpu"), resume=True)
    assert not (tmp_path / "seed-1").exists()


@pytest.mark.slow
def test_seeds_have_folders_of_their_own_and_a_table(tiny: Any, tmp_path: Path) -> None:
    experiment = load_experiment(tiny.experiment, ["training.epochs=1"])
    machine = open_device("cpu")
    outcomes = launch_seeds(experiment, [1, 2], tiny.folder, tmp_path / "runs", machine)
    assert [one.seed for one in outcomes] == [1, 2]
    told = json.loads((tmp_path / "runs" / "seeds.json").read_text())
    values = [one.metrics["VR R@1"] for one in outcomes]
    assert told["metrics"]["VR R@1"]["values"] == values
    assert told["metrics"]["VR R@1"]["mean"] == pytest.approx(sum(v or 0 for v in values) / 2)
    with pytest.raises(UsageError, match="seed-1: holds"):
        launch_seeds(experiment, [1, 2, 3], tiny.folder, tmp_path / "runs", machine)
    more = launch_seeds(experiment, [1, 2, 3], tiny.folder, tmp_path / "runs", machine, resume=True)
    assert more[:2] == outcomes
    begun(tiny, tmp_path / "alone", "training.seed=3", "training.epochs=1")
    assert_same(tmp_path / "alone", tmp_path / "runs" / "seed-3")
    with pytest.raises(UsageError, match="one is repeated"):
        launch_seeds(experiment, [1, 1], tiny.folder, tmp_path / "more", machine)
    with pytest.raises(UsageError, match="seed is -1"):
        launch_seeds(experiment, [1, -1], tiny.folder, tmp_path / "more", machine)
    assert not (tmp_path / "more").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ("model.video_loss=ranking",),
        ("model.video_loss=contrast",),
        ("model.video_loss=contrast-of-scores",),
        ("model.system=reloclnet",),
    ],
    ids=lambda settings: settings[0],
)
def test_a_pseudo_training_set_as_it_is_released_trains(
    settings: tuple[str, ...], tiny: Any, tmp_path: Path
) -> None:
    """Three moments a query with similarities and no relevance, and a graded set to validate on."""
    for split, graded in (("train", False), ("val", True)):
        lines = [json.loads(line) for line in (tiny.folder / f"{split}.jsonl").read_text().splitlines()]
        entries = [
            {
                "query_id": line["desc_id"],
                "query": line["desc"],
                "relevant_moment": [
                    {
                        "video_name": other["vid_name"],
                        "timestamp": other["ts"],
                        "duration": other["duration"],
                        "caption": other["desc"],
                        "similarity": 1.0 if other is line else 0.4,
                        **({"relevance": 4 if other is line else 1} if graded else {}),
                    }
                    for other in [line, *(row for row in lines if row is not line)][:3]
                ],
            }
            for line in lines
        ]
        (tiny.folder / f"{split}.json").write_text(json.dumps(entries))
    data = ("data.train=train.json", "data.validation=val.json", "data.weights=similarity")
    training = ("training.epochs=2", "training.protocol=rvmr", "training.metric=nDCG@20,IoU=0.5")
    outcome = begun(tiny, tmp_path / "run", *data, *training, *settings)
    assert outcome.steps == 2 * 8, "20 queries with 3 moments in batches of 8"
    losses = [line["losses"] for line in curves(tmp_path / "run")]
    assert all(np.isfinite(list(loss.values())).all() for loss in losses)
    assert len({round(loss["negative_videos"], 6) for loss in losses}) == 2
