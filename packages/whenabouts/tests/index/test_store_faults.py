"""The corpus under fire: killed writers, full disks, readers in other processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from whenabouts.index.records import ClipColumns, DiskFull, StoreError, StreamInfo, VideoRecord
from whenabouts.index.store import Store

pytestmark = pytest.mark.slow

WIDTH = 32
WORDS = StreamInfo("subtitle", "mini", "mini@1", WIDTH)

# A writer that puts video after video (each third one twice), says what is finished, and tidies up.
WRITER = """
import sys
import numpy as np
from whenabouts.index.records import ClipColumns, VideoRecord
from whenabouts.index.store import Store
store = Store.open(sys.argv[1])
first = int(sys.argv[2])
rng = np.random.default_rng(first)
for number in range(first, first + int(sys.argv[3])):
    count = 3 + number % 5
    lines = [f"line {i} of {number}" for i in range(count)]
    columns = ClipColumns(np.arange(count) * 1.0, np.arange(count) + 1.0, lines,
                          rng.standard_normal((count, 32)).astype(np.float32))
    record = VideoRecord(f"v{number:05d}", "p", size=1, content_hash="whole", streams={"subtitle": "mini@1"})
    for _ in range(2 if number % 3 == 0 else 1):
        store.put_video(record, {"subtitle": columns})
    print(number, flush=True)
    if number % 20 == 19:
        store.optimize(force=True)
"""

READER = """
import sys, time
import numpy as np
from whenabouts.index.store import Store
store = Store.open(sys.argv[1])
answers = 0
seen = 0
began = time.monotonic()
# So long, and on a busy machine until enough has been written for the reading to mean something.
while time.monotonic() < began + float(sys.argv[2]) or (seen < 20 and time.monotonic() < began + 60):
    if answers % 3 == 0:
        store.refresh()
    hits = store.nearest("subtitle", np.ones(32), 20)
    block = store.clips_of("subtitle", list(dict.fromkeys(hits.video_ids)))
    store.match_text("subtitle", "line 1", 5)
    known = {row.video_id for row in store.videos()}
    seen = max(seen, len(known))
    answers += 1
print(answers, seen)
"""


def whole(store: Store) -> list[str]:
    """Check that every finished video has its clips, once each; the ids of the finished ones."""
    counts = store.clip_counts("subtitle")
    ledger = {row.video_id: row for row in store.videos()}
    assert set(counts) <= set(ledger), "a clip without a ledger row"
    finished = [name for name, row in ledger.items() if row.content_hash == "whole"]
    for name in finished:
        assert counts[name] == 3 + int(name[1:]) % 5, name
        assert store.clips_of("subtitle", [name]).index.tolist() == list(range(counts[name]))
    return finished


@pytest.fixture
def place(tmp_path: Path) -> str:
    corpus = Store.open(tmp_path / "c", create=True)
    corpus.add_stream(WORDS)
    return corpus.place


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_writer_killed_at_random_points_loses_and_doubles_nothing(place: str, kills: int) -> None:
    dice = random.Random(4)
    acknowledged: list[int] = []
    for _ in range(kills):
        first = acknowledged[-1] + 1 if acknowledged else 0
        command = [sys.executable, "-c", WRITER, place, str(first), "100000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            acknowledged.append(int(writer.stdout.readline()))
            time.sleep(dice.uniform(0, 0.7))
            writer.send_signal(signal.SIGKILL)
            acknowledged += [int(line) for line in writer.stdout.read().split()]
        store = Store.open(place)
        finished = whole(store)
        assert set(finished) >= {f"v{number:05d}" for number in acknowledged}
    # The lock of the dead is free, and what was cut short is done again.
    subprocess.run(
        [sys.executable, "-c", WRITER, place, "0", str(acknowledged[-1] + 2)], check=True, capture_output=True
    )
    assert len(whole(Store.open(place))) == acknowledged[-1] + 2


@pytest.mark.parametrize("breaking", ["add", "_upsert_ledger"])
def test_a_crash_between_two_commits_leaves_a_row_that_matches_no_file(
    place: str, breaking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(place)
    columns = ClipColumns(np.zeros(3), np.ones(3), ["a", "b", "c"], np.eye(3, WIDTH, dtype=np.float32))
    record = VideoRecord(
        "v00000", "p", size=9, modified_ns=4, content_hash="whole", streams={"subtitle": "mini@1"}
    )
    store.put_video(record, {"subtitle": columns})
    calls = iter(range(9))
    original = store._upsert_ledger

    def upsert_once(records: list[VideoRecord]) -> None:
        if next(calls) > 0:
            raise KeyboardInterrupt
        original(records)

    def no_clips(name: str, rows: object) -> None:
        raise KeyboardInterrupt

    if breaking == "add":
        monkeypatch.setattr(store, "_add_clips", no_clips)
    else:
        monkeypatch.setattr(store, "_upsert_ledger", upsert_once)
    with pytest.raises(KeyboardInterrupt):
        store.put_video(record, {"subtitle": columns})
    reopened = Store.open(place)
    left = reopened.video("v00000")
    assert left is not None
    assert (left.size, left.content_hash, left.streams) == (-1, "", {})
    reopened.put_video(record, {"subtitle": columns})
    assert reopened.video("v00000") == record
    assert reopened.clip_counts("subtitle") == {"v00000": 3}


def test_a_reader_in_another_process_never_fails_and_sees_what_is_new(place: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", READER, place, "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as reader:
        while reader.poll() is None:
            first = len(Store.open(place).videos())
            subprocess.run(
                [sys.executable, "-c", WRITER, place, str(first), "21"], check=True, capture_output=True
            )
        assert reader.stdout is not None
        assert reader.stderr is not None
        answer, trouble = reader.stdout.read(), reader.stderr.read()
    assert reader.returncode == 0, trouble
    answers, seen = map(int, answer.split())
    assert answers > 5
    assert seen >= 20


def test_an_open_reader_goes_on_after_its_version_was_cleaned_up(place: str) -> None:
    writer, reader = Store.open(place), Store.open(place)
    for number in range(3):
        columns = ClipColumns(np.zeros(3), np.ones(3), ["a", "b", "c"], np.eye(3, WIDTH, dtype=np.float32))
        writer.put_video(
            VideoRecord(f"v{number}", "p", streams={"subtitle": "mini@1"}), {"subtitle": columns}
        )
        writer.optimize(force=True)
        assert len(reader.nearest("subtitle", np.ones(WIDTH), 99)) <= 3 * (number + 1)
        assert len(reader.videos()) <= number + 1
        writer.put_video(
            VideoRecord(f"v{number}", "p", streams={"subtitle": "mini@1"}), {"subtitle": columns}
        )
        writer.optimize(force=True)
        assert len(reader.clips_of("subtitle", [f"v{number}"])) in (0, 3)
    reader.refresh()
    assert len(reader.videos()) == 3


def test_a_reader_that_loses_the_race_with_clean_ups_looks_again(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, lost = Store.open(place), list[str]()
    read_description = reader._read_description

    def lose_five_times() -> None:
        if len(lost) < 5:
            lost.append("once more")
            raise RuntimeError("lance error: Not found: data/0101.lance")
        read_description()

    monkeypatch.setattr(reader, "_read_description", lose_five_times)
    reader.description_version = -1  # as if another program had changed the description
    reader.refresh()
    assert len(lost) == 5


def test_a_file_that_is_really_gone_is_told_with_the_place(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Store.open(place)

    def gone() -> None:
        raise RuntimeError("lance error: Not found: data/0101.lance")

    monkeypatch.setattr(reader, "_read_description", gone)
    reader.description_version = -1
    with pytest.raises(StoreError, match=r"cannot read the corpus: lance error: Not found: data/0101\.lance"):
        reader.refresh()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = (
        os.getuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    )
    if not mounted:
        pytest.skip("a small file system can be mounted by root only, and not in every container")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_says_so_and_keeps_what_was_there(small_disk: Path) -> None:
    store = Store.open(small_disk / "c", create=True)
    store.add_stream(WORDS)
    rng = np.random.default_rng(0)
    written = 0
    with pytest.raises(DiskFull, match=r"disk is full.*kept.*[Ff]ree some space"):
        for number in range(1000):
            columns = ClipColumns(
                np.zeros(3000), np.ones(3000), None, rng.standard_normal((3000, WIDTH)).astype(np.float32)
            )
            record = VideoRecord(f"v{number}", "p", content_hash="whole", streams={"subtitle": "mini@1"})
            store.put_video(record, {"subtitle": columns})
            written += 1
    assert written > 3
    reopened = Store.open(store.place)
    finished = [row.video_id for row in reopened.videos() if row.content_hash == "whole"]
    assert len(finished) >= written  # the last may have been finished before its upkeep found no room
    counts = reopened.clip_counts("subtitle")
    assert all(counts[name] == 3000 for name in finished)
    # With room again, the same corpus goes on.
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    reopened.remove_videos(finished[:2])
    reopened.optimize(force=True)
    small = ClipColumns(np.zeros(3), np.ones(3), None, np.eye(3, WIDTH, dtype=np.float32))
    reopened.put_video(VideoRecord("after", "p", streams={"subtitle": "mini@1"}), {"subtitle": small})
    assert reopened.clip_counts("subtitle")["after"] == 3
