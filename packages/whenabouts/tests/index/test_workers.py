from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from whenabouts.index.workers import Failed, Finished, Message, Part, ReaderPool, Task

READERS = """
import os, signal, threading, time
from dataclasses import dataclass
from whenabouts.intake.faults import DataFault

@dataclass(frozen=True)
class Job:
    number: int
    what: str
    quiet_seconds: float = 60.0

def read(job):
    yield "start " + job.what
    if job.what == "raise":
        raise ValueError("bad\\nbytes in " + job.what)
    if job.what == "broken":
        raise DataFault("no film")
    if job.what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.what == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if job.what == "exit":
        os._exit(3)
    if job.what == "hang":
        time.sleep(60)
    if job.what == "half":
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
        yield bytes(8 << 20)
    for i in range(3):
        yield i
"""


@dataclass(frozen=True)
class Readers:
    read: Callable[[Any], Any]
    job: Callable[..., Task]


@pytest.fixture()
def readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Readers:
    # Reader processes import the function by its module's name, so it must stand in a real module.
    name = f"readers_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(READERS))
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module(name)
    return Readers(module.read, module.Job)


def collect(readers: Readers, whats: list[str], processes: int) -> dict[int, list[Message]]:
    seen: dict[int, list[Message]] = {}
    with ReaderPool(readers.read, processes) as pool:
        jobs = [readers.job(n, what, 3.0 if what == "hang" else 60.0) for n, what in enumerate(whats)]
        for message in pool.run(jobs):
            seen.setdefault(message.number, []).append(message)
    return seen


def test_each_task_gives_its_parts_in_order_and_then_ends(readers: Readers) -> None:
    seen = collect(readers, ["ok"] * 5, processes=2)
    assert seen == {
        n: [Part(n, "start ok"), Part(n, 0), Part(n, 1), Part(n, 2), Finished(n)] for n in range(5)
    }


@pytest.mark.parametrize(
    ("what", "cause", "again"),
    [
        ("raise", "bad bytes", True),
        ("broken", "no film", False),
        ("kill", "SIGKILL", True),
        ("segv", "SIGSEGV", False),
        ("exit", "exit code 3", True),
    ],
)
def test_a_file_that_kills_its_reader_costs_only_itself(
    readers: Readers, what: str, cause: str, again: bool
) -> None:
    seen = collect(readers, ["ok", what, "ok", what, "ok"], processes=2)
    for number in (0, 2, 4):
        assert seen[number][-1] == Finished(number)
    for number in (1, 3):
        last = seen[number][-1]
        assert isinstance(last, Failed)
        assert cause in last.error
        assert last.again == again


@pytest.mark.slow
def test_a_reader_that_dies_in_the_middle_of_a_message_costs_only_its_file(readers: Readers) -> None:
    ended = []
    with ReaderPool(readers.read, 1) as pool:
        for message in pool.run([readers.job(0, "half"), readers.job(1, "ok")]):
            if message == Part(0, "start half"):
                pool._workers[0].process.wait()  # killed while its message of 8 MB fills the pipe
            ended += [] if isinstance(message, Part) else [message]
    assert isinstance(ended[0], Failed) and "SIGKILL" in ended[0].error and ended[0].again
    assert ended[1] == Finished(1)


@pytest.mark.slow
def test_a_reader_that_says_nothing_for_too_long_is_given_up(readers: Readers) -> None:
    seen = collect(readers, ["hang", "ok"], processes=1)
    last = seen[0][-1]
    assert isinstance(last, Failed)
    assert "3 s" in last.error
    assert seen[1][-1] == Finished(1)


def test_leaving_early_stops_the_readers(readers: Readers) -> None:
    pool = ReaderPool(readers.read, 1)
    with pool:
        next(iter(pool.run([readers.job(0, "hang")])))
        process = pool._workers[0].process
    assert process.poll() is not None


def test_no_task_starts_no_process(readers: Readers) -> None:
    with ReaderPool(readers.read, 4) as pool:
        assert list(pool.run([])) == []
        assert pool._workers == []


def test_a_script_without_a_main_guard_can_use_readers(readers: Readers, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        f"import {readers.read.__module__} as readers\n"
        "from whenabouts.index.workers import ReaderPool\n"
        "with ReaderPool(readers.read, 2) as pool:\n"
        "    print(len(list(pool.run([readers.Job(0, 'ok'), readers.Job(1, 'ok')]))))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("10\n", "")


def test_a_reader_that_died_between_files_costs_no_file(readers: Readers) -> None:
    with ReaderPool(readers.read, 1) as pool:
        ended = []
        for message in pool.run([readers.job(0, "ok"), readers.job(1, "ok")]):
            if not isinstance(message, Part):
                ended.append(message)
                pool._workers[0].process.kill()
                pool._workers[0].process.wait()
    assert ended == [Finished(0), Finished(1)]
