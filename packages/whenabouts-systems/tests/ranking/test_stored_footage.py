"""Videos of an index in segments: read once and remembered, encoded as if each segment were a video."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.small_systems import WIDTH, inputs, small_system

from whenabouts.index.keys import KeptVideo, mark_of
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.types import UsageError
from whenabouts_systems.trained_search import search_keys, stored_footage
from whenabouts_systems.trained_search.even_grid import GridVideo
from whenabouts_systems.trained_search.search_keys import check_count, encoded_segments
from whenabouts_systems.trained_search.stored_footage import StoredFootage, StoredRows, in_parts

LENGTHS = (19.0, 4.0, 31.0, 2.0)


def grids(lengths: Sequence[float] = LENGTHS, seed: int = 0) -> list[GridVideo]:
    """Videos in clips of 2 seconds; the third says nothing from second 8 to 16, the last nothing at all."""
    rng = np.random.default_rng(seed)
    made = []
    for number, seconds in enumerate(lengths):
        rows = rng.standard_normal((int(np.ceil(seconds / 2)), WIDTH)).astype(np.float32)
        if number == 2:
            rows[4:8] = 0
        if number == 3:
            rows[:] = 0
        record = VideoRecord(f"v{number}", f"/{number}", duration=seconds, streams={"subtitle": "x"})
        made.append(GridVideo(record, seconds, {"subtitle": rows}))
    return made


@pytest.mark.parametrize("together", [6400, 4])
@pytest.mark.parametrize("system", ["xml", "prem_retriever"])
def test_the_keys_of_a_segment_are_those_that_the_system_makes_of_it_alone(
    monkeypatch: pytest.MonkeyPatch, system: str, together: int
) -> None:
    monkeypatch.setattr(search_keys, "_CLIPS_AT_ONCE", together)
    trained, videos = small_system(system), grids()
    for made, video in zip(encoded_segments(trained, videos, 3), videos, strict=True):
        assert (made.video_id, made.mark) == (video.record.video_id, mark_of(video.record))
        assert made.index is not None
        rows, expected, number = video.streams["subtitle"], [], []
        for at, low in enumerate(range(0, len(rows), 3)):
            clips = trained.inputs.clips([{"subtitle": rows[low : low + 3]}])
            with torch.no_grad():
                alone = trained.model.encode_videos(clips)
            assert clips.silent is not None
            if not clips.silent[0]:
                keys = alone.keys["subtitle"][0][alone.key_masks["subtitle"][0].bool()].numpy()
                expected.append(keys)
                number += [at] * len(keys)
        assert made.index["subtitle"].tolist() == number
        starts = 6.0 * np.array(number)
        assert made.start["subtitle"].tolist() == starts.tolist()
        assert made.end["subtitle"].tolist() == np.minimum(starts + 6, video.duration).tolist()
        if number:
            np.testing.assert_allclose(made.keys["subtitle"], np.concatenate(expected), atol=1e-5)
        assert made.rows == (len(rows) if number else 0)
    assert made.rows == 0  # the last says nothing


def test_items_come_in_parts_whose_sizes_add_up_to_no_more_than_allowed() -> None:
    assert list(in_parts("abcdef", [1, 1, 1, 1, 1, 1], 99, 4)) == [["a", "b", "c", "d"], ["e", "f"]]
    assert list(in_parts("abc", [5, 50, 5], 10, 4)) == [["a"], ["b"], ["c"]]
    assert list(in_parts("", [], 10, 4)) == []


# --- rows of a corpus


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three videos with a passage every four seconds, on the grid of their clips."""
    corpus = Store.open(tmp_path / "my.corpus", create=True)
    corpus.add_stream(StreamInfo("subtitle", "letters-16", "x", WIDTH))
    for number, video in enumerate(grids(seed=5)[:3]):
        put(corpus, video, float(number))
    return corpus


def put(store: Store, video: GridVideo, indexed_at: float) -> VideoRecord:
    """Write a video, its rows as clips of 2 seconds."""
    rows = video.streams["subtitle"]
    start = 2 * np.arange(len(rows), dtype=np.float64)
    record = replace(video.record, indexed_at=indexed_at)
    columns = ClipColumns(start, np.minimum(start + 2, video.duration), ["said"] * len(rows), rows)
    store.put_video(record, {"subtitle": columns})
    return record


def kept_of(store: Store) -> list[KeptVideo]:
    return [KeptVideo(one.video_id, mark_of(one), 1, one.duration or 0.0, b"") for one in store.videos()]


def counted_reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The ids of the videos whose clips each reading asked for."""
    asked: list[list[str]] = []
    read = store.clips_of

    def counting(stream: str, video_ids: Sequence[str], **more: Any) -> Any:
        asked.append(list(video_ids))
        return read(stream, video_ids, **more)

    monkeypatch.setattr(store, "clips_of", counting)
    return asked


def test_rows_are_those_of_the_grid_in_half_precision_and_read_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = counted_reads(store, monkeypatch)
    footage = StoredFootage(StoredRows(store, inputs()), kept_of(store))
    assert footage.row_counts.tolist() == [10, 2, 16]
    assert footage.durations.tolist() == [19.0, 4.0, 31.0]
    footage.read_ahead(np.array([2, 0, 2]))
    assert asked == [["v0", "v2"]]
    for row, video in enumerate(grids(seed=5)[:3]):
        expected = video.streams["subtitle"].astype(np.float16)
        found = footage.rows_of_video(row)["subtitle"]
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found, expected)
        assert footage.rows_of_video(row)["subtitle"] is found
    assert asked == [["v0", "v2"], ["v1"]]


def test_no_more_is_read_ahead_than_is_remembered(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counted_reads(store, monkeypatch)
    rows = StoredRows(store, inputs(), cache_bytes=13 * 2 * WIDTH)
    footage = StoredFootage(rows, kept_of(store))
    footage.read_ahead(np.arange(3))
    assert asked == [["v0", "v1"]]
    footage.rows_of_video(2)
    footage.rows_of_video(2)  # it alone is more than what is remembered
    assert asked[1:] == [["v2"], ["v2"]]


def test_many_hours_are_read_some_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counted_reads(store, monkeypatch)
    monkeypatch.setattr(stored_footage, "ROWS_AT_A_TIME", 12)
    StoredFootage(StoredRows(store, inputs()), kept_of(store)).read_ahead(np.arange(3))
    assert asked == [["v0", "v1"], ["v2"]]


def test_a_video_that_was_written_anew_or_taken_out_since_has_no_rows_of_before(store: Store) -> None:
    kept, rows = kept_of(store), StoredRows(store, inputs())
    other = grids(seed=6)[0]
    record = put(store, other, 9.0)
    store.remove_videos(["v1"])
    footage = StoredFootage(rows, kept)
    for row, count in ((0, 10), (1, 2)):
        found = footage.rows_of_video(row)["subtitle"]
        assert found.shape == (count, WIDTH)
        assert not found.any()
    fresh = StoredFootage(rows, [KeptVideo("v0", mark_of(record), 10, 19.0, b"")])
    np.testing.assert_array_equal(
        fresh.rows_of_video(0)["subtitle"], other.streams["subtitle"].astype(np.float16)
    )


# --- lengths


def test_a_length_that_is_enough_is_told_where_segments_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_keys, "MOST_SEGMENTS", 1000)
    records = [VideoRecord(f"v{number}", "/", duration=3600.0) for number in range(2)]
    with pytest.raises(UsageError, match=r"would be 1,800 in the 2 hours of here, .* give 8 s or more"):
        check_count(records, 4.0, "here")
    check_count(records, 8.0, "here")
