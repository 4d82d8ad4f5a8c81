"""The same tables on an object store: a Ceph gateway and moto's mock, both on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.s3 import Server, running

from whenabouts import Corpus
from whenabouts.index import lock
from whenabouts.index.lock import CorpusBusy
from whenabouts.index.records import ClipColumns, NotACorpus, StreamInfo, VideoRecord
from whenabouts.index.store import Store

pytestmark = pytest.mark.slow

WIDTH = 16


@pytest.fixture(scope="module", params=["ceph", "moto"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


@pytest.fixture
def options(server: Server) -> dict[str, str]:
    return server.options


@pytest.fixture
def bucket(server: Server) -> str:
    return f"s3://{server.bucket()}/my.corpus"


@pytest.fixture(autouse=True)
def _short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LEASE_SECONDS", 12.0)


def clips(count: int, seed: int) -> ClipColumns:
    rows = np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    start = np.arange(count, dtype=np.float64) * 2.0
    return ClipColumns(start, start + 2.0, [f"line {index}" for index in range(count)], rows)


def test_a_corpus_on_s3_is_made_written_searched_reopened_and_changed(
    bucket: str, options: dict[str, str]
) -> None:
    with pytest.raises(NotACorpus, match="holds no corpus"):
        Store.open(bucket, storage_options=options)
    store = Store.open(bucket, create=True, storage_options=options)
    store.add_stream(StreamInfo("subtitle", "mini", "mini@1", WIDTH))
    done = {"subtitle": "mini@1"}
    store.put_videos((VideoRecord(f"v'{n}", "p", streams=done), {"subtitle": clips(6, n)}) for n in range(5))
    store.put_video(VideoRecord("v'2", "p", title="again", streams=done), {"subtitle": clips(4, 9)})
    store.optimize(force=True)
    again = Store.open(bucket, storage_options=options)
    vector = clips(4, 9).vectors
    assert vector is not None
    hits = again.nearest("subtitle", vector[3], 3)
    assert (hits.video_ids[0], hits.index[0]) == ("v'2", 3)
    assert len(again.match_text("subtitle", "lines", 50)) == 28
    assert again.clips_of("subtitle", ["v'2", "v'0"]).offsets.tolist() == [0, 4, 10]
    assert again.remove_videos(["v'0"])
    store.refresh()
    assert [row.video_id for row in store.videos()] == ["v'1", "v'2", "v'3", "v'4"]
    assert store.stats().bytes is None


def test_two_writers_on_s3_exclude_each_other(bucket: str, options: dict[str, str]) -> None:
    one = Store.open(bucket, create=True, storage_options=options)
    two = Store.open(bucket, storage_options=options)
    with one.writing():
        with pytest.raises(CorpusBusy, match="process"):
            two.put_records([VideoRecord("a", "p")])
        one.put_records([VideoRecord("b", "p")])
    two.put_records([VideoRecord("a", "p")])
    assert [row.video_id for row in two.videos()] == ["a", "b"]


def test_of_two_that_ask_at_once_one_gets_the_lease(bucket: str, options: dict[str, str]) -> None:
    Store.open(bucket, create=True, storage_options=options)
    stores = [Store.open(bucket, storage_options=options) for _ in range(4)]
    start = threading.Barrier(len(stores))
    won: list[bool] = []

    def ask(store: Store) -> None:
        start.wait()
        won.append(store._lock.try_acquire())

    threads = [threading.Thread(target=ask, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won.count(True) == 1
    for store in stores:
        store._lock.release()


def test_the_whole_way_works_on_s3_from_python_and_the_command_line(
    bucket: str, server: Server, options: dict[str, str], samples: Path
) -> None:
    place = f"{bucket}/whole.corpus"
    summary = Corpus(place, storage_options=options, create=True).add(samples / "friday.mp4", processes=1)
    assert summary.added == 1
    result = Corpus(place, create=False, storage_options=options).search("crown jewels", k=1)
    # Words that are said as they are make a match, also in one short video.
    assert result.answer == "match"
    done = subprocess.run(
        [sys.executable, "-m", "whenabouts", "search", "crown jewels", "-k1", "--corpus", place, "--json"],
        env={**os.environ, **server.environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(result.to_json()))


def test_keys_may_stand_in_a_file_of_profiles(bucket: str, server: Server, tmp_path: Path) -> None:
    Store.open(bucket, create=True, storage_options=server.options)
    profiles = tmp_path / "credentials"
    profiles.write_text(
        f"[archive]\naws_access_key_id = {server.access}\naws_secret_access_key = {server.secret}\n"
    )
    named = {key: value for key, value in server.environment.items() if "KEY" not in key}
    named |= {"AWS_SHARED_CREDENTIALS_FILE": str(profiles), "AWS_PROFILE": "archive"}
    code = "import sys; from whenabouts.index.store import Store\n"
    code += "with Store.open(sys.argv[1]).writing(): print('ours')"
    done = subprocess.run(
        [sys.executable, "-c", code, bucket],
        env={**os.environ, **named}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ours\n"), done.stderr
