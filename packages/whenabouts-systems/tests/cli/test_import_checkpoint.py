"""`whenabouts import-checkpoint`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from whenabouts.cli.main import main
from whenabouts_systems.models.reloclnet import Config, Model, released_names
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.released import program_names

SIZES: dict[str, Any] = {"query_width": 5, "hidden": 8, "max_clips": 9, "max_tokens": 7}
TOLD = {"hidden_size": 8, "n_heads": 4, "max_ctx_l": 9, "max_desc_l": 7, "ctx_mode": "video_sub"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A ReLoCLNet as its program saves it, with the program's options beside it."""
    config = Config(streams={"video": 6, "sub": 5}, heads=4, **SIZES)
    weights = Model(config).state_dict()
    parameters = {theirs: weights[ours] for ours, theirs in released_names(config).items()}
    folder = tmp_path / "results"
    folder.mkdir()
    torch.save({"model": parameters, "epoch": 3}, folder / "model.ckpt")
    (folder / "opt.json").write_text(json.dumps(TOLD), encoding="utf-8")
    return folder / "model.ckpt"


def test_a_folder_is_made_that_loads_and_the_command_says_what_it_is(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["import-checkpoint", "reloclnet", str(checkpoint), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    trained = Trained.from_pretrained(out)
    assert told["system"] == trained.system == "reloclnet"
    assert told["parameters"] == sum(one.numel() for one in trained.model.parameters())
    assert (told["heads"], told["epoch"], told["guessed"]) == (4, 3, [])
    assert (told["streams"], told["out"]) == ({"video": 6, "sub": 5}, str(out))
    assert {path.name for path in out.iterdir()} == {"model.safetensors", "config.json", "README.md"}


@pytest.mark.slow
def test_what_the_file_does_not_tell_is_said_or_given(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkpoint.parent / "opt.json").rename(tmp_path / "elsewhere.json")
    given = ["import-checkpoint", "reloclnet", str(checkpoint), "--out"]
    assert main([*given, str(tmp_path / "a"), "--table"]) == 0
    out = capsys.readouterr().out
    assert "reloclnet" in out and "streams video (6), sub (5)" in out
    assert "guessed: heads of attention: 8" in out
    assert "guessed: features of 6 and 5 values: without" in out
    assert main([*given, str(tmp_path / "b"), "--table", "--opt", str(tmp_path / "elsewhere.json")]) == 0
    assert "guessed" not in capsys.readouterr().out
    options = ["--heads", "2", "--tef", "--clip-seconds", "2", "--encoder", "query=bert"]
    assert main([*given, str(tmp_path / "c"), "--json", *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["heads"], told["tef"], told["clip_seconds"], told["guessed"]) == (2, True, 2.0, [])
    assert Trained.from_pretrained(tmp_path / "c").inputs.query.encoder == "bert"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["xml", "{file}"], "left over: "),
        (
            ["moment", "{file}"],
            f"'moment': no such program; known: {', '.join(program_names())}",
        ),
        (["reloclnet", "gone.ckpt"], "gone.ckpt: cannot be read: No such file"),
        (["reloclnet", "{file}", "--heads", "3"], "3 heads do not divide the width 8; give --heads"),
        (["reloclnet", "{file}", "--opt", "gone.json"], "gone.json: cannot be read"),
        (["reloclnet", "{file}", "--encoder", "bert"], "--encoder 'bert': give NAME=ENCODER"),
        (["reloclnet", "{file}", "--clip-seconds", "-1"], "clip_seconds is -1.0"),
        (["reloclnet", "{file}", "--clip-seconds", "0"], "clip_seconds is 0.0; accepted: a number above 0"),
        (["reloclnet", "{file}", "--stream", "video=0"], "--stream 'video=0': give NAME=WIDTH"),
        (["reloclnet", "{file}", "--stream", "a=1", "--stream", "a=2"], "--stream: a is given twice"),
        (["xml", "{file}", "--encoder", "sub=a", "--encoder", "sub=b"], "--encoder: sub is given twice"),
        (["reloclnet", "{file}", "--stream", "sub=5"], "the checkpoint's streams are video (6), sub (5)"),
        (
            ["hero", "{file}"],
            "it is not a checkpoint of this program; it looks like a checkpoint of reloclnet",
        ),
    ],
)
def test_a_fault_is_one_line_and_nothing_is_written(
    arguments: list[str], said: str, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [one.format(file=checkpoint) for one in arguments]
    assert main(["import-checkpoint", *given, "--out", str(tmp_path / "out")]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1 and said in errors[0]
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_left_alone(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    given = ["import-checkpoint", "reloclnet", str(checkpoint), "--out", str(tmp_path / "out")]
    assert main(given) == 0
    before = (tmp_path / "out" / "config.json").read_bytes()
    assert main(given) == 2
    assert "exists already; name a folder that is new or empty" in capsys.readouterr().err
    assert (tmp_path / "out" / "config.json").read_bytes() == before


def test_a_place_that_cannot_be_written_is_told_and_nothing_is_left(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(trained: Trained, folder: Path) -> Path:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Trained, "save_pretrained", full)
    given = ["import-checkpoint", "reloclnet", str(checkpoint), "--out", str(tmp_path / "new" / "out")]
    assert main(given) != 0
    assert "out: cannot be written: No space left on device" in capsys.readouterr().err
    assert list((tmp_path / "new").iterdir()) == []
    assert main([*given[:-1], str(checkpoint / "new" / "out")]) == 2
    assert "model.ckpt is not a folder; name a path inside a folder" in capsys.readouterr().err


def test_help_does_not_load_pytorch() -> None:
    code = "import sys; from whenabouts.cli.main import main\n" \
        "try: main(['import-checkpoint', '--help'])\n" \
        "except SystemExit: pass\nassert 'torch' not in sys.modules"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--heads" in done.stdout
    shown = " ".join(done.stdout.split())
    assert "else 1.5; DETR family 2.0" in shown and "DETR family: query, vision or motion" in shown
