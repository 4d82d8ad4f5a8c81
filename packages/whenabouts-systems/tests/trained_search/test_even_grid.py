"""Clips of a corpus on an even grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from whenabouts.clips import ClipGrid
from whenabouts.index.records import ClipBlock, ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.types import UsageError
from whenabouts_systems.trained_search.even_grid import check_stream, rows_on, videos_on_grid


def block(start: list[float], end: list[float], vectors: NDArray[np.float32]) -> ClipBlock:
    count = len(start)
    return ClipBlock(
        ["v"],
        np.array([0, count]),
        np.arange(count, dtype=np.int32),
        np.array(start, np.float64),
        np.array(end, np.float64),
        [""] * count,
        vectors,
    )


def test_clips_on_the_grid_come_out_as_they_are() -> None:
    seconds, count = 0.3, 1000
    vectors = np.random.default_rng(0).standard_normal((count, 6)).astype(np.float32)
    starts = [i * seconds for i in range(count)]
    found = rows_on(
        ClipGrid(seconds, count * seconds), block(starts, [s + seconds for s in starts], vectors), 0
    )
    np.testing.assert_array_equal(found, vectors)


def test_a_clip_is_the_mean_of_what_shares_time_with_it_and_zero_where_nothing_does() -> None:
    passages = block([1.0, 3.5], [4.0, 6.0], np.eye(2, dtype=np.float32))
    found = rows_on(ClipGrid(2.0, 9.0), passages, 0)
    expected = np.array(
        [[1, 0], [0.8, 0.2], [0, 1], [0, 0], [0, 0]]
    )  # 2 s of the first and 0.5 s of the second
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_what_lies_behind_the_videos_end_counts_for_its_last_clip_at_most() -> None:
    found = rows_on(
        ClipGrid(2.0, 3.0), block([0.0, 3.9, 8.0], [1.0, 4.5, 9.0], np.eye(3, dtype=np.float32)), 0
    )
    np.testing.assert_allclose(found, [[1, 0, 0], [0, 1, 0]])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rows_equal_a_plain_loop(data: st.DataObject) -> None:
    times = st.floats(0, 40, allow_nan=False)
    spans = data.draw(st.lists(st.tuples(times, st.floats(0.01, 30)), max_size=12))
    seconds = data.draw(st.floats(0.2, 7))
    duration = data.draw(st.floats(0.5, 60))
    start = [s for s, _ in spans]
    end = [s + length for s, length in spans]
    vectors = np.random.default_rng(1).standard_normal((len(spans), 3)).astype(np.float32)
    grid = ClipGrid(seconds, duration)
    found = rows_on(grid, block(start, end, vectors), 0)
    assert found.shape == (len(grid), 3)
    for i in range(len(grid)):
        low, high = i * seconds, (i + 1) * seconds
        shared = np.array([min(b, high) - max(a, low) for a, b in zip(start, end, strict=True)])
        if ((shared > 0) & (shared < 2e-5)).any():
            continue  # on the border of what counts as shared time
        shared = np.maximum(shared, 0)
        expected = shared @ vectors / shared.sum() if shared.sum() else np.zeros(3)
        np.testing.assert_allclose(found[i], expected, atol=1e-4)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    corpus = Store.open(tmp_path / "my.corpus", create=True)
    corpus.add_stream(StreamInfo("subtitle", "mini", "mini@1", 2))
    corpus.add_stream(StreamInfo("vision", "clip", "clip@1", 2, {"clip_seconds": 1.0}))
    corpus.add_stream(StreamInfo("letters", "letters", "letters", 0))
    return corpus


def test_a_stream_that_cannot_be_put_on_the_grid_is_refused_with_the_remedy(store: Store) -> None:
    with pytest.raises(UsageError, match=r"has no stream 'audio'; it has .*subtitle"):
        check_stream(store, "audio", 1.0)
    with pytest.raises(UsageError, match="has no vectors"):
        check_stream(store, "letters", 1.0)
    with pytest.raises(UsageError, match=r"clips of 1 s, not of 1.5 s; .*--clip-seconds 1.5"):
        check_stream(store, "vision", 1.5)
    assert check_stream(store, "subtitle", 1.5).encoder == "mini"


def test_streams_of_a_video_share_one_grid(store: Store) -> None:
    one = np.ones((1, 2), np.float32)
    said = ClipColumns(np.array([1.0]), np.array([2.5]), ["hello"], one)
    seen = ClipColumns(np.arange(4.0), np.arange(4.0) + 1, None, np.repeat(one, 4, 0))
    both = {"subtitle": "mini@1", "vision": "clip@1"}
    store.put_videos(
        [
            (VideoRecord("known", "/a", duration=3.5, streams=both), {"subtitle": said, "vision": seen}),
            (VideoRecord("unknown", "/b", streams=both), {"subtitle": said}),
            (VideoRecord("nothing", "/c", streams=both), {}),
        ]
    )
    found = list(videos_on_grid(store, ["subtitle", "vision"], 1.0, store.videos()))
    assert [(video.record.video_id, video.duration) for video in found] == [("known", 3.5), ("unknown", 2.5)]
    assert {name: len(rows) for name, rows in found[0].streams.items()} == {"subtitle": 4, "vision": 4}
    np.testing.assert_allclose(found[1].streams["vision"], np.zeros((3, 2)))
    np.testing.assert_allclose(found[1].streams["subtitle"], [[0, 0], [1, 1], [1, 1]])
