"""The ledger in memory: one read a version, names by look-up, never an old version for a new one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts.corpus import Corpus
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord, records_of
from whenabouts.index.store import Store
from whenabouts.types import UsageError

WIDTH = 8


@pytest.fixture
def place(tmp_path: Path) -> Path:
    store = Store.open(tmp_path / "c", create=True)
    store.put_records([VideoRecord(f"v{number}", f"/all/{number}.mp4") for number in range(60)])
    return tmp_path / "c"


@pytest.fixture
def ledger_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were read of the ledger, read by read."""
    reads: list[int] = []

    def counted(table: Any) -> list[VideoRecord]:
        reads.append(len(table))
        return records_of(table)

    monkeypatch.setattr("whenabouts.index.reads.records_of", counted)
    return reads


def _settle(place: Path) -> None:
    """Make the last commit long ago, as it is for most searches."""
    for folder in place.glob("*.lance/_versions"):
        os.utime(folder, (1e9, 1e9))


def test_many_names_read_the_ledger_once(place: Path, ledger_reads: list[int]) -> None:
    corpus = Corpus(place)
    names = [f"{number}.mp4" for number in range(50)]
    assert [record.video_id for record in corpus.resolve_all(names)] == [f"v{n}" for n in range(50)]
    corpus.resolve("v59")
    corpus.beside().resolve("59")
    assert ledger_reads == [60]


def test_a_name_of_none_and_of_several(place: Path) -> None:
    corpus = Corpus(place)
    with pytest.raises(UsageError, match="no video 'x'"):
        corpus.resolve_all(["v1", "x"])
    corpus.store.put_records([VideoRecord("w", "/other/1.mp4")])
    with pytest.raises(UsageError, match=r"'1\.mp4' matches 2 videos .*: v1, w"):
        corpus.resolve("1.mp4")


@pytest.mark.parametrize("settled", [False, True])
def test_what_another_handle_writes_is_seen(place: Path, settled: bool) -> None:
    corpus, writer = Corpus(place), Store.open(place)
    reader = corpus.beside()
    for number in range(4):
        if settled:
            _settle(place)
        reader.refresh()
        assert reader.record("new") is None or number
        writer.put_records([VideoRecord("new", f"/new/n{number}.mp4")])
        reader.refresh()
        assert reader.resolve("new").path == f"/new/n{number}.mp4"
        assert reader.resolve(f"n{number}.mp4").video_id == "new"


def test_a_writer_sees_what_it_writes(place: Path) -> None:
    store = Store.open(place)
    assert "new" not in store.ledger().by_id
    with store.writing():
        store.put_records([VideoRecord("new", "/new.mp4")])
        assert "new" in store.ledger().by_id
        store.remove_videos(["new"])
        assert "new" not in store.ledger().by_id
    assert "new" not in store.ledger().by_id


def test_nothing_is_asked_where_nothing_was_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(place)
    store.ledger()
    looks: list[int] = []
    plain = store._move

    def counted(*, must: bool) -> bool:
        looks.append(1)
        return plain(must=must)

    monkeypatch.setattr(store, "_move", counted)
    store.refresh()
    store.refresh()
    assert len(looks) == 2  # written just now: the next write could have the same time
    _settle(place)
    for _ in range(5):
        store.refresh()
    assert len(looks) == 3


def test_compared_clips_are_those_of_the_files_and_of_memory(place: Path) -> None:
    rng = np.random.default_rng(0)
    store = Store.open(place)
    store.add_stream(StreamInfo("seen", "encoder", "encoder:1", WIDTH))
    for name in ("v1", "v2", "v3"):
        start = np.arange(5.0)
        vectors = rng.normal(size=(5, WIDTH)).astype(np.float16).astype(np.float32)
        clips = ClipColumns(start, start + 1, [f"{name} {n}" for n in range(5)], vectors)
        store.put_video(VideoRecord(name, f"/{name}.mp4", streams={"seen": "encoder:1"}), {"seen": clips})
    query = rng.normal(size=WIDTH).astype(np.float32)
    names = ["v3", "v1", "gone"]
    expected = store.clips_of("seen", names)
    for turn in range(3):  # from the files, then from memory
        block, cosine = store.compared("seen", names, query)
        assert block.text == expected.text
        assert block.offsets.tolist() == [0, 5, 10, 10]
        np.testing.assert_array_equal(cosine, np.einsum("ij,j->i", expected.vectors, query))
        store.nearest("seen", query, 3)
        assert (store._memory.stream("seen", store.state_of("seen")) is not None) == (turn > 0)
