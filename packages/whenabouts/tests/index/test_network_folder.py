"""A corpus in a folder that two machines mount, each of which knows its own locks only: two mounts here."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from whenabouts import Corpus
from whenabouts.diagnosis import examine
from whenabouts.index import lock
from whenabouts.index.lock import CorpusBusy
from whenabouts.index.records import VideoRecord
from whenabouts.index.store import Store
from whenabouts.locking import is_shared

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
filer:/videos /net nfs4 rw 0 0
tmpfs /net/here tmpfs rw 0 0
me@host: /home/user/a\\040place fuse.sshfs rw 0 0
fuse-overlayfs /container fuse.fuse-overlayfs rw 0 0
/dev/sdb1 /media/disk fuseblk rw 0 0
"""

INDEX = """
import sys
from pathlib import Path
from whenabouts import Corpus
from whenabouts.calibration import measuring
from whenabouts.index import build, lock
measuring.is_due = lambda store, known: False
build._WRITE_VIDEOS, lock.LEASE_SECONDS = 2, 3.0
print(Corpus(sys.argv[1], create=True).add(sys.argv[2], processes=1).added)
"""


def test_folders_that_other_machines_may_mount_are_known_by_their_file_system(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS, encoding="utf-8")
    shared = ("/net/my.corpus", "/net", "/home/user/a place/c")
    for place in (*shared, "/home/user", "/net/here/c", "/network", "/media/disk/c", "/container/c"):
        assert is_shared(Path(place), mounts) == (place in shared), place
    assert not is_shared(tmp_path, tmp_path / "none")
    (tmp_path / "link").symlink_to("/net/films")
    assert is_shared(tmp_path / "link", mounts)


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """Two mounts of one folder; a lock that one knows the other does not."""
    if shutil.which("bindfs") is None:
        pytest.skip("needs bindfs (apt install bindfs)")
    monkeypatch.setattr(lock, "LEASE_SECONDS", 3.0)
    places = [tmp_path / name for name in ("one", "other")]
    (tmp_path / "disk").mkdir()
    for place in places:
        place.mkdir()
        command = ["bindfs", str(tmp_path / "disk"), str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not is_shared(place):
            pytest.skip(f"nothing can be mounted here: {done.stderr}")
    try:
        yield places[0], places[1]
    finally:
        for place in places:
            subprocess.run(["umount", "--lazy", str(place)], check=False)


@pytest.mark.slow
def test_of_two_machines_one_writes_and_a_dead_one_is_taken_over(machines: tuple[Path, Path]) -> None:
    first = Store.open(machines[0] / "c", create=True)
    other = Store.open(machines[1] / "c")
    with first.writing():
        with pytest.raises(CorpusBusy, match="process"):
            other.put_records([VideoRecord("b", "p")])
        first.put_records([VideoRecord("a", "p")])
    other.put_records([VideoRecord("b", "p")])
    assert [row.video_id for row in first.videos()] == ["a"]
    first.refresh()
    assert [row.video_id for row in first.videos()] == ["a", "b"]


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_two_machines_that_index_at_once_harm_nothing(machines: tuple[Path, Path], tmp_path: Path) -> None:
    talks = tmp_path / "talks"
    talks.mkdir()
    for number in range(60):
        text = f"WEBVTT\n\n00:00:01.000 --> 00:00:02.000\nTalk {number}.\n"
        (talks / f"talk{number}.vtt").write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", INDEX, str(machines[0] / "c"), str(talks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as one:
        while one.poll() is None and not (tmp_path / "disk" / "c" / "clips_subtitle.lance").exists():
            time.sleep(0.05)
        with pytest.raises(CorpusBusy, match="is being written by process"):
            Corpus(machines[1] / "c").add(talks, processes=1)
        one.kill()
    corpus = Corpus(machines[1] / "c")
    summary = corpus.add(talks, processes=1)
    assert (summary.failed, len(corpus.store.videos())) == ([], 60)
    counts = Store.open(tmp_path / "disk" / "c").clip_counts("subtitle")
    assert (len(counts), set(counts.values())) == (60, {1})
    assert all(finding.well for finding in examine(str(machines[0] / "c")).findings if finding.needed)
