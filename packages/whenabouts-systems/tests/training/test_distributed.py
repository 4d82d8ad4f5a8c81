"""Several processes on one CPU train as one does: every system's step, and whole trainings by command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.training.test_stages import both
from tests.training.two_processes import STEPS, UNSHARED, Step, step

from whenabouts.types import UsageError
from whenabouts_systems.models import model_names
from whenabouts_systems.training.devices import TIMEOUT, gather_rows, open_device
from whenabouts_systems.training.experiment import load_experiment
from whenabouts_systems.training.launch import launch
from whenabouts_systems.training.stages import launch_stages, load_stages

# Not `importorskip`: importing it takes three seconds, and only slow tests use it.
pytestmark = pytest.mark.skipif(
    find_spec("lightning_fabric") is None, reason="several processes are started by Lightning Fabric"
)

ROOT = Path(__file__).parents[4]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
SETTINGS = ("model.dropout=0.0", "model.input_dropout=0.0", "training.batch_size=7")
"""Dropout is off, for each process draws its own; the last of three batches has one example less."""


# --- a step of every system


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What two processes found of all steps."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "tests.training.two_processes", str(folder)]
    processes = [
        subprocess.Popen([*command, str(rank)], cwd=ROOT, env=ONE_THREAD, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    said = [process.communicate(timeout=500)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    return json.loads((folder / "found.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("case", STEPS)
def test_two_processes_make_the_step_of_one(found: Any, case: str) -> None:
    """Losses, gradients and the weights after three steps; what is drawn; and they stay one model."""
    about = found[case]
    assert about["apart"] < 1e-3, about
    assert bool(about["rows"]) == (case not in UNSHARED), "nothing was shared"
    # A batch of one video is whole in both; else each has at most three rows of five, or five of ten.
    assert max(about["rows"], default=0) <= (5 if case == "hero, vsm" else 3)
    assert about["drawn alike under dropout"]
    assert about["one model under dropout"]
    assert about["finite in bf16"]


def test_every_system_is_among_the_steps() -> None:
    assert {case.system for case in STEPS.values()} == set(model_names())


def test_what_is_not_made_row_by_row_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="returned 1 rows for 3"):
        gather_rows(torch.zeros(1, 4), 0, [3, 2])


_BY_CHOICE = ("tr_detr", "loss saliency")
"""It reads the best window, which digits choose where a fresh system finds all windows about as good."""


@pytest.mark.slow
@pytest.mark.parametrize("name", model_names())
def test_a_step_in_half_precision_is_finite_and_near_that_in_full(name: str) -> None:
    case, setup = Step(name), open_device("cpu")
    whole = step(case.model(), case.make(), setup)
    halved = step(case.model(), case.make(), replace(setup, precision="bf16"))
    assert set(whole) == set(halved)
    for term, value in halved.items():
        assert value.isfinite().all(), term
        if term.startswith("loss ") and (name, term) != _BY_CHOICE:
            assert float(value) == pytest.approx(float(whole[term]), rel=0.05, abs=0.05), term


# --- whole trainings, by command


def train(experiment: Any, out: Path, *more: str, script: str = "", **environ: str) -> Any:
    """`whenabouts train` in two processes; a `script` stands for the program."""
    place = out.parent / f"{out.name}.py"
    place.write_text(script)
    program = [str(place)] if script else ["-m", "whenabouts"]
    return subprocess.run(
        [sys.executable, *program, *_options(experiment, out), "--processes", "2", *more],
        env={**ONE_THREAD, **environ},
        capture_output=True,
        check=False,
        timeout=300,
        text=True,
    )


def _options(experiment: Any, out: Path) -> list[str]:
    words = ["train", str(experiment.experiment), "--features", str(experiment.folder), "--out", str(out)]
    return [*words, "--device", "cpu", "--json", *(part for one in SETTINGS for part in ("--set", one))]


@pytest.fixture(scope="module")
def alone(shared_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the training in one process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    launch(load_experiment(shared_tiny.experiment, SETTINGS), shared_tiny.folder, out, open_device("cpu"))
    return out


def assert_near(one: Path, other: Path) -> None:
    """Weights, moments of the optimizer, curves and answers of two trainings are the same to rounding."""
    ours, theirs = (load_file(place / "state.safetensors") for place in (one, other))
    for name, tensor in ours.items():
        assert torch.allclose(tensor, theirs[name], rtol=1e-3, atol=2e-5), name
    lines = [
        [json.loads(line) for line in (place / "curves.jsonl").read_text().splitlines()]
        for place in (one, other)
    ]
    for mine, other_line in zip(*lines, strict=True):
        assert mine["metrics"] == other_line["metrics"]
        assert mine["losses"] == pytest.approx(other_line["losses"], rel=1e-4)
    # What each query was worth, in the order of the queries.
    queries = [(place / "validation.queries.jsonl").read_text() for place in (one, other)]
    assert queries[0] == queries[1]


@pytest.mark.slow
def test_torchrun_trains_as_one_process_does(shared_tiny: Any, alone: Path, tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "whenabouts"]
    done = subprocess.run(
        [sys.executable, *torchrun, *_options(shared_tiny, tmp_path / "two")],
        env=ONE_THREAD,
        capture_output=True,
        check=False,
        timeout=300,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ended"] == "all 3 epochs"
    assert_near(alone, tmp_path / "two")


_DYING = """
import os, signal, sys
import torch
torch.set_num_threads(1)
from whenabouts.cli.main import main
from whenabouts_systems.training import loop
made = loop.Training._step
def step(self, batch):
    if self.state.step == 4 and self.setup.rank == 1:
        os.kill(os.getpid(), signal.%s)
    return made(self, batch)
loop.Training._step = step
sys.exit(main())
"""
_BLIND = """
import os, sys
import torch
torch.set_num_threads(1)
from whenabouts.cli.main import main
if os.environ.get("LOCAL_RANK", "0") == "1":
    sys.argv[sys.argv.index("--out") + 1] = "/nowhere/of/process/1"
sys.exit(main())
"""


@pytest.mark.slow
def test_a_process_that_dies_ends_the_training_which_then_goes_on(
    shared_tiny: Any, alone: Path, tmp_path: Path
) -> None:
    """First two processes, then two of which one does not see the folder; and one alone."""
    out = tmp_path / "run"
    begun = time.monotonic()
    done = train(shared_tiny, out, script=_DYING % "SIGKILL")
    assert done.returncode != 0
    assert "another process of this training ended" in done.stderr
    assert "--resume" in done.stderr
    assert time.monotonic() - begun < 120
    for name, again in (("two", _BLIND), ("one", "")):
        place = tmp_path / name
        subprocess.run(["cp", "-r", str(out), str(place)], check=True)
        if again:
            done = train(shared_tiny, place, "--resume", script=again)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["ended"] == "all 3 epochs"
        else:
            experiment = load_experiment(shared_tiny.experiment, SETTINGS)
            launch(experiment, shared_tiny.folder, place, open_device("cpu"), resume=True)
        assert_near(alone, place)


@pytest.mark.slow
def test_stages_are_trained_though_a_process_sees_no_folder_of_an_earlier_one(
    tiny: Any, tmp_path: Path
) -> None:
    """CONQUER's negatives are from the lists of XML, which process 0 alone wrote down."""
    both(tiny)
    settings = [
        *("training.epochs=1", "tiny.model.dropout=0.0", "tiny.model.input_dropout=0.0"),
        *("second.model.dropout=0.0", "second.model.input_dropout=0.0"),
    ]
    experiment = tiny.folder / "both.toml"
    launch_stages(
        load_stages(experiment, settings), tiny.folder, tmp_path / "one", open_device("cpu"), seeds=None
    )
    place = tmp_path / "blind.py"
    place.write_text(_BLIND)
    command = [sys.executable, str(place), "train", str(experiment), "--features", str(tiny.folder)]
    command += ["--out", str(tmp_path / "two"), "--device", "cpu", "--processes", "2", "--json"]
    command += [part for one in settings for part in ("--set", one)]
    done = subprocess.run(command, env=ONE_THREAD, capture_output=True, check=False, timeout=300, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "two" / "system.json").read_bytes() == (tmp_path / "one" / "system.json").read_bytes()
    for stage in ("tiny", "second"):
        assert_near(tmp_path / "one" / stage, tmp_path / "two" / stage)


@pytest.fixture()
def _no_sleeper(tmp_path: Path) -> Iterator[None]:
    yield
    # A stopped process that is left would hold the machine's memory.
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(tmp_path).encode() in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue


@pytest.mark.slow
@pytest.mark.usefixtures("_no_sleeper")
def test_a_process_that_hangs_ends_the_training_in_time(shared_tiny: Any, tmp_path: Path) -> None:
    begun = time.monotonic()
    done = train(shared_tiny, tmp_path / "run", script=_DYING % "SIGSTOP", **{TIMEOUT: "40"})
    assert done.returncode != 0
    assert "did not answer in time" in done.stderr
    assert time.monotonic() - begun < 120


@pytest.mark.slow
def test_what_one_process_alone_does_not_find_is_named_and_ends_all(shared_tiny: Any, tmp_path: Path) -> None:
    blind = _BLIND.replace("--out", "--features")
    done = train(shared_tiny, tmp_path / "run", script=blind)
    assert done.returncode != 0
    assert "/nowhere/of/process/1: not a folder" in done.stderr
    assert "another process of this training ended" in done.stderr
    assert not (tmp_path / "run").exists(), "nothing is left of a training that never began"


@pytest.mark.slow
def test_a_folder_that_is_used_is_refused_once(shared_tiny: Any, alone: Path) -> None:
    done = train(shared_tiny, alone)
    assert done.returncode == 2
    assert done.stderr.count("holds state.safetensors of another training") == 1
    assert "Traceback" not in done.stderr


# --- what is refused


def test_a_device_that_fails_without_a_reason_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(torch, "empty", fails)
    with pytest.raises(UsageError, match=r"device 'cpu' is not available \(RuntimeError\)"):
        open_device("cpu")


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UsageError, match="device 'tpu9' is not available"):
        open_device("tpu9")
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="device 'cuda' is not available"):
            open_device("cuda")
        assert open_device("auto").device.type == "cpu"


def test_a_number_of_processes_that_torchrun_did_not_start_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "here")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(UsageError, match="--processes 2: torchrun started 4"):
        open_device("cpu", 2)


def test_a_timeout_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMEOUT, "soon")
    with pytest.raises(UsageError, match="'soon': accepted: seconds"):
        open_device("cpu", 2)
