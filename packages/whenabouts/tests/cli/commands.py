"""Commands run in this process on one corpus: the sample videos, and transcripts whose names are hostile."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import MadeOnce

from whenabouts.cli.main import main

SAID = {
    "with space.vtt": "The lighthouse keeper polishes the great lens every evening.",
    "hash #1.vtt": "Beetles are collected in small glass jars.",
    "really?.vtt": "Penguins slide down the icy slope on their bellies.",
    "100%.vtt": "The glacier melts faster than anybody had expected.",
    "two\nlines \x1b[31mred.vtt": "A saxophone plays in the underground station.",
    "a/twin.vtt": "My brother repairs old clocks in the attic.",
    "b/twin.vtt": "My sister builds wooden boats near the harbour.",
}
NOT_UTF8 = b"caf\xe9.vtt"
SAID_THERE = "The volcano erupted on a quiet Sunday morning."


@dataclass(frozen=True)
class Done:
    """The result of a command: its exit code and its output."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


Whenabouts = Callable[..., Done]


def run_here(*arguments: str) -> Done:
    """Run a command as the program does, with its output as a string; a traceback fails the test."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as left:
            code = int(left.code or 0)
    assert "Traceback" not in err.getvalue()
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def bare() -> Whenabouts:
    """Runs a command line without adding --corpus."""
    return run_here


@pytest.fixture(scope="session")
def strange_folder(made_once: MadeOnce) -> Path:
    """Transcripts with names that must be escaped in links, messages and terminals."""
    return made_once("strange", _write_strange)


def _write_strange(folder: Path) -> None:
    for name, line in SAID.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"WEBVTT\n\n00:00.500 --> 00:04.000\n{line}\n", encoding="utf-8")
    with contextlib.suppress(OSError):  # a file system that takes only UTF-8
        Path(os.fsdecode(os.fsencode(folder) + b"/" + NOT_UTF8)).write_text(
            f"WEBVTT\n\n00:00.500 --> 00:04.000\n{SAID_THERE}\n", encoding="utf-8"
        )
    facts = [
        {"path": "hash #1.vtt", "speaker": "Ada", "year": 1999, "recorded": "1999-05-01"},
        {"path": "really?.vtt", "speaker": "Grace", "year": 2020, "recorded": "2020-05-01"},
        {"path": "100%.vtt", "speaker": "Ada", "year": 2021, "recorded": "2021-05-01", "duration": "long"},
    ]
    lines = "".join(json.dumps(fact) + "\n" for fact in facts)
    (folder / "facts.jsonl").write_text(lines, encoding="utf-8")


@pytest.fixture(scope="session")
def corpus(
    tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce, samples: Path, strange_folder: Path
) -> Path:
    """A corpus of the samples and these transcripts, indexed by the command."""

    def fill(folder: Path) -> None:
        place = str(folder / "all.corpus")
        command = ["index", str(samples), str(strange_folder), "--corpus", place, "--processes", "1"]
        done = run_here(*command, "--meta-file", str(strange_folder / "facts.jsonl"))
        assert done.code == 0, done.err
        assert not done.json["failed"]
        assert done.json["added"] >= 15

    # A copy, because commands of another worker lock theirs.
    own = tmp_path_factory.mktemp("cli") / "all.corpus"
    return Path(shutil.copytree(made_once("cli", fill) / "all.corpus", own))


@pytest.fixture(scope="session")
def whenabouts(corpus: Path) -> Whenabouts:
    """Runs a command on that corpus."""

    def run(verb: str, *arguments: str) -> Done:
        return run_here(verb, "--corpus", str(corpus), *arguments)

    return run
