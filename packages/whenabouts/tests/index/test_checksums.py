"""A corpus at rest whose bytes have changed is said to be damaged, never one that is being written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.index.test_store_places import corpus_at

from whenabouts.diagnosis import examine
from whenabouts.index import checksums
from whenabouts.index.checksums import CHECKSUMS_FILE
from whenabouts.index.records import StoreError
from whenabouts.index.store import Store


def data_file(place: Path) -> Path:
    return max((place / "clips_subtitle.lance" / "data").iterdir())


def test_a_changed_byte_is_said_at_opening(tmp_path: Path) -> None:
    corpus_at(tmp_path)
    path = data_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"is damaged: its file clips_subtitle.*does not hold what"):
        Store.open(tmp_path)


def test_a_file_that_is_gone_or_cut_off_is_said_whatever_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus_at(tmp_path)
    monkeypatch.setattr(checksums, "READ_AT_OPENING", 0)
    newest = min((tmp_path / "videos.lance" / "_versions").iterdir())
    held = newest.read_bytes()
    newest.unlink()
    with pytest.raises(StoreError, match=r"its file videos\.lance/_versions/.* is gone"):
        Store.open(tmp_path)
    newest.write_bytes(held[:-1])
    with pytest.raises(StoreError, match=r"has .* bytes and not"):
        Store.open(tmp_path)
    newest.write_bytes(held[:-1] + b"x")
    Store.open(tmp_path)  # of a large corpus only sizes are looked at when it is opened
    with pytest.raises(StoreError, match="does not hold what was written"):
        Store.open(tmp_path).check_files()
    (finding,) = [found for found in examine(str(tmp_path)).findings if found.name.startswith("corpus")]
    assert not finding.well and "is damaged" in finding.seen


def test_files_that_are_not_of_tables_may_go(tmp_path: Path) -> None:
    store = corpus_at(tmp_path)
    strange = [tmp_path / "jobs/queue.lock", tmp_path / "videos.lance/.DS_Store", tmp_path / "@eaDir/thumb"]
    for path in strange:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    with store.writing():
        store.remove_videos(["v1"])
    # Earlier versions listed them.
    listed = json.loads((tmp_path / CHECKSUMS_FILE).read_bytes())
    assert not [name for name in listed if not name.split("/")[0].endswith(".lance") or "DS_Store" in name]
    entry = {str(path.relative_to(tmp_path)): [0, 0, 0] for path in strange}
    (tmp_path / CHECKSUMS_FILE).write_text(json.dumps(listed | entry))
    for path in strange:
        path.unlink()
    Store.open(tmp_path).check_files()


def test_no_list_stands_while_a_corpus_is_written_and_a_new_one_after(tmp_path: Path) -> None:
    store = corpus_at(tmp_path)
    assert (tmp_path / CHECKSUMS_FILE).exists()
    with store.writing():
        assert not (tmp_path / CHECKSUMS_FILE).exists()
        store.remove_videos(["v1"])
        assert len(Store.open(tmp_path).videos()) == 2
    store.optimize(force=True)
    assert len(Store.open(tmp_path).videos()) == 2
    listed = checksums.begin(tmp_path)
    assert set(listed) == {name for name, _ in checksums.table_files(tmp_path)}


def test_a_write_that_cannot_begin_gives_the_lock_back(tmp_path: Path) -> None:
    store = corpus_at(tmp_path)
    (tmp_path / CHECKSUMS_FILE).unlink()
    (tmp_path / CHECKSUMS_FILE).mkdir()
    with pytest.raises(StoreError, match="cannot write"), store.writing():
        pass
    (tmp_path / CHECKSUMS_FILE).rmdir()
    assert Store.open(tmp_path).remove_videos(["v1"]) == 1


def test_a_link_in_the_place_of_a_draft_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    store = corpus_at(tmp_path / "stranger")
    for name in (CHECKSUMS_FILE, f"{CHECKSUMS_FILE}.{os.getpid()}"):
        (tmp_path / "stranger" / name).unlink(missing_ok=True)
        (tmp_path / "stranger" / name).symlink_to(tmp_path / "mine")
    store.remove_videos(["v1"])
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": 1}', '{"a": [1, "x"]}', "null"])
def test_a_list_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    corpus_at(tmp_path)
    (tmp_path / CHECKSUMS_FILE).write_text(text)
    assert len(Store.open(tmp_path).videos()) == 3


def test_what_an_older_version_wrote_since_is_no_damage(tmp_path: Path) -> None:
    store = corpus_at(tmp_path)
    listed = (tmp_path / CHECKSUMS_FILE).read_bytes()
    store.remove_videos(["v1"])
    store.optimize(force=True)
    (tmp_path / CHECKSUMS_FILE).write_bytes(listed)  # an older version leaves the list as it was
    assert len(Store.open(tmp_path).videos()) == 2
