"""`whenabouts index` where the machine gives too few open files or too little memory: a line, no trace."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.uncalibrated import uncalibrated

from whenabouts.corpus import Corpus
from whenabouts.index.executor import LocalExecutor
from whenabouts.index.store import Store
from whenabouts.index.workers import Failed


@pytest.fixture(scope="module")
def talks_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talks")
    (folder / "a.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:02.000\nhello there\n")
    corpus = folder / "my.corpus"
    with uncalibrated():
        Corpus(corpus, create=True).add(folder, processes=1)
    return corpus


def index_under(limit: str, folder: Path, corpus: Path) -> subprocess.CompletedProcess[str]:
    """Index in a process of its own for which a shell sets a limit."""
    command = [sys.executable, "-m", "whenabouts", "index", str(folder), "--corpus", str(corpus)]
    shell = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *command]
    return subprocess.run(shell, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("most", [12, 16])
def test_few_open_files(
    most: int, here: Any, write_talks: Callable[[Path, int], None], tmp_path: Path, unmeasured: None
) -> None:
    write_talks(tmp_path / "talks", 3)
    done = index_under(f"-n {most}", tmp_path / "talks", tmp_path / "corpus")
    assert done.returncode == 2
    assert f"this process may open {most} files at once" in done.stderr
    assert "Traceback" not in done.stderr
    again = here("index", tmp_path / "talks", "--corpus", tmp_path / "corpus", "--json")
    assert (again.code, again.json["added"], again.json["failed"]) == (0, 3, [])


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [1000, 1500, 2000])
def test_little_memory(megabytes: int, write_talks: Callable[[Path, int], None], tmp_path: Path) -> None:
    write_talks(tmp_path / "talks", 3)
    done = index_under(f"-v {megabytes * 1000}", tmp_path / "talks", tmp_path / "corpus")
    assert done.returncode == 2
    assert done.stderr.startswith("whenabouts: there is not enough memory")
    assert "ulimit -v" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "verb", "said"),
    [
        ("-n 12", ("search", "hello"), "this process may open 12 files at once"),
        ("-n 13", ("calibrate",), "this process may open 13 files at once"),
        ("-n 20", ("serve", "--port", "0"), "this process may open 20 files at once"),
        ("-v 600000", ("stats",), "there is not enough memory"),
        ("-v 1000000", ("export", "hello", "--format", "csv"), "there is not enough memory"),
        ("-v 2000000", ("serve", "--port", "0"), "there is not enough memory"),
    ],
)
def test_other_verbs_end_in_one_line(
    limit: str, verb: tuple[str, ...], said: str, talks_corpus: Path
) -> None:
    command = [sys.executable, "-m", "whenabouts", "--no-config", *verb, "--corpus", str(talks_corpus)]
    shell = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *command]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2, done
    assert done.stderr.startswith("whenabouts: ") and said in done.stderr and "ulimit" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_lack_is_not_remembered_as_a_fault_of_the_file(
    here: Any,
    write_talks: Callable[[Path, int], None],
    tmp_path: Path,
    unmeasured: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_talks(tmp_path / "talks", 3)
    corpus = tmp_path / "corpus"

    def run(executor: Any, work: Any, take: Any) -> None:
        for each in work:
            take(Failed(each.task.number, "not enough memory", lack=True))

    with monkeypatch.context() as patch:
        patch.setattr(LocalExecutor, "run", run)
        done = here("index", tmp_path / "talks", "--corpus", corpus, "--json")
    assert (done.code, len(done.json["failed"])) == (2, 3)
    assert "not enough memory" in done.err
    assert not Store.open(corpus).videos()
    again = here("index", tmp_path / "talks", "--corpus", corpus, "--json")
    assert (again.code, again.json["added"]) == (0, 3)
