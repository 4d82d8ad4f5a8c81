"""Indexing on a Ray cluster of several nodes on this machine, while tests kill nodes and workers."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import psutil
import pytest
from tests.ray_cluster import cluster_head, nodes, overlay
from tests.stream_runs import words_run

from whenabouts import Corpus
from whenabouts.index.lookup import words_of
from whenabouts.index.progress import Progress, Summary
from whenabouts.index.reading import ReadTask
from whenabouts.index.workers import Failed
from whenabouts.types import WhenaboutsError
from whenabouts.video.speech_models import PACKAGED, why_unavailable
from whenabouts_cluster import ray_executor
from whenabouts_cluster.ray_executor import ClusterError, RayExecutor, _Job, _Worker, check_address, connected
from whenabouts_cluster.ray_workers import ReadingWorker, ShippedRun

NAMES = ("flower.webm", "frog.webm", "nasa_13013.mp4", "friday.mp4")


def test_an_address_that_is_none_is_refused() -> None:
    for address in ("ray://head:10001", "head", "head:x"):
        with pytest.raises(ClusterError, match="local, auto, or HOST:PORT"):
            check_address(address)


@pytest.mark.slow
def test_a_cluster_that_cannot_be_reached_is_told_at_once(corpus_dir: Path, samples: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        corpus = Corpus(corpus_dir, create=True)
        with pytest.raises(ClusterError, match=r"cannot be reached.*ray start --head"):
            corpus.add(samples / "friday.mp4", ray=address)
    assert corpus.store.videos() == []


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'whenabouts\[cluster\]'"):
        check_address("local")


def test_a_cluster_that_this_machine_is_not_part_of_is_named_in_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init(**options: Any) -> NoReturn:
        raise ConnectionError("no running instance")

    ray = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setattr(ray_executor, "_ray", lambda: ray)
    with pytest.raises(ClusterError, match="`ray start --address=HOST:PORT` here"), connected("auto"):
        pass


@pytest.mark.parametrize("is_reader", [False, True])
def test_workers_of_one_kind_alone_make_room_for_the_other_a_few_times(
    is_reader: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = RayExecutor([], "local")
    killed, begun = list[Any](), list[bool]()
    executor._ray = SimpleNamespace(kill=killed.append)
    executor._workers = [_Worker(name, is_reader) for name in ("first", "second")]

    def start(*, is_reader: bool) -> None:
        begun.append(is_reader)
        executor._workers.append(_Worker("again", is_reader))  # it found room before the other kind did

    monkeypatch.setattr(executor, "_start", start)
    for _ in range(10):
        executor._make_room()
    assert killed == ["second", *["again"] * 4]
    assert begun == [is_reader] * 5


def test_a_reader_and_an_encoder_or_one_alone_make_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = RayExecutor([], "local")
    monkeypatch.setattr(executor, "_replace", lambda worker: pytest.fail("nothing waits for room"))
    for kinds in ([], [False], [True], [False, True], [True, False, True]):
        executor._workers = [_Worker(None, is_reader) for is_reader in kinds]
        executor._make_room()


def test_a_file_whose_messages_break_off_is_read_again_and_then_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class RayError(Exception):
        pass

    executor, messages = RayExecutor([], "local"), list[Any]()
    exceptions = SimpleNamespace(RayError=RayError)
    executor._ray = SimpleNamespace(kill=lambda actor: None, get=lambda ref: ref, exceptions=exceptions)
    monkeypatch.setattr(executor, "_start", lambda *, is_reader: None)
    work: Any = SimpleNamespace(task=SimpleNamespace(number=0, path=tmp_path / "talk.mp3"))
    for attempt in range(1, 4):
        job = _Job(work, _Worker("encoder", False, load=1), None)
        executor._workers = [job.encoder]
        stream = iter(())
        executor._jobs, executor._by_number = {stream: job}, {0: job}
        executor._step(stream, messages.append)
        assert not executor._jobs and not executor._by_number
        assert len(executor._queue) == min(attempt, 2)
        assert len(messages) == (attempt == 3)
    assert "3 workers died while they had this file" in messages[0].error


WITHOUT_RAY = """
import sys
from whenabouts.calibration import measuring
from whenabouts.cli.main import main
from whenabouts.server.run import Server
measuring.is_due = lambda store, known: False
Server.run = lambda server, sockets=None: print("listening", file=sys.stderr)
talk, corpus = sys.argv[1:]
assert main(["index", talk, "--processes", "1", "--corpus", corpus]) == 0
assert main(["search", "crown jewels", "--corpus", corpus]) == 0
assert main(["serve", "--port", "0", "--corpus", corpus]) == 0
print(sorted(name for name in sys.modules if name.split(".")[0] == "ray"), file=sys.stderr)
"""


@pytest.mark.slow
def test_index_search_and_serve_on_one_machine_import_no_ray(corpus_dir: Path, samples: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_RAY, str(samples / "friday.vtt"), str(corpus_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-2:] == ["listening", "[]"]


def test_other_weights_on_a_worker_are_refused() -> None:
    from whenabouts.encoders import open_text_encoder

    shipped = ShippedRun.of(words_run("minilm", open_text_encoder()))
    assert shipped.opened({}).encoder.fingerprint == shipped.encoder
    with pytest.raises(WhenaboutsError, match=r"differs here.*copy the same model files to all machines"):
        replace(shipped, encoder="other weights").opened({})


def test_a_file_that_a_worker_does_not_see_names_the_node(tmp_path: Path) -> None:
    (message,) = ReadingWorker({}).read(ReadTask(0, tmp_path / "far.mp4", "media"))
    assert isinstance(message, Failed)
    assert socket.gethostname() in message.error
    assert "far.mp4" in message.error


@pytest.fixture(scope="module")
def head() -> Iterator[Any]:
    with cluster_head() as started:
        yield started


@pytest.fixture
def cluster(head: Any, tmp_path: Path) -> Iterator[Any]:
    """Two nodes with two cores each; the clock of the second is an hour ahead."""
    clock = "import time as _time\n_now = _time.time\n_time.time = lambda: _now() + 3600"
    with nodes(head, None, overlay(tmp_path / "ahead", {"whenabouts/__init__.py": clock})) as head.nodes:
        yield head


def rows(corpus: Corpus) -> dict[str, Any]:
    """All rows and clips of a corpus, without the times of indexing."""
    corpus.refresh()
    found: dict[str, Any] = {}
    for record in corpus.store.videos():
        found[record.video_id] = replace(record, indexed_at=0.0, stream_times={})
        for name in corpus.store.streams:
            block = corpus.store.clips_of(name, [record.video_id])
            columns = block.start.tolist(), block.end.tolist(), block.text, block.vectors.tolist()
            found[f"{record.video_id}/{name}"] = columns
    return found


@pytest.fixture
def local_rows(likeness_corpus: Path) -> dict[str, Any]:
    return rows(Corpus(likeness_corpus))


def workers(kind: str) -> list[psutil.Process]:
    """The workers of a kind in this test process's clusters; other clusters may run on the machine."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name().startswith(f"ray::{kind}"):
                found.append(process)
    return found


def indexed(
    corpus: Corpus, samples: Path, address: str, at_first: Callable[[], None] = lambda: None
) -> Summary:
    is_first = True

    def progress(now: Progress) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            at_first()

    files = [samples / name for name in NAMES]
    return corpus.add(*files, likeness=True, ray=address, progress=progress)


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_makes_the_same_table_though_workers_and_a_node_die(
    cluster: Any, corpus_dir: Path, samples: Path, local_rows: dict[str, Any]
) -> None:
    corpus = Corpus(corpus_dir, create=True)
    killed: list[int] = []

    def kill() -> None:
        for kind in ("EncodingWorker", "ReadingWorker"):
            mine = [p for p in workers(kind) if p.ppid() in raylets(cluster)]
            os.kill(mine[0].pid, signal.SIGKILL)
            killed.append(mine[0].pid)

    summary = indexed(corpus, samples, cluster.address, kill)
    assert (summary.added, summary.failed, len(killed)) == (4, [], 2)
    assert rows(corpus) == local_rows

    again = indexed(corpus, samples, cluster.address)
    assert (again.added, again.updated, again.unchanged) == (0, 0, 4)

    other = Corpus(corpus_dir.with_name("other.corpus"), create=True)
    summary = indexed(other, samples, cluster.address, lambda: cluster.remove_node(cluster.nodes[0], False))
    assert (summary.added, summary.failed) == (4, [])
    assert rows(other) == local_rows


def raylets(cluster: Any) -> set[int]:
    return {
        node.all_processes["raylet"][0].process.pid
        for node in cluster.nodes
        if "raylet" in node.all_processes
    }


DRIVER = """
import sys
from pathlib import Path
from whenabouts import Corpus
from whenabouts.index import build
build._WRITE_VIDEOS = 1
files = [Path(sys.argv[2]) / name for name in sys.argv[4:]]
Corpus(sys.argv[1], create=True).add(*files, likeness=True, ray=sys.argv[3], processes=1)
"""


GOING_AWAY = """
import sys
from pathlib import Path
from whenabouts import Corpus
from whenabouts_cluster.ray_executor import ClusterError
try:
    files = [Path(sys.argv[2]) / name for name in sys.argv[4:]]
    Corpus(sys.argv[1], create=True).add(*files, likeness=True, ray=sys.argv[3])
except ClusterError as error:
    print(error, file=sys.stderr)
    sys.exit(3)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_goes_away_is_told_and_what_is_finished_is_kept(
    corpus_dir: Path, samples: Path
) -> None:
    with cluster_head() as head, nodes(head, None) as made:
        address = head.address
        command = [sys.executable, "-c", GOING_AWAY, str(corpus_dir), str(samples), address, *NAMES]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as driver:
            while driver.poll() is None and not workers("EncodingWorker"):
                time.sleep(0.1)
            for node in (head.head_node, *made):
                node.kill_raylet()
            _, told = driver.communicate()
        assert driver.returncode == 3, told
    assert f"the cluster {address}, or its node on this machine, was lost" in told
    assert "run the same command to continue" in told
    with Corpus(corpus_dir).store.writing():
        pass


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
@pytest.mark.filterwarnings("ignore")
def test_a_driver_that_is_killed_loses_nothing_and_the_next_run_finishes(
    cluster: Any, corpus_dir: Path, samples: Path, local_rows: dict[str, Any]
) -> None:
    command = [sys.executable, "-c", DRIVER, str(corpus_dir), str(samples), cluster.address, *NAMES]
    driver = subprocess.Popen(command)
    deadline = time.monotonic() + 240
    try:
        while time.monotonic() < deadline and driver.poll() is None:
            if (corpus_dir / "videos.lance").exists() and Corpus(corpus_dir).store.videos():
                break
            time.sleep(0.2)
        # While a run is at work, other runs are refused.
        if driver.poll() is None:
            with pytest.raises(WhenaboutsError, match="is being written by"):
                indexed(Corpus(corpus_dir), samples, cluster.address)
    finally:
        driver.kill()
        assert driver.wait() == -signal.SIGKILL
    corpus = Corpus(corpus_dir)
    assert 0 < len(corpus.store.videos()) < 4
    summary = indexed(corpus, samples, cluster.address)
    assert summary.failed == []
    assert rows(corpus) == local_rows


# Shortens the pieces of sound, slows their recognition, and logs their starts.
HEARD = """
import functools, time
sound_pieces = functools.partial(sound_pieces, piece_seconds=2.0)
_take = _Listener.take

def take(self, piece, progress):
    with open({log!r}, "a") as log:
        log.write(f"{{piece.start:.0f}}\\n")
    time.sleep(1.0)
    _take(self, piece, progress)

_Listener.take = take
"""


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(why_unavailable(PACKAGED) is not None, reason="no speech model is installed")
def test_speech_is_recognised_by_the_workers_and_goes_on_where_one_died(
    head: Any, corpus_dir: Path, samples: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "talks"
    folder.mkdir()
    for name in ("nasa_audio_only.mp3", "flower.webm", "bottle-detection.mp4"):
        shutil.copy(samples / name, folder)
    here = Corpus(corpus_dir.with_name("here.corpus"), create=True)
    local = here.add(folder, transcribe=True, processes=1)
    corpus = Corpus(corpus_dir, create=True)
    with nodes(head, None):
        unheard = corpus.add(folder, ray=head.address)
        assert sorted(path.name for path in unheard.not_recognised) == ["flower.webm", "nasa_audio_only.mp3"]
        heard = corpus.add(folder, transcribe=True, ray=head.address)
    assert (heard.failed, sorted(heard.notes)) == ([], sorted(local.notes))
    assert spoken(corpus) == spoken(here)
    assert "clean rooms" in spoken(here)["nasa_audio_only.mp3"][1][0]

    log, killed = tmp_path / "log", list[int]()

    def kill(now: Progress) -> None:
        if not killed and now.name.startswith("speech") and len(log.read_text().split()) > 2:
            killed.append(workers("EncodingWorker")[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    other = Corpus(corpus_dir.with_name("other.corpus"), create=True)
    slow = overlay(tmp_path / "slow", {"whenabouts/video/speech.py": HEARD.format(log=str(log))})
    with nodes(head, slow):
        summary = other.add(folder / "nasa_audio_only.mp3", transcribe=True, ray=head.address, progress=kill)
    assert (summary.added, summary.failed, len(killed)) == (1, [], 1)
    starts = log.read_text().split()
    # Pieces that were stored before the worker died are not recognised again.
    assert starts.count("0") == 1
    assert 6 < len(set(starts)) < len(starts)
    assert "clean" in " ".join(spoken(other)["nasa_audio_only.mp3"][1])


def spoken(corpus: Corpus) -> dict[str, tuple[str, list[str]]]:
    """The source of each video's words, and the words, without letter case and punctuation.

    The recogniser sums in an order that depends on the number of threads, and a worker has one by default. On
    some processors this changes a capital letter or a full stop.
    """
    corpus.refresh()
    clips = corpus.store.clips_of
    return {
        Path(row.path).name: (
            row.words,
            [" ".join(words_of(text)) for text in clips("subtitle", [row.video_id]).text],
        )
        for row in corpus.store.videos()
    }
