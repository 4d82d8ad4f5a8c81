"""A disk that runs full while a corpus is written."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from whenabouts.index.store import Store
from whenabouts.video import language


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_the_machine_lacks_is_no_fault_of_a_file(
    tmp_path: Path, here: Any, write_talks: Any, unmeasured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    videos, more, place = tmp_path / "videos", tmp_path / "more", tmp_path / "corpus"
    write_talks(videos, 2)
    (videos / "broken.vtt").write_text("no line with a time in it")
    language._loaded.cache_clear()  # else a model that an earlier test loaded needs no temporary folder
    with monkeypatch.context() as lacking:
        lacking.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        ill = here("index", videos, "--processes", "1", "--corpus", place, "--json")
    failed = {Path(one["path"]).name: one["again"] for one in ill.json["failed"]}
    assert failed == {"talk000.vtt": True, "talk001.vtt": True, "broken.vtt": False}
    assert ill.code == 2, "nothing can be searched"
    write_talks(more, 1)
    for number, said in ((errno.EIO, "1 not read, through no fault of the file"), (errno.EMFILE, "too few")):

        def fault(text: str, number: int = number) -> tuple[str, float]:
            raise OSError(number, os.strerror(number))

        language._loaded.cache_clear()
        with monkeypatch.context() as lacking:
            lacking.setattr(language, "_recognised", fault)
            half = here("index", more, "--processes", "1", "--corpus", place, "--table")
        assert half.code == 2
        assert said in half.out + half.err
    well = here("index", videos, more, "--processes", "1", "--corpus", place, "--json")
    assert (well.code, well.json["added"] + well.json["updated"], well.json["failed"]) == (0, 3, [])
    assert well.json["failed_before"] == 1
    assert here("search", "what is said", "--corpus", place).code == 0
