"""A corpus is a folder: copied while it is written, looked at with `doctor`, and finished by `index`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.index.test_store_faults import WORDS, WRITER, whole

from whenabouts.diagnosis import examine
from whenabouts.index.records import VideoRecord
from whenabouts.index.store import Store, without_file

pytestmark = pytest.mark.slow


def copied(place: Path, to: Path) -> Path:
    """A copy as `cp -r` makes one: what goes away meanwhile is missing."""
    try:
        shutil.copytree(place, to)
    except shutil.Error:
        assert to.is_dir()
    return to


def problems(place: Path) -> list[str]:
    return [
        finding.seen
        for finding in examine(str(place)).findings
        if "corpus" in finding.name and not finding.well
    ]


def test_a_copy_made_while_a_writer_writes_is_whole_or_said_to_be_damaged(tmp_path: Path) -> None:
    place = tmp_path / "c"
    store = Store.open(place, create=True)
    store.add_stream(WORDS)
    sound = 0
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(place), "0", "400"], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        for number in range(6):
            writer.stdout.readline()
            copy = copied(place, tmp_path / f"copy{number}")
            if problems(copy):
                continue
            sound += 1
            restored = Store.open(copy)
            before = whole(restored)
            # The writer goes on in the copy as if it had been killed.
            command = [sys.executable, "-c", WRITER, str(copy), str(len(before)), "3"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            restored.refresh()
            assert set(before) <= set(whole(restored))
            assert not restored.doubled()
        writer.kill()
    assert sound
    at_rest = copied(place, tmp_path / "rest")
    assert not problems(at_rest)


def test_doctor_says_what_a_copy_lacks(tmp_path: Path) -> None:
    place = tmp_path / "c"
    store = Store.open(place, create=True)
    store.add_stream(WORDS)
    subprocess.run(
        [sys.executable, "-c", WRITER, str(place), "0", "5"], check=True, stdout=subprocess.DEVNULL
    )
    store.put_records([without_file(VideoRecord("v9", "v9.mp4"))])
    unfinished = [finding for finding in examine(str(place)).findings if finding.name == "unfinished"]
    assert [finding.seen[:10] for finding in unfinished] == ["1 video is"]
    (place / "checksums.json").unlink()
    for file in (place / "clips_subtitle.lance" / "data").iterdir():  # some are of earlier versions only
        file.unlink()
    assert problems(place)


def test_a_copy_without_the_folder_of_an_index_is_damaged(tmp_path: Path) -> None:
    """The folder is made while a copy is taken, after the copier listed the table's folder."""
    place = tmp_path / "c"
    Store.open(place, create=True).add_stream(WORDS)
    command = [sys.executable, "-c", WRITER, str(place), "0", "20"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (place / "checksums.json").unlink()
    assert not problems(place)
    shutil.rmtree(place / "clips_subtitle.lance" / "_indices")
    assert "lacks files of its index" in problems(place)[0]


def test_a_corpus_of_format_1_made_by_an_earlier_program_is_read_and_written(tmp_path: Path) -> None:
    """There is one format until now: nothing is migrated, and a later one is refused by its number."""
    made = Path(__file__).parents[1] / "made_by_cuepoint" / "talks_corpus"
    place = tmp_path / "old"
    shutil.copytree(made, place)
    store = Store.open(place)
    names = [row.video_id for row in store.videos()]
    assert names
    store.put_records([VideoRecord("new", "new.mp4")])
    store.optimize(force=True)
    assert {"new", *names} == {row.video_id for row in Store.open(place).videos()}
    assert not problems(place)
