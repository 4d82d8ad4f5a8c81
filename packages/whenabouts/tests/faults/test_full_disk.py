"""A disk that runs full while a corpus is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whenabouts.index.store import Store

pytestmark = pytest.mark.slow


def test_a_full_disk_is_said_and_the_run_goes_on_once_there_is_room(
    tmp_path: Path, small_disk: Path, here: Any, write_talks: Any, unmeasured: None
) -> None:
    videos, place = tmp_path / "videos", small_disk / "corpus"
    write_talks(videos, 70, 2)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 2_800_000)
    full = here("index", videos, "--processes", "1", "--corpus", place, "--json")
    assert full.code == 2, (full.out, full.err)
    assert "disk is full" in full.err
    assert "run the same command again" in full.err
    before = Store.open(place)
    finished = {record.video_id for record in before.videos() if record.content_hash}
    counts = before.clip_counts("subtitle") if "subtitle" in before.streams else {}
    assert finished <= counts.keys()
    ballast.unlink()
    done = here("index", videos, "--processes", "1", "--corpus", place, "--json")
    assert done.code == 0, done.err
    assert done.json["unchanged"] == len(finished)
    after = Store.open(place)
    assert sum(bool(record.content_hash) for record in after.videos()) == 70
    assert set(after.clip_counts("subtitle").values()) == {2}
