"""Locks of folders: one holder at a time, even if files are deleted or processes are killed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from whenabouts import locking

HOLD = """
import os, sys, time
from pathlib import Path
from whenabouts import locking
held = locking.hold(Path(sys.argv[1]), "lock")
read, write = os.pipe()
child = os.fork() if sys.argv[2] == "fork" else 0
if sys.argv[2] == "fork" and not child:
    os.write(write, b"begun")
else:
    child and os.read(read, 5)
    print(held is not None, child, flush=True)
time.sleep(60)
"""


def test_one_holds_and_then_the_next(tmp_path: Path) -> None:
    first = locking.hold(tmp_path, "lock")
    assert first is not None
    assert locking.hold(tmp_path, "lock") is None
    first.release()
    first.release()
    again = locking.hold(tmp_path, "lock")
    assert again is not None
    again.release()


@pytest.mark.parametrize("how", ["fork", "alone"])
def test_a_holder_that_is_killed_holds_nothing_and_while_it_lives_deleting_changes_nothing(
    tmp_path: Path, how: str
) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path, how], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        taken, child = process.stdout.readline().split()
        assert taken == b"True"
        (tmp_path / "lock").unlink()
        assert locking.hold(tmp_path, "lock") is None
        process.kill()
        process.wait()
        held = locking.hold(tmp_path, "lock")
        assert held is not None
        held.release()
        if int(child):
            os.kill(int(child), 9)


def test_a_forked_child_does_not_give_back_what_its_parent_holds(tmp_path: Path) -> None:
    held = locking.hold(tmp_path, "lock", fcntl.lockf)
    assert held is not None
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    code = f"from whenabouts import locking, Path; print(locking.hold(Path({str(tmp_path)!r}), 'lock'))"
    code = code.replace("locking, Path", "locking; from pathlib import Path")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
    held.release()


def test_a_file_system_that_locks_no_folders_is_held_by_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            raise OSError(9, "Bad file descriptor")
        plain(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    held = locking.hold(tmp_path, "lock", flock)
    assert held is not None
    assert locking.hold(tmp_path, "lock", flock) is None
    held.release()


def test_of_many_threads_one_holds(tmp_path: Path) -> None:
    taken: list[locking.HeldFolder | None] = []
    threads = [
        threading.Thread(target=lambda: taken.append(locking.hold(tmp_path, "lock"))) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(held is not None for held in taken) == 1
