"""One writer per corpus: the second waits or is told who is at work; the dead hold nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from whenabouts.index import lock as lock_module
from whenabouts.index.lock import CorpusBusy, FolderLock, Holder, Lease, LeaseLock, acquire
from whenabouts.index.records import StoreError, VideoRecord
from whenabouts.index.store import Store

HOLD = """
import sys, time
from pathlib import Path
from whenabouts.index.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print(lock.try_acquire(), flush=True)
time.sleep(float(sys.argv[2]))
"""

# The holder forks a worker that outlives it, as decoding processes may; the worker says when it runs.
FORK_AND_HOLD = """
import os, sys, time
from pathlib import Path
from whenabouts.index.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
lock.try_acquire()
if not os.fork():
    print(os.getpid(), flush=True)
time.sleep(60)
"""


def holder(folder: Path, seconds: float = 60, code: str = HOLD) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(seconds)], stdout=subprocess.PIPE, text=True
    )


def test_the_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "True\n"
        with pytest.raises(CorpusBusy, match=rf"process {first.pid} on ") as busy:
            acquire(FolderLock(tmp_path), str(tmp_path))
        assert busy.value.holder is not None
        assert busy.value.holder.pid == first.pid
        first.kill()


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (
            ["/bin/whenabouts", "--debug", "index", "films"],
            r"by `whenabouts index`, process .*; wait until it is",
        ),
        (
            ["/lib/whenabouts/__main__.py", "watch", "films"],
            r"by `whenabouts watch`, process .*\(--wait does so\)",
        ),
        (
            ["/lib/whenabouts/server/job_worker.py", "serve"],
            r"by `whenabouts serve`, process .*\(--wait does so\)",
        ),
        (["mine.py", "watch"], "by process"),
        (["-c"], "by process"),
    ],
)
def test_the_second_writer_is_told_which_command_the_first_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], text: str
) -> None:
    monkeypatch.setattr(sys, "argv", command)
    lock = FolderLock(tmp_path)
    assert lock.try_acquire()
    with pytest.raises(CorpusBusy, match=text):
        acquire(FolderLock(tmp_path), str(tmp_path))
    lock.release()


def test_a_killed_writer_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        assert first.stdout is not None
        first.stdout.readline()
        first.send_signal(signal.SIGKILL)
        first.wait()
        lock = FolderLock(tmp_path)
        assert lock.try_acquire()
        lock.release()


def test_a_worker_that_outlives_a_killed_writer_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path, code=FORK_AND_HOLD) as first:
        assert first.stdout is not None
        worker = int(first.stdout.readline())
        first.send_signal(signal.SIGKILL)
        first.wait()
        try:
            lock = FolderLock(tmp_path)
            assert lock.try_acquire()
            lock.release()
        finally:
            os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("deletions", [1, 3])
def test_deleting_the_lock_file_lets_no_second_writer_in(tmp_path: Path, deletions: int) -> None:
    with holder(tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "True\n"
        for _ in range(deletions):
            (tmp_path / lock_module.LOCK_FILE).unlink()
            with pytest.raises(CorpusBusy, match=rf"process {first.pid} on "):
                acquire(FolderLock(tmp_path), str(tmp_path))
        first.kill()
        first.wait()
    lock = FolderLock(tmp_path)
    assert lock.try_acquire()
    lock.release()


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / lock_module.LOCK_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="cannot be written"):
        FolderLock(tmp_path).try_acquire()
    assert not (tmp_path / "elsewhere").exists()


def test_a_link_in_the_place_of_the_holders_name_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    folder = tmp_path / "corpus of a stranger"
    folder.mkdir()
    for name in (lock_module.HOLDER_FILE, f"{lock_module.HOLDER_FILE}.{os.getpid()}"):
        (folder / name).symlink_to(tmp_path / "mine")
    lock = FolderLock(folder)
    assert lock.try_acquire()
    lock.release()
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_holders_name_of_a_stranger_hangs_nobody_and_is_a_plain_text(tmp_path: Path) -> None:
    place = tmp_path / lock_module.HOLDER_FILE
    os.mkfifo(place)
    assert FolderLock(tmp_path).holder() is None
    place.unlink()
    for text in ("[", "[" * 3000, "7", '{"pid": 1}', '{"pid": 1e999, "host": "", "since": 0}', " " * 5000):
        place.write_text(text)
        assert FolderLock(tmp_path).holder() is None
    place.write_text('{"pid": "7", "host": ["x"], "since": "1", "more": 2}')
    assert FolderLock(tmp_path).holder() == Holder(7, "['x']", 1.0)


def test_the_second_writer_waits_if_asked_to(tmp_path: Path) -> None:
    told: list[Holder | None] = []
    with holder(tmp_path, 0.6) as first:
        assert first.stdout is not None
        first.stdout.readline()
        lock = FolderLock(tmp_path)
        acquire(lock, str(tmp_path), wait=30, on_wait=told.append)
        lock.release()
    assert [one and one.pid for one in told] == [first.pid]


def test_two_stores_in_one_process_exclude_each_other(tmp_path: Path) -> None:
    one = Store.open(tmp_path / "c", create=True)
    two = Store.open(tmp_path / "c")
    with one.writing():
        with pytest.raises(CorpusBusy):
            two.put_records([VideoRecord("a", "p")])
        one.put_records([VideoRecord("b", "p")])
    two.put_records([VideoRecord("a", "p")])
    assert [row.video_id for row in two.videos()] == ["a", "b"]


def test_threads_that_write_through_one_store_take_turns(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "c", create=True)
    threads = [
        threading.Thread(target=store.put_records, args=([VideoRecord(f"v{number}", "p")],))
        for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row.video_id for row in store.videos()] == [f"v{number}" for number in range(6)]


def test_a_folder_through_a_link_is_the_same_corpus(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    lock, other = FolderLock(tmp_path / "real"), FolderLock(tmp_path / "link")
    assert lock.try_acquire()
    assert not other.try_acquire()
    lock.release()
    assert other.try_acquire()
    other.release()


def test_of_many_threads_one_gets_the_lock(tmp_path: Path) -> None:
    locks = [FolderLock(tmp_path) for _ in range(12)]
    won: list[bool] = []
    threads = [threading.Thread(target=lambda lock=lock: won.append(lock.try_acquire())) for lock in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 11 + [True]
    for lock in locks:
        lock.release()
    again = FolderLock(tmp_path)
    assert again.try_acquire()
    again.release()


class OneCell:
    """A compare-and-set cell in memory, as the object store's table is one."""

    def __init__(self) -> None:
        self.lease = Lease("", "", 0.0)
        self.away_from = ""
        self.loses_answers = False

    def swap(self, lease: Lease, seen: Lease) -> bool:
        if self.away_from and self.away_from == lease.owner:
            raise OSError("no network")
        if (self.lease.owner, self.lease.stamp) != (seen.owner, seen.stamp):
            return False
        self.lease = lease
        return not self.loses_answers

    def read(self) -> Lease:
        return self.lease


class Clock:
    """What leases take for the time; it stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(lock_module, "_now", lambda: made.now)
    return made


def until(is_so: Callable[[], bool]) -> None:
    """Wait for another thread; the test fails where it never comes to it."""
    for _ in range(6000):
        if is_so():
            return
        time.sleep(0.01)
    pytest.fail("waited a minute")


def test_a_lease_excludes_others_is_renewed_and_given_back(clock: Clock) -> None:
    cell = OneCell()
    one, two = LeaseLock(cell, 0.3), LeaseLock(cell, 0.3)
    assert one.try_acquire()
    stamp = cell.lease.stamp
    assert not two.try_acquire()
    undecided = [two.is_undecided]
    clock.now += 0.2
    until(lambda: cell.lease.stamp > stamp)  # the lease is renewed
    clock.now += 0.2
    assert not two.try_acquire()
    undecided.append(two.is_undecided)
    assert undecided == [True, False]  # a renewal was seen meanwhile
    known = two.holder()
    assert known is not None
    assert known.pid == os.getpid()
    one.release()
    assert two.try_acquire()
    two.release()


@pytest.mark.parametrize("hours", [-1, 1])
def test_clocks_that_are_an_hour_apart_neither_end_a_lease_nor_keep_a_dead_one(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    cell = OneCell()
    one, two = LeaseLock(cell, 60), LeaseLock(cell, 60)
    assert one.try_acquire()
    there = time.time
    monkeypatch.setattr(time, "time", lambda: there() + 3600 * hours)
    assert not two.try_acquire()
    clock.now += 59
    assert not two.try_acquire()
    clock.now += 2  # watched for as long as a lease lasts, and it was never renewed
    assert two.try_acquire()
    assert one.is_lost()
    one.release()
    assert cell.lease.owner == two._owner
    two.release()
    assert cell.lease.owner == ""


def test_of_two_that_find_the_same_dead_lease_one_takes_it(clock: Clock) -> None:
    cell = OneCell()
    cell.lease = Lease("dead", "", 5.0)
    locks = [LeaseLock(cell, 60) for _ in range(2)]
    assert not any(lock.try_acquire() for lock in locks)
    clock.now += 61
    assert [lock.try_acquire() for lock in locks] == [True, False]
    for lock in locks:
        lock.release()


def test_whoever_waits_is_told_at_the_first_sign_of_life(clock: Clock) -> None:
    cell = OneCell()
    one, two = LeaseLock(cell, 0.3), LeaseLock(cell, 0.3)
    assert one.try_acquire()
    told: list[Holder | None] = []
    with pytest.raises(CorpusBusy, match=f"process {os.getpid()}"):
        acquire(two, "s3://b/c", on_wait=told.append)
    assert len(told) == 1
    one.release()


def test_a_lease_that_could_not_be_renewed_is_known_to_be_lost(clock: Clock) -> None:
    cell = OneCell()
    one, two = LeaseLock(cell, 0.3), LeaseLock(cell, 0.3)
    assert one.try_acquire()
    cell.away_from = one._owner
    assert not two.try_acquire()
    clock.now += 0.5
    assert two.try_acquire()
    with pytest.raises(OSError, match="no network"):
        one.is_lost()
    cell.away_from = ""
    assert one.is_lost()
    one.release()
    assert cell.lease.owner == two._owner
    two.release()


def test_a_renewal_whose_answer_was_lost_is_a_renewal(clock: Clock) -> None:
    cell = OneCell()
    one = LeaseLock(cell, 60)
    assert one.try_acquire()
    cell.loses_answers = True
    clock.now += 30
    assert not one.is_lost()
    cell.loses_answers = False
    clock.now += 30
    assert not one.is_lost()
    one.release()
    assert cell.lease.owner == ""
