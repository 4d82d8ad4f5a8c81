"""`whenabouts judge` as a process: links, wrong use, and a server that is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.judging.served_set import SECRET, Judge, small_set

from whenabouts.cli.main import main
from whenabouts_bench.judging.journal import Journal


def test_wrong_use_names_the_remedy(
    tmp_path: Path, samples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["judge", str(tmp_path)]) == 2
    assert "is not a task set" in capsys.readouterr().err
    small_set(tmp_path / "set", samples)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = ["judge", str(tmp_path / "set"), "--cache", str(tmp_path / "cache")]
        assert main([*place, "--port", str(taken.getsockname()[1])]) == 2
    said = capsys.readouterr()
    assert "give another --port" in said.err
    assert "4 moments, 0 in the exam" in said.out
    assert "1 of 3 videos are missing, gone first: their moments can only be skipped; write" in said.out
    assert main([*place, "--annotator", "Ada", "--annotator", "Ada"]) == 2
    assert "--annotator Ada: is named twice" in capsys.readouterr().err
    assert main([*place, "--guests", str(tmp_path / "friends.json")]) == 2
    assert "friends.json: the file of guests cannot be read" in capsys.readouterr().err


def test_names_in_a_task_set_command_no_terminal(
    tmp_path: Path, samples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "set\x1b[2J\nserving at http://evil"
    small_set(tmp_path / name.replace("/", "_"), samples)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = ["judge", str(tmp_path / name.replace("/", "_")), "--cache", str(tmp_path / "cache")]
        assert main([*place, "--port", str(taken.getsockname()[1])]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "\x1b" not in "".join(lines)


def test_an_exam_that_nobody_could_pass_is_refused(
    tmp_path: Path, samples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = small_set(tmp_path / "set", samples, exam=True)
    videos = tasks.folder / "videos.jsonl"
    videos.write_text(videos.read_text().replace("flower.webm", "lost.webm"))
    assert main(["judge", str(tasks.folder)]) == 2
    said = capsys.readouterr().err
    assert "exam.jsonl: task e0: the recording of 'flower hidden caption' is not there" in said
    assert "write its path into" in said


@contextmanager
def running(folder: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """The command, and the links that it prints by name."""
    command = [
        sys.executable,
        "-m",
        "whenabouts.cli.main",
        "judge",
        str(folder / "set"),
        "--port",
        "0",
    ]
    command += ["--annotator", "Ada", "--cache", str(folder / "cache")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "WHENABOUTS_TOKEN": SECRET}
    ) as process:
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline() for _ in range(4)]
            yield process, dict(line.strip().rsplit(": ", 1) for line in lines if "http" in line)
        finally:
            process.kill()


@pytest.mark.slow
def test_a_server_that_is_killed_has_lost_nothing_and_its_links_go_on(tmp_path: Path, samples: Path) -> None:
    tasks = small_set(tmp_path / "set", samples)
    with running(tmp_path) as (process, links):
        address, _, token = links["Ada"].partition("?token=")
        with httpx.Client(base_url=address, timeout=60) as client:
            judge = Judge(client, token, "Ada")
            assert judge.next()["task"]["task_id"] == "t0"
            judge.grade("t0", 3)
            judge.grade("t1", 1, id="ab" * 16)
            process.send_signal(signal.SIGKILL)
            process.wait()
            with pytest.raises(httpx.TransportError):
                judge.next()
    with running(tmp_path) as (process, links):
        assert links["Ada"].endswith(token)
        with httpx.Client(base_url=links["Ada"].partition("?")[0], timeout=60) as client:
            again = Judge(client, token, "Ada").grade("t1", 1, id="ab" * 16)
        assert again["next"]["task"]["task_id"] == "t2"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    state = Journal.open(tasks).state()
    assert (state.grades("t0"), state.grades("t1"), state.seq) == ((3,), (1,), 3)
