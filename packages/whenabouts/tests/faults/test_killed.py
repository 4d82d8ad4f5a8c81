"""Indexing that is killed, stopped, or has company: nothing is lost, doubled or half-written."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whenabouts.index.store import Store

pytestmark = pytest.mark.slow

TALKS = 70  # a write takes 64
INDEX = ("index", "--processes", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, write_talks: Any, samples: Path) -> Path:
    """Transcripts enough for several writes, and two videos that are decoded for their shots."""
    videos = tmp_path_factory.mktemp("videos")
    write_talks(videos, TALKS, 1)
    for name in ("friday.mp4", "friday.vtt", "flower.webm"):
        shutil.copy(samples / name, videos / name)
    return videos


@pytest.fixture(scope="module")
def unbroken(
    tmp_path_factory: pytest.TempPathFactory, folder: Path, here: Any, contents: Any, unmeasured: None
) -> Any:
    """What a corpus of the folder holds when nothing goes wrong."""
    place = tmp_path_factory.mktemp("unbroken") / "corpus"
    done = here(*INDEX, folder, "--corpus", place, "--shots", "--json")
    assert done.code == 0, done.err
    assert done.json["added"] == TALKS + 2
    return contents(place)


def commits(place: Path) -> int:
    """How many versions of the corpus's tables were ever written (a number that grows while a run writes)."""
    return sum(1 for _ in place.glob("*.lance/_transactions/*"))


def wait_for_clips(process: subprocess.Popen[str], place: Path) -> None:
    """Until a batch of clips has been written, so that the run is well under way."""
    versions = place / "clips_subtitle.lance" / "_versions"
    made = 4  # the table, its two indices, clips
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if len(list(versions.glob("*.manifest"))) >= made:  # there are temporary files, too
            return
        time.sleep(0.005)


def wait_for_commits(process: subprocess.Popen[str], place: Path, number: int) -> None:
    deadline = time.monotonic() + 60
    while commits(place) < number and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_run_killed_at_random_points_and_then_finished_equals_an_unbroken_one(
    kills: int, tmp_path: Path, folder: Path, program: Any, here: Any, contents: Any, unbroken: Any
) -> None:
    place = tmp_path / "corpus"
    dice = random.Random(kills)
    for number in range(kills):
        process = program.start(*INDEX, folder, "--corpus", place, "--shots", "--json")
        if number % 3 == 1:
            time.sleep(dice.uniform(0.1, 3))  # while it is starting, planning or reading
        else:
            wait_for_commits(process, place, commits(place) + dice.randint(1, 6))  # while it writes
            time.sleep(dice.uniform(0, 0.05))
        process.kill()
        if program.end(process).code == 0:  # it was quicker than the dice
            assert contents(place) == unbroken
            shutil.rmtree(place)
    done = here(*INDEX, folder, "--corpus", place, "--shots", "--json")
    assert done.code == 0, done.err
    assert not done.json["failed"]
    assert contents(place) == unbroken


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_keep_what_is_finished_and_the_next_run_goes_on(
    number: signal.Signals,
    code: int,
    tmp_path: Path,
    folder: Path,
    program: Any,
    here: Any,
    contents: Any,
    unbroken: Any,
) -> None:
    place = tmp_path / "corpus"
    process = program.start(*INDEX, folder, "--corpus", place, "--shots", "--table")
    wait_for_clips(process, place)
    os.killpg(process.pid, number)
    stopped = program.end(process)
    assert stopped.code == code, (stopped.out, stopped.err)
    assert "run the same command to go on" in stopped.out
    assert "Traceback" not in stopped.err
    finished = [record for record in Store.open(place).videos() if record.content_hash]
    assert finished
    done = here(*INDEX, folder, "--corpus", place, "--shots", "--json")
    assert done.code == 0
    assert done.json["unchanged"] == len(finished)
    assert done.json["added"] == TALKS + 2 - len(finished)
    assert contents(place) == unbroken


def test_no_reader_outlives_its_killed_parent(tmp_path: Path, folder: Path, program: Any) -> None:
    psutil = pytest.importorskip("psutil")
    process = program.start(*INDEX, folder, "--corpus", tmp_path / "corpus", "--json")
    parent = psutil.Process(process.pid)
    readers: list[Any] = []
    deadline = time.monotonic() + 60
    while not readers and time.monotonic() < deadline:
        readers = parent.children()
        time.sleep(0.02)
    assert readers
    process.kill()
    program.end(process)
    _, alive = psutil.wait_procs(readers, timeout=20)
    assert not alive


def test_a_second_indexer_says_who_is_at_work_or_waits(
    tmp_path: Path, folder: Path, program: Any, here: Any
) -> None:
    place = tmp_path / "corpus"
    first = program.start(*INDEX, folder, "--corpus", place, "--shots", "--json")
    wait_for_commits(first, place, 4)
    waiting = program.start(*INDEX, folder, "--corpus", place, "--shots", "--json", "--wait")
    os.kill(first.pid, signal.SIGSTOP)  # so that it is still at work, however slow the machine
    try:
        refused = here(*INDEX, folder, "--corpus", place, "--json")
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert refused.code == 2
    assert str(first.pid) in refused.err
    assert "wait" in refused.err
    assert program.end(first).json["added"] == TALKS + 2
    waited = program.end(waiting)
    assert waited.code == 0
    assert str(first.pid) in waited.err
    # It planned after the first one was done, so nothing is read twice.
    assert (waited.json["added"], waited.json["unchanged"]) == (0, TALKS + 2)


READER = """
import sys, time
from whenabouts import Corpus
corpus = Corpus(sys.argv[1], create=False)
seen = []
end = time.monotonic() + 90
while time.monotonic() < end:
    if corpus.stats().store.streams:
        videos = len(corpus.videos())  # before the search, which sees as many or more
        result = corpus.search("what does line 3 say of bbbb", k=20)
        seen.append((videos, len(result.moments)))
        if len(seen) == 1:
            print("searching", flush=True)
        if seen[-1][0] >= int(sys.argv[2]):
            break
print(len(seen), seen[0][0], seen[-1][0], seen[-1][1], [n for n, _ in seen] == sorted(n for n, _ in seen))
"""


def test_a_reader_searches_all_the_while_and_sees_more_and_more(
    tmp_path: Path, folder: Path, program: Any, write_talks: Callable[[Path, int, int], None]
) -> None:
    place = tmp_path / "corpus"
    write_talks(tmp_path / "first", 2, 5)
    assert program("index", tmp_path / "first", "--corpus", place, "--json").code == 0
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(place), str(TALKS + 4)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None and reader.stdout.readline() == "searching\n"
    done = program(*INDEX, folder, "--corpus", place, "--shots", "--json")
    out, err = reader.communicate(timeout=120)
    assert done.code == 0, done.err
    assert reader.returncode == 0, err
    searches, first, last, moments, is_growing = out.split()
    assert int(searches) >= 2
    assert int(first) < int(last) == TALKS + 4
    assert int(moments) == 20
    assert is_growing == "True"
