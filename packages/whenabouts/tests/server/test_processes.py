"""Several server processes: they serve one corpus, end together, and a dead one is replaced."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from tests.server.conftest import wait_until

from whenabouts.corpus import Corpus
from whenabouts.server.processes import share_of
from whenabouts.server.run import serve
from whenabouts.server.settings import Limits, Settings
from whenabouts.types import UsageError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes in /proc"),
]


def _children(process: int) -> set[int]:
    """The server processes besides the first one, without Python's resource tracker."""
    lists = [path.read_text().split() for path in Path(f"/proc/{process}/task").glob("*/children")]
    pids = {int(pid) for pids in lists for pid in pids}
    return {pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}


@contextmanager
def _running(corpus: Path, cache: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "whenabouts", "serve", "--corpus", str(corpus), "--port", "0"]
    command += ["--cache", str(cache), "--processes", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = re.search(r":(\d+)/", line)
        assert port is not None, line
        assert wait_until(lambda: len(_children(process.pid)) == 1)
        try:
            yield process, int(port.group(1))
        finally:
            process.kill()


def _is_there(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_they_answer_replace_each_other_and_end_together(one_video: Path, tmp_path: Path) -> None:
    with _running(one_video / "corpus", tmp_path / "cache") as (process, port):
        (child,) = _children(process.pid)
        os.kill(child, signal.SIGKILL)
        assert wait_until(lambda: bool(_children(process.pid) - {child}))
        for _ in range(4):
            address = f"http://127.0.0.1:{port}/api/search?query=crown"
            assert urllib.request.urlopen(address, timeout=60).status == 200
        (child,) = _children(process.pid) - {child}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert wait_until(lambda: not _is_there(child), 20)


def _sockets(process: int) -> int:
    count = 0
    for link in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            count += str(link.readlink()).startswith("socket:")
    return count


def test_connections_are_divided_evenly(one_video: Path, tmp_path: Path) -> None:
    with _running(one_video / "corpus", tmp_path / "cache") as (process, port):
        (child,) = _children(process.pid)

        def are_divided() -> bool:
            before = [_sockets(pid) for pid in (process.pid, child)]
            with ExitStack() as held:
                for _ in range(20):
                    held.enter_context(socket.create_connection(("127.0.0.1", port)))
                time.sleep(1)
                now = [_sockets(pid) for pid in (process.pid, child)]
            time.sleep(0.5)
            return min(now[0] - before[0], now[1] - before[1]) >= 8

        assert wait_until(are_divided, 120)  # the second may still be starting


def test_none_outlives_a_first_that_is_killed(one_video: Path, tmp_path: Path) -> None:
    with _running(one_video / "corpus", tmp_path / "cache") as (process, _):
        (child,) = _children(process.pid)
        process.kill()
        assert wait_until(lambda: not _is_there(child), 30)


def test_processes_share_what_all_may_use_together(one_video: Path) -> None:
    limits = Limits(searches=8, clips_a_minute=30, memory_bytes=1000 << 20)
    part = share_of(Settings(limits=limits), 4).limits
    assert (part.clips_a_minute, part.memory_bytes) == (7, 250 << 20)
    assert 1 <= part.searches <= 8
    for count in (0, -1, 1000):
        with pytest.raises(UsageError, match="--processes"):
            serve(Corpus(one_video / "corpus"), Settings(port=0), print, count)
