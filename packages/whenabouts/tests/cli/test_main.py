"""Behaviour of all commands: help, exit codes, pipes, terminals and Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whenabouts import Corpus
from whenabouts import __version__ as version
from whenabouts.cli.main import all_verbs

Whenabouts = Callable[..., Any]
WITHOUT_CORPUS = {"train", "run", "evaluate", "compare", "report", "convert", "datasets", "features"}
WITHOUT_CORPUS |= {"relevance", "bench", "build", "import-checkpoint", "models", "judge", "judgements"}
VERBS = list(all_verbs())
PROGRAM = (sys.executable, "-m", "whenabouts")


@pytest.mark.parametrize("verb", [*VERBS, "doctor why"])
def test_every_verb_has_a_help_page_with_an_explanation_of_each_option(bare: Whenabouts, verb: str) -> None:
    done = bare(*verb.split(), "--help")
    assert done.code == 0
    assert done.out.startswith(f"usage: whenabouts {verb}")
    assert done.err == ""
    assert ("--corpus" in done.out) == (verb not in WITHOUT_CORPUS)


def test_the_help_page_lists_each_verb_in_its_group_and_the_exit_codes(bare: Whenabouts) -> None:
    done = bare("--help")
    assert done.code == 0
    for title in {verb.group for verb in all_verbs().values()}:
        listed = done.out.partition(f"\n{title}:\n")[2].partition("\n\n")[0].splitlines()
        named = [name for name, verb in all_verbs().items() if verb.group == title]
        assert [line.split()[0] for line in listed] == named
    assert "exit codes" in done.out


def test_a_verb_imports_its_own_file_alone() -> None:
    code = (
        "import sys\n"
        "from whenabouts.cli.main import main\n"
        "try: main(['--debug', 'stats', '--help'])\n"
        "except SystemExit: pass\n"
        "ours = [name for name in sys.modules if name.startswith('whenabouts.') and '.cli.' in name]\n"
        "print(sorted(ours), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = ("configuration", "failures", "main", "options", "stats", "terminal", "verbs")
    own = [f"whenabouts.cli.{name}" for name in rooms]
    assert done.stderr == f"{own}\n"


def test_version(bare: Whenabouts) -> None:
    assert bare("--version").out == f"whenabouts {version}\n"


@pytest.mark.parametrize("arguments", [[], ["dance"], ["search"], ["index"], ["remove"], ["doctor", "why"]])
def test_wrong_use_is_exit_code_two_and_says_what_is_missing(bare: Whenabouts, arguments: list[str]) -> None:
    done = bare(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from whenabouts.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'pyarrow', 'lancedb', 'torch', 'av', 'rich', 'onnxruntime', 'pysubs2'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert "usage: whenabouts" in done.stdout


@pytest.mark.slow
def test_with_debug_an_error_shows_where_it_comes_from(tmp_path: Path) -> None:
    command = [*PROGRAM, "--debug", "stats", "--corpus", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback")
    assert done.stderr.splitlines()[-1].startswith(f"whenabouts: {tmp_path / 'none'}")


@pytest.mark.slow
@pytest.mark.parametrize("form", [pytest.param("--table", marks=pytest.mark.slow), "--json"])
def test_a_pipe_that_is_closed_early_is_no_error(corpus: Path, form: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [*PROGRAM, "search", "crown jewels", "--corpus", str(corpus), form]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["index", "--help"], ["search", "the volcano erupted", "--json"]])
def test_an_output_without_unicode_gets_escapes(corpus: Path, arguments: list[str]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "WHENABOUTS_CORPUS": str(corpus)}
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, env=environment, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout.isascii()
    if "--json" in arguments:
        assert len(json.loads(done.stdout)["moments"]) == 10


@pytest.mark.slow
def test_on_a_terminal_there_is_a_table_with_links(corpus: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    environment.pop("NO_COLOR", None)
    command = [*PROGRAM, "search", "crown jewels", "-k", "1", "--corpus", str(corpus)]
    with subprocess.Popen(command, stdout=theirs, env=environment) as running:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # a terminal whose other side has ended
            while block := os.read(ours, 4096):
                shown += block
    os.close(ours)
    assert running.returncode == 0
    text = shown.decode()
    assert "friday.mp4" in text
    assert '"query"' not in text
    assert "\x1b]8;" in text
    assert "friday.mp4#t=4.300,6.000" in text


@pytest.mark.slow
def test_ctrl_c_is_exit_code_130_and_no_traceback(corpus: Path, samples: Path) -> None:
    command = [*PROGRAM, "index", str(samples), "--corpus", str(corpus), "--wait"]
    # While this process writes, the other one waits, so it can be stopped at a known point.
    with (
        Corpus(corpus).writing(),
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting,
    ):
        assert waiting.stderr is not None
        assert "waiting for another indexer" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_signal_while_python_ends_is_no_traceback(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\nfrom whenabouts.cli.main import main\n"
        f"sys.argv[1:] = ['stats', '--corpus', {str(tmp_path)!r}]\n"
        "assert main() == 2\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (-signal.SIGINT, 1), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "word"), [("whenabouts ser", "serve"), ("whenabouts search x --min-c", "--min-confidence")]
)
def test_a_shell_is_told_how_a_line_may_go_on(tmp_path: Path, line: str, word: str) -> None:
    out = tmp_path / "words"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": " "}
    environment = {**os.environ, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(out)}
    command = [sys.executable, "-c", "from whenabouts.cli.main import main; main()"]
    subprocess.run(command, env=environment, check=True, timeout=60)
    assert word in out.read_text().split()
