"""A stream in memory answers as the files do, and no longer than they stay as they are."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.index import memory
from whenabouts.index.records import ClipBlock, ClipColumns, ClipHits, StoreError, StreamInfo, VideoRecord
from whenabouts.index.store import Store

WIDTH = 8
NAMES = ("b", "a", "ç", "d")
NARROWINGS: tuple[Mapping[str, Any], ...] = (
    {},
    {"video_ids": ["d", "b", "gone"]},
    {"video_ids": []},
    {"video_ids": ["a", "d"]},
)


def _clips(seed: int, count: int = 9) -> ClipColumns:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, WIDTH)).astype(np.float32)
    vectors[3] = vectors[2]  # a tie
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    start = np.arange(count, dtype=np.float64)
    return ClipColumns(start, start + 1, [f"line {number}" for number in range(count)], vectors)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of a few videos; to be copied."""
    store = Store.open(tmp_path_factory.mktemp("memory") / "c", create=True)
    store.add_stream(StreamInfo("seen", "encoder", "encoder:1", WIDTH, {}))
    for seed, name in enumerate(NAMES):
        store.put_video(_record(name), {"seen": _clips(seed)})
    return Path(store.place)


@pytest.fixture
def store(written: Path, tmp_path: Path) -> Store:
    return Store.open(shutil.copytree(written, tmp_path / "c"))


def _record(name: str) -> VideoRecord:
    return VideoRecord(name, f"/{name}.mp4", streams={"seen": "encoder:1"})


def _query(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=WIDTH).astype(np.float32)


def _assert_same_hits(first: ClipHits, second: ClipHits) -> None:
    assert first.video_ids == second.video_ids
    np.testing.assert_array_equal(first.index, second.index)
    np.testing.assert_array_equal(first.start, second.start)
    np.testing.assert_array_equal(first.end, second.end)
    np.testing.assert_allclose(first.score, second.score, atol=1e-3)  # files: half precision throughout


def _assert_same_block(first: ClipBlock, second: ClipBlock) -> None:
    assert (first.video_ids, first.text) == (second.video_ids, second.text)
    for name in ("offsets", "index", "start", "end", "vectors"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
        assert getattr(first, name).dtype == getattr(second, name).dtype


@pytest.mark.parametrize("narrowing", NARROWINGS)
@pytest.mark.parametrize("k", [1, 5, 1000])
def test_memory_finds_what_the_files_hold(store: Store, narrowing: Mapping[str, Any], k: int) -> None:
    for seed in range(3):
        from_files = Store.open(store.place).nearest("seen", _query(seed), k, **narrowing)
        answers = [store.nearest("seen", _query(seed), k, **narrowing) for _ in range(3)]
        for answer in answers:
            _assert_same_hits(from_files, answer)


@pytest.mark.parametrize("ids", [["d", "a"], ["gone", "ç"], [], list(NAMES)])
def test_memory_gives_the_clips_of_videos_as_the_files_do(store: Store, ids: list[str]) -> None:
    from_files = store.clips_of("seen", ids)
    _search_twice(store)
    assert _is_kept(store)
    _assert_same_block(from_files, store.clips_of("seen", ids))


def _search_twice(store: Store) -> None:
    for _ in range(2):
        store.nearest("seen", _query(0), 3)


def _is_kept(store: Store) -> bool:
    return store._memory.stream("seen", store.state_of("seen")) is not None


def test_a_single_search_and_writing_read_nothing_whole(store: Store) -> None:
    assert not _is_kept(store)
    store.nearest("seen", _query(0), 3)
    assert not _is_kept(store)


def test_what_is_written_is_seen_at_once_and_what_is_taken_out_is_gone(store: Store) -> None:
    _search_twice(store)
    other = Store.open(store.place)
    fresh = _clips(77)
    assert fresh.vectors is not None
    store.put_video(_record("e"), {"seen": fresh})
    for _ in range(3):
        assert store.nearest("seen", fresh.vectors[0], 1).video_ids == ["e"]
    other.remove_videos(["e"])
    store.refresh()
    for _ in range(3):
        assert "e" not in store.nearest("seen", fresh.vectors[0], 1000).video_ids
    assert len(store.clips_of("seen", ["e"])) == 0


def test_a_stream_that_is_made_anew_is_read_anew(store: Store) -> None:
    _search_twice(store)
    store.erase({}, dropped=["seen"])
    store.add_stream(StreamInfo("seen", "encoder", "encoder:2", WIDTH, {}))
    for _ in range(3):
        assert len(store.nearest("seen", _query(0), 10)) == 0


def test_handles_of_one_corpus_share_their_memory(store: Store) -> None:
    _search_twice(store)
    assert _is_kept(store.beside())


def test_a_stream_that_takes_too_much_stays_on_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_BYTES", 100)
    store.keep_at_most(1000)
    before = Store.open(store.place).nearest("seen", _query(0), 3)
    _search_twice(store)
    assert not _is_kept(store)
    _assert_same_hits(before, store.nearest("seen", _query(0), 3))


def test_every_half_is_the_same_in_full_precision() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    np.testing.assert_array_equal(memory.in_full(finite), finite.astype(np.float32))


@pytest.mark.slow
def test_large_streams_take_no_more_together_than_they_may(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MOST_BYTES", 100)
    store.add_stream(StreamInfo("heard", "encoder", "encoder:1", WIDTH, {}))
    store.put_videos(
        (_record(name), {"seen": _clips(seed), "heard": _clips(9 + seed)}) for seed, name in enumerate(NAMES)
    )
    size = memory.StreamSize(9 * len(NAMES), WIDTH)
    assert not size.is_small
    store.keep_at_most(int(1.5 * size.bytes))
    for _ in range(3):
        for stream in ("seen", "heard"):
            store.nearest(stream, _query(0), 3)
    kept = [store._memory.stream(stream, store.state_of(stream)) for stream in ("seen", "heard")]
    assert kept[0] is not None
    assert kept[1] is None
    _assert_same_hits(
        Store.open(store.place).nearest("seen", _query(1), 9), store.nearest("seen", _query(1), 9)
    )


@pytest.mark.slow
def test_vectors_of_a_small_stream_are_kept_in_full_and_give_the_same_hits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = store._clips("seen")
    size = memory.StreamSize(table.count_rows(), WIDTH)
    in_full = memory.WholeStream.read(table, size)
    monkeypatch.setattr(memory, "MOST_BYTES", 0)
    in_half = memory.WholeStream.read(table, size)
    assert [whole.vectors.dtype.itemsize for whole in (in_full, in_half)] == [4, 2]
    np.testing.assert_array_equal(in_full.cosines(NAMES, _query(1)), in_half.cosines(NAMES, _query(1)))


def test_a_large_stream_is_kept_in_half_and_counted_so() -> None:
    small, large = memory.StreamSize(1_000, 384), memory.StreamSize(50_000, 384)
    assert (small.is_in_full, large.is_in_full) == (True, False)
    assert small.bytes / small.rows - large.bytes / large.rows == 2 * 384


@pytest.mark.parametrize("row", [1 << 20, (1 << 63) + 7, (1 << 64) - 1])
def test_a_row_that_an_index_makes_up_is_no_other_clip(store: Store, row: int) -> None:
    for _ in range(3):
        store.nearest("seen", _query(1), 3)
    whole = store._searched("seen")
    assert whole is not None
    score = np.ones(1, np.float32)
    with pytest.raises(StoreError, match="names clips that are not there"):
        whole.hits_at(np.array([row], np.uint64), score, 3)
    assert len(whole.hits_at(whole.runs[0][:1], score, 3)) == 1


def test_a_stream_without_room_takes_none_from_others() -> None:
    kept = memory.ClipMemory()
    kept.most_bytes = 1 << 30
    whole = memory.WholeStream.__new__(memory.WholeStream)

    def last(name: str, size: memory.StreamSize) -> memory.WholeStream | None:
        return [kept.searched(name, 1, lambda: size, lambda _: whole) for _ in range(size.searches + 1)][-1]

    assert last("vision", memory.StreamSize(2_000_000, 512)) is None
    assert last("subtitle", memory.StreamSize(60_000, 384)) is whole
    assert last("sound", memory.StreamSize(780_000, 512)) is None, "there is room for it alone"
