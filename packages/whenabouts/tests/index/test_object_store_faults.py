"""A corpus on a store that answers badly: late, not at all, half, with errors, or whose writer is killed."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import TypeVar

import numpy as np
import pytest
from tests.s3 import Fault, Proxy, Request, Server, running

from whenabouts.index import lock
from whenabouts.index.records import (
    ClipColumns,
    NewerCorpus,
    StoreError,
    StoreRefused,
    StreamInfo,
    VideoRecord,
)
from whenabouts.index.store import Store

pytestmark = pytest.mark.slow

WIDTH = 16
Result = TypeVar("Result")
DONE = {"subtitle": "mini@1"}

# Puts video after video and says which are finished; a lease that is not renewed lasts two seconds.
WRITER = """
import json, sys
from tests.index import test_object_store_faults as tests
from whenabouts.index import lock
from whenabouts.index.store import Store
lock.LEASE_SECONDS = 2.0
store = Store.open(sys.argv[1], storage_options=json.loads(sys.argv[2]))
for number in range(int(sys.argv[3]), 1000):
    tests.put(store, number)
    print(number, flush=True)
"""


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real store where one is installed."""
    name = "ceph" if shutil.which("radosgw") else "moto"
    with running(name, tmp_path_factory.mktemp(name)) as server:
        yield server


@pytest.fixture
def proxy(behind: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(lock, "LEASE_SECONDS", 2.0)
    with Proxy(behind) as made:
        yield made


@pytest.fixture
def place(behind: Server) -> str:
    return f"s3://{behind.bucket()}/my.corpus"


@pytest.fixture
def options(proxy: Proxy) -> dict[str, str]:
    """Those of a client that gives up after five seconds and not after three minutes."""
    return {**proxy.server.options, "client_max_retries": "3", "client_retry_timeout": "5", "timeout": "5s"}


def put(store: Store, number: int) -> None:
    """Write one video of five clips."""
    rows = np.random.default_rng(number).standard_normal((5, WIDTH)).astype(np.float32)
    start = np.arange(5, dtype=np.float64) * 2.0
    clips = ClipColumns(start, start + 2.0, [f"line {index} of {number}" for index in range(5)], rows)
    record = VideoRecord(f"v{number:04d}", "p", size=1, content_hash="whole", streams=DONE)
    store.put_video(record, {"subtitle": clips})


def made(place: str, options: dict[str, str], videos: int = 1) -> Store:
    store = Store.open(place, create=True, storage_options=options)
    store.add_stream(StreamInfo("subtitle", "mini", "mini@1", WIDTH))
    for number in range(videos):
        put(store, number)
    return store


def finished(store: Store) -> list[str]:
    """The ids of the finished videos; each has its clips, once each, and no clip is without a row."""
    counts, rows = store.clip_counts("subtitle"), store.videos()
    assert counts.keys() <= {row.video_id for row in rows}
    names = [row.video_id for row in rows if row.content_hash]
    assert all(counts[name] == 5 for name in names)
    assert not store.doubled()
    return names


def again(act: Callable[[], Result]) -> Result:
    """What a user does: the same once more, where an answer broke off that LanceDB does not ask for again."""
    for _ in range(10):
        try:
            return act()
        except StoreError as error:
            assert "hangs up" in str(error)
    pytest.fail("nothing works")


FAULTS = {
    "503": (Fault(503, "SlowDown"), "overloaded or away"),
    "expired": (Fault(400, "ExpiredToken"), "credentials that have expired .*get new ones"),
    "clocks": (Fault(403, "RequestTimeTooSkewed"), "clocks that are too far apart .*set this machine's"),
    "full": (Fault(507, "InsufficientStorage"), "storage that is full .*make room"),
    "hangs up": (Fault(lost=True), "cannot be reached, or hangs up"),
    "silent": (Fault(seconds=30), "cannot be reached, or hangs up|overloaded or away"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_write_that_the_store_refuses_says_why_and_the_next_one_finishes(
    name: str, proxy: Proxy, place: str, options: dict[str, str]
) -> None:
    fault, message = FAULTS[name]
    store = made(place, options)
    puts = count()
    proxy.fault = lambda asked: fault if asked.method == "PUT" and next(puts) >= 4 else None
    with pytest.raises(StoreError, match=f"{place}: cannot .*{message}"):
        put(store, 1)
    proxy.well()
    again = Store.open(place, storage_options=options)
    assert "v0000" in finished(again)
    put(again, 1)
    assert finished(again) == ["v0000", "v0001"]
    assert len(again.match_text("subtitle", "lines", 20)) == 10


@pytest.mark.parametrize("name", ["503", "expired", "clocks", "hangs up"])
def test_a_read_that_the_store_refuses_says_why(
    name: str, proxy: Proxy, place: str, options: dict[str, str]
) -> None:
    made(place, options)
    fault, message = FAULTS[name]
    proxy.fault = lambda asked: fault
    with pytest.raises(StoreRefused, match=f"{place}: cannot open the corpus: .*{message}"):
        Store.open(place, storage_options=options)
    proxy.well()
    assert finished(Store.open(place, storage_options=options)) == ["v0000"]


def test_answers_that_break_off_come_late_or_say_503_now_and_then_change_nothing(
    proxy: Proxy, place: str, options: dict[str, str]
) -> None:
    rng = random.Random(3)
    faults = [Fault(503, "SlowDown"), Fault(cut=True), Fault(seconds=0.3)]

    def sometimes(asked: Request) -> Fault | None:
        kind = faults[rng.randrange(3)] if rng.random() < 0.1 else None
        return None if kind and kind.cut and asked.method != "GET" else kind

    proxy.fault = sometimes
    store = again(lambda: made(place, {**options, "client_max_retries": "8"}, videos=0))
    for number in range(6):
        again(partial(put, store, number))
    proxy.well()
    assert finished(store) == [f"v{number:04d}" for number in range(6)]
    assert len(Store.open(place, storage_options=options).nearest("subtitle", np.ones(WIDTH), 30)) == 30


def test_a_commit_of_which_the_answer_is_lost_is_there_once_or_done_again(
    proxy: Proxy, place: str, options: dict[str, str]
) -> None:
    store = made(place, options)
    lost: set[str] = set()

    def lose(asked: Request) -> Fault | None:
        is_commit = asked.method == "PUT" and "if-none-match" in asked.headers
        if not is_commit or asked.path in lost or "/corpus.lance/" in asked.path:
            return None
        lost.add(asked.path)
        return Fault(lost=True)

    proxy.fault = lose
    put(store, 1)
    assert lost
    proxy.well()
    # What was written twice is known, and `index` does it again.
    for video_id in store.doubled():
        put(store, int(video_id[1:]))
    assert finished(store) == ["v0000", "v0001"]


def test_a_writer_killed_at_any_put_leaves_whole_videos_to_readers_and_the_next_writer(
    proxy: Proxy, place: str, options: dict[str, str]
) -> None:
    made(place, options)
    stop, problems, read = threading.Event(), list[BaseException](), count()

    def reading() -> None:
        try:
            reader = Store.open(place, storage_options=options)
            while not stop.is_set():
                reader.refresh()
                hits = reader.nearest("subtitle", np.ones(WIDTH), 50)
                assert len(set(zip(hits.video_ids, hits.index, strict=True))) == len(hits)
                assert reader.match_text("subtitle", "lines", 5)
                next(read)
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=reading)
    thread.start()
    rng, number = random.Random(5), 1
    for _ in range(4):
        at, puts = rng.randrange(8, 40), count()
        command = [sys.executable, "-c", WRITER, place, json.dumps(options), str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:

            def kill(asked: Request, writer: subprocess.Popen[str] = writer, at: int = at) -> None:
                if asked.method == "PUT" and next(puts) == at:  # noqa: B023
                    writer.kill()

            proxy.fault = kill
            assert writer.stdout is not None
            said = writer.stdout.read().split()
        proxy.well()
        store = Store.open(place, storage_options=options)
        with store.writing():  # the dead writer's lease is taken over
            names = finished(store)
        assert {f"v{int(line):04d}" for line in said} <= set(names)
        number = int(names[-1][1:]) + 1
    stop.set()
    thread.join()
    assert not problems, problems
    assert next(read) > 3
    assert number > 3


def test_a_corpus_of_a_newer_version_is_left_as_it_is(
    proxy: Proxy, place: str, options: dict[str, str]
) -> None:
    store = made(place, options)
    with contextlib.suppress(NewerCorpus), store.writing():
        store._describe({"format": {"version": 7, "whenabouts": "9.9"}})
    before = [asked for asked in proxy.asked if asked.method == "PUT"]
    for create in (False, True):
        with pytest.raises(NewerCorpus, match=r"format 7 .*upgrade whenabouts"):
            Store.open(place, create=create, storage_options=options)
    assert [asked for asked in proxy.asked if asked.method == "PUT"] == before
