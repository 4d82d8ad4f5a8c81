"""Errors of commands: one line with the reason, an exit code other than "no match", and no traceback."""

from __future__ import annotations

import importlib
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Done

from whenabouts.cli import stats
from whenabouts.cli.failures import message_of
from whenabouts.corpus import Corpus
from whenabouts.types import UsageError

PROGRAM = (sys.executable, "-m", "whenabouts")


class PanicException(BaseException):
    """Like pyo3's error for a panic in a Rust library, which does not derive from Exception."""


FAILURES: list[tuple[BaseException, int, str]] = [
    (KeyError("x"), 2, "a fault of the program: KeyError: 'x' (main.py, line"),
    (RecursionError("maximum recursion depth"), 2, "a fault of the program: RecursionError"),
    (
        PanicException("called `Option::unwrap()`\non a None"),
        2,
        "PanicException: called `Option::unwrap()` on",
    ),
    (MemoryError(), 2, "there is not enough memory"),
    (PermissionError(13, "Permission denied", "/etc/shadow"), 2, "/etc/shadow: Permission denied; check"),
    (OSError(28, "No space left on device"), 2, "the disk is full; free some space"),
    (BrokenPipeError(32, "Broken pipe"), 2, "a fault of the program: BrokenPipeError"),
    (AssertionError(), 2, "a fault of the program: AssertionError"),
    (KeyboardInterrupt(), 130, "stopped"),
    (UsageError("two\x1b[31m\nlines"), 2, "two"),
]


@pytest.mark.parametrize(("error", "code", "line"), FAILURES, ids=lambda value: type(value).__name__)
def test_every_failure_is_a_line_and_no_match_only_no_match(
    whenabouts: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    line: str,
) -> None:
    def fail(_: Any) -> int:
        raise error

    monkeypatch.setattr(stats, "run", fail)
    done = whenabouts("stats")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("whenabouts: ")
    assert line in done.err
    assert "\x1b" not in done.err


def test_a_fault_in_a_plugin_names_the_plugin(
    whenabouts: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_plugin.py").write_text("def run(options):\n    return options.nothing\n")
    (tmp_path / "odd-1.0.dist-info").mkdir()
    declared = "[whenabouts.exports]\nodd = odd_plugin:run\n"
    (tmp_path / "odd-1.0.dist-info" / "entry_points.txt").write_text(declared, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(stats, "run", importlib.import_module("odd_plugin").run)
    done = whenabouts("stats")
    assert done.code == 2
    assert "a fault of the plugin odd_plugin: AttributeError: " in done.err
    assert "(odd_plugin.py, line 2)" in done.err


@pytest.mark.parametrize(
    "command",
    [
        ("search", "x", "--corpus", "a.corpus"),
        ("index", "films", "--corpus", "{corpus}"),
        ("show", "friday", "--corpus", "{corpus}"),
        ("doctor", "--corpus", "{corpus}"),
    ],
)
def test_a_deleted_current_folder_is_named(
    bare: Callable[..., Done],
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = bare(*(word.format(corpus=corpus) for word in command))
    assert (done.code, done.out) == (2, "")
    assert "the current folder was deleted; change to another, or give an absolute path" in done.err
    assert bare("stats", "--corpus", str(corpus)).code == 0
    with pytest.raises(UsageError, match=r"a\.corpus: the current folder was deleted"):
        Corpus("a.corpus", create=True)


def test_a_program_error_says_where_and_how_to_see_more() -> None:
    text = message_of(ValueError("spread\nover  lines " + "x" * 5000))
    assert "ValueError: spread over lines xxx" in text
    assert "--debug" in text
    assert len(text) < 700


def test_the_place_of_an_error_is_in_the_package_and_not_in_a_folder_of_its_name(
    whenabouts: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "whenabouts" / "lib" / "library.py"
    library.parent.mkdir(parents=True)
    library.write_text("def run(_):\n    raise KeyError('x')\n", encoding="utf-8")
    monkeypatch.setattr(stats, "run", runpy.run_path(str(library))["run"])
    done = whenabouts("stats")
    assert done.code == 2
    assert "KeyError: 'x' (main.py, line" in done.err


def test_a_fault_of_another_package_is_placed_there(
    whenabouts: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "of_bench.py").write_text("def run(_):\n    raise KeyError('x')\n", encoding="utf-8")
    ours = runpy.run_path(str(tmp_path / "of_bench.py"), run_name="whenabouts_bench.of_bench")
    monkeypatch.setattr(stats, "run", ours["run"])
    assert "KeyError: 'x' (of_bench.py, line 2)" in whenabouts("stats").err


@pytest.mark.slow
def test_the_variable_shows_the_trace(tmp_path: Path) -> None:
    command = [*PROGRAM, "stats", "--corpus", str(tmp_path / "none")]
    plain = subprocess.run(command, capture_output=True, text=True, check=False)
    environment = {**os.environ, "WHENABOUTS_DEBUG": "1"}
    debug = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert plain.returncode == debug.returncode == 2
    assert "Traceback" not in plain.stderr
    assert debug.stderr.startswith("Traceback")
    assert debug.stderr.endswith(plain.stderr)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_a_full_disk_behind_the_output_is_a_failure(tmp_path: Path) -> None:
    Corpus(tmp_path / "c", create=True)
    with Path("/dev/full").open("w") as full:
        command = [*PROGRAM, "stats", "--corpus", str(tmp_path / "c")]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert (
        done.stderr
        == "whenabouts: output: the disk is full; free some space and run the same command again\n"
    )


@pytest.mark.slow
def test_closed_outputs_are_no_traceback(tmp_path: Path) -> None:
    Corpus(tmp_path / "c", create=True)
    for place, closing in (("c", ">&-"), ("none", "2>&-"), ("none", ">&- 2>&-")):
        line = f"{sys.executable} -m whenabouts stats --corpus {tmp_path / place} {closing}"
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 2)
        assert "Traceback" not in done.stderr
