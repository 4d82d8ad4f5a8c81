"""The corpus on disk: what is written is read, found, replaced and removed, whatever it is called."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from whenabouts.index import lookup, memory, upkeep
from whenabouts.index.records import (
    ClipColumns,
    EncoderMismatch,
    NewerCorpus,
    NotACorpus,
    StoreError,
    StreamInfo,
    VideoRecord,
)
from whenabouts.index.store import Store
from whenabouts.types import UsageError

WIDTH = 16
WORDS = StreamInfo("subtitle", "mini", "mini@1", WIDTH)


def unit(rng: np.random.Generator, count: int, width: int = WIDTH) -> NDArray[np.float32]:
    rows = rng.standard_normal((count, width)).astype(np.float32)
    lengths: NDArray[np.float32] = np.linalg.norm(rows, axis=1, keepdims=True).astype(np.float32)
    return rows / lengths


def clips(count: int, seed: int = 0, text: str = "line", width: int = WIDTH) -> ClipColumns:
    start = np.arange(count, dtype=np.float64) * 2.0
    lines = [f"{text} {index}" for index in range(count)]
    return ClipColumns(start, start + 2.0, lines, unit(np.random.default_rng(seed), count, width))


def record(video_id: str, **facts: Any) -> VideoRecord:
    facts = {"size": 10, "content_hash": "h", "streams": {"subtitle": "mini@1"}, **facts}
    return VideoRecord(video_id, f"/videos/{video_id.strip('/')}.mp4", **facts)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    corpus = Store.open(tmp_path / "my.corpus", create=True)
    corpus.add_stream(WORDS)
    return corpus


def test_a_ledger_row_comes_back_as_it_was_written(store: Store) -> None:
    row = VideoRecord(
        "v1",
        "/videos/caf\udce9 'n\n\".mp4",
        size=5,
        modified_ns=2**60,
        content_hash="ab",
        kind="transcript",
        duration=12.5,
        state="failed",
        error="no picture",
        streams={"subtitle": "mini@1"},
        words="sidecar:v1.srt",
        words_signature="s",
        title="Ein Ausflug",
        metadata={"year": 2024, "tags": ["a", "b"], "nested": {"é": None}},
        has_picture=True,
        shots=(1.5, 3.25),
        damage="cut off",
        indexed_at=1.75,
        stream_times={"subtitle": 1.25},
    )
    store.put_records([row])
    assert store.videos() == [row]


def test_the_ledger_of_an_earlier_version_has_no_dates_of_streams_until_it_is_written(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.put_records([record("a", streams={"subtitle": "m"})])
    store._table("videos").drop_columns(["stream_times"])
    earlier = Store.open(tmp_path)
    assert [(row.video_id, row.stream_times) for row in earlier.videos()] == [("a", {})]
    earlier.put_records([record("b", streams={"subtitle": "m"}, stream_times={"subtitle": 5.0})])
    assert [row.stream_times for row in Store.open(tmp_path).videos()] == [{}, {"subtitle": 5.0}]


@pytest.mark.parametrize(
    "text", ['{"subtitle": 1e300}', '{"subtitle": -1}', '{"subtitle": "x"}', '{"subtitle": NaN}']
)
def test_dates_that_no_calendar_has_are_left_out(store: Store, text: str) -> None:
    store.put_records([record("a", stream_times={"subtitle": 5.0})])
    store._table("videos").update(values={"stream_times": text})
    assert Store.open(store.place).videos()[0].stream_times == {}


def test_shots_that_were_never_looked_for_are_not_the_same_as_none_found(store: Store) -> None:
    store.put_records([record("a", shots=None), record("b", shots=())])
    assert [row.shots for row in store.videos()] == [None, ()]


def test_a_reopened_corpus_answers_as_before(store: Store) -> None:
    store.put_video(record("v1"), {"subtitle": clips(5)})
    again = Store.open(store.place)
    query = clips(5).vectors
    assert query is not None
    hits = again.nearest("subtitle", query[3], 2)
    assert (hits.video_ids[0], hits.index[0], hits.start[0], hits.end[0]) == ("v1", 3, 6.0, 8.0)
    assert hits.score[0] == pytest.approx(1.0, abs=2e-3)
    assert len(hits) == 2


def test_nearest_equals_brute_force_in_total_order(store: Store) -> None:
    entries = [(record(f"v{n}"), {"subtitle": clips(7, seed=n % 3)}) for n in range(9)]
    store.put_videos(entries)
    query = unit(np.random.default_rng(5), 1)[0]
    expected = sorted(
        (-round(float(score), 3), f"v{n}", index)
        for n in range(9)
        for index, score in enumerate(
            np.asarray(clips(7, seed=n % 3).vectors, np.float16).astype(np.float32) @ query
        )
    )
    hits = store.nearest("subtitle", query, 100)
    found = [
        (-round(float(s), 3), v, int(i))
        for s, v, i in zip(hits.score, hits.video_ids, hits.index, strict=True)
    ]
    assert [row[1:] for row in found] == [row[1:] for row in expected]
    assert np.allclose([row[0] for row in found], [row[0] for row in expected], atol=2e-3)


def test_putting_a_video_again_replaces_its_clips_and_no_others(store: Store) -> None:
    store.put_videos([(record("a"), {"subtitle": clips(5)}), (record("b"), {"subtitle": clips(4)})])
    for _ in range(3):
        store.put_video(record("a"), {"subtitle": clips(3, seed=9)})
    assert store.clip_counts("subtitle") == {"a": 3, "b": 4}
    assert [row.video_id for row in store.videos()] == ["a", "b"]


def test_of_two_entries_with_one_id_in_one_batch_the_last_counts(store: Store) -> None:
    store.put_videos([(record("a"), {"subtitle": clips(5)}), (record("a"), {"subtitle": clips(2)})])
    assert store.clip_counts("subtitle") == {"a": 2}
    assert len(store.videos()) == 1


def test_clip_ids_are_the_same_each_time(store: Store) -> None:
    for _ in range(2):
        store.put_video(record("a"), {"subtitle": clips(2)})
        rows = store._table("clips_subtitle").search().limit(None).to_arrow()
        assert rows["id"].to_pylist() == ["a/subtitle/000000", "a/subtitle/000001"]


def test_a_new_stream_leaves_the_others_alone(store: Store) -> None:
    store.put_video(record("a"), {"subtitle": clips(5)})
    store.add_stream(StreamInfo("vision", "clip", "clip@1", 24))
    both = {"subtitle": "mini@1", "vision": "clip@1"}
    store.put_video(record("a", streams=both), {"vision": clips(9, width=24)})
    assert store.clip_counts("subtitle") == {"a": 5}
    assert store.clip_counts("vision") == {"a": 9}
    assert store.videos()[0].streams == both


def test_clips_of_a_stream_that_a_record_no_longer_names_go(store: Store) -> None:
    store.add_stream(StreamInfo("vision", "clip", "clip@1", 24))
    both = {"subtitle": "mini@1", "vision": "clip@1"}
    store.put_video(record("a", streams=both), {"subtitle": clips(3), "vision": clips(9, width=24)})
    store.put_video(record("a"), {"subtitle": clips(4)})
    assert store.clip_counts("vision") == {}


def test_a_video_without_anything_to_search_has_a_ledger_row(store: Store) -> None:
    store.put_video(record("silent"), {"subtitle": ClipColumns(np.zeros(0), np.zeros(0), [], None)})
    assert store.video("silent") == record("silent")
    assert len(store.nearest("subtitle", np.ones(WIDTH), 5)) == 0


def test_places_in_the_picture_are_kept_beside_clips_that_were_written_without_any(store: Store) -> None:
    store.put_video(record("before"), {"subtitle": clips(2)})
    assert store.clips_of("subtitle", ["before"]).box is None
    boxes = np.array([[0, 0, 0.5, 0.25], [0.25, 0.5, 1, 1]], np.float32)
    store.put_video(record("placed"), {"subtitle": replace(clips(2), box=boxes)})
    store.put_video(record("after"), {"subtitle": clips(1)})
    for reading in range(3):  # the third is from memory
        store.nearest("subtitle", np.ones(WIDTH), 1)
        block = store.clips_of("subtitle", ["before", "placed", "after"])
        assert block.box is not None, reading
        np.testing.assert_array_equal(block.box[2:4], boxes)
        assert np.isnan(block.box[[0, 1, 4]]).all()
    assert len(store.clips_of("subtitle", ["before", "placed", "after"], vectors=False)) == 5


def test_a_box_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="boxes must be finite"):
        replace(clips(1), box=np.full((1, 4), np.nan))
    with pytest.raises(UsageError, match="differ in length"):
        replace(clips(1), box=np.zeros((2, 4)))


@pytest.mark.parametrize(("start", "end"), [(1.0, 1.0), (2.0, 1.0), (-1.0, 1.0)])
def test_a_clip_that_no_search_could_read_is_refused(start: float, end: float) -> None:
    with pytest.raises(UsageError, match="clips need 0 <= start < end"):
        replace(clips(1), start=np.array([start]), end=np.array([end]))


def test_removing_takes_clips_and_ledger_row(store: Store) -> None:
    store.put_videos([(record(name), {"subtitle": clips(3)}) for name in "abc"])
    assert store.remove_videos(["a", "c", "never there"]) == 2
    assert not store.remove_videos(["a"])
    assert store.clip_counts("subtitle") == {"b": 3}
    assert [row.video_id for row in store.videos()] == ["b"]


def test_a_renamed_file_keeps_its_clips(store: Store) -> None:
    store.put_video(record("a"), {"subtitle": clips(3)})
    store.put_records([replace(row, path="/elsewhere/'new'.mp4") for row in store.videos()])
    assert [row.path for row in store.videos()] == ["/elsewhere/'new'.mp4"]
    assert store.clip_counts("subtitle") == {"a": 3}


NASTY = [
    "o'neil",
    "a' OR '1'='1",
    "x'); DROP TABLE videos; --",
    'q"uote',
    "back\\slash",
    "line\nbreak",
    "../..",
    "%_",
    "é😀",
]


@pytest.mark.slow
def test_ids_with_quotes_and_sql_are_only_names(store: Store) -> None:
    store.put_videos([(record(name), {"subtitle": clips(2)}) for name in NASTY])
    for name in NASTY:
        assert [row.video_id for row in store.videos([name])] == [name]
        assert set(store.nearest("subtitle", np.ones(WIDTH), 50, video_ids=[name]).video_ids) == {name}
        assert len(store.clips_of("subtitle", [name])) == 2
    for left, name in zip(range(len(NASTY) - 1, -1, -1), NASTY, strict=True):
        assert store.remove_videos([name])
        assert len(store.videos()) == left


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), unique=True
    )
)
def test_any_text_may_be_a_video_id(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    corpus = Store.open(tmp_path_factory.mktemp("any") / "c", create=True)
    corpus.add_stream(WORDS)
    corpus.put_videos(
        [(VideoRecord(name, "p", streams={"subtitle": "mini@1"}), {"subtitle": clips(1)}) for name in names]
    )
    assert [row.video_id for row in corpus.videos()] == sorted(names)
    assert corpus.clip_counts("subtitle") == dict.fromkeys(names, 1)


@pytest.mark.parametrize("name", ["", "a\0b", "bad\udcff"])
def test_an_id_that_no_table_can_hold_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="video id"):
        VideoRecord(name, "p")


def test_filters_keep_only_what_they_name(store: Store) -> None:
    store.put_videos([(record(name), {"subtitle": clips(5)}) for name in "abc"])
    query = np.ones(WIDTH)
    assert set(store.nearest("subtitle", query, 50, video_ids=["a", "c"]).video_ids) == {"a", "c"}
    assert len(store.nearest("subtitle", query, 50, video_ids=[])) == 0
    words = store.match_text("subtitle", "line", 50, video_ids=["b"])
    assert (set(words.video_ids), len(words)) == ({"b"}, 5)


def test_words_are_stemmed_folded_and_found_in_their_context(store: Store) -> None:
    columns = ClipColumns(
        np.array([0.0, 2.0]),
        np.array([2.0, 4.0]),
        ["She cooked at the Café", "他说中文很好吃"],
        unit(np.random.default_rng(0), 2),
        context=["She cooked at the Café near the lighthouse", "他说中文很好吃"],
    )
    store.put_video(record("a"), {"subtitle": columns})
    for query, index in (("cooking", 0), ("CAFE", 0), ("lighthouses", 0), ("中文", 1)):
        assert store.match_text("subtitle", query, 5).index.tolist() == [index], query
    assert store.clips_of("subtitle", ["a"]).text[0] == "She cooked at the Café"


@pytest.mark.parametrize(
    "query",
    [
        "",
        "   ",
        "😀",
        '"open',
        "a AND (b OR",
        "^~*?:[]{}\\",
        "'; --",
        "NOT",
        "مرحبا",
        "line " * 10_000,
        "x" * 5000,
        "a\0b",
        "\udcff",
    ],
)
def test_any_text_is_a_query(store: Store, query: str) -> None:
    store.put_video(record("a"), {"subtitle": clips(3)})
    assert len(store.match_text("subtitle", query, 5)) <= 5


def test_ten_thousand_different_words_are_a_query(store: Store) -> None:
    store.put_video(record("a"), {"subtitle": clips(3)})
    query = " ".join(["line", *(f"word{number}" for number in range(10_000))])
    assert len(store.match_text("subtitle", query, 5)) == 3


def test_clips_of_gives_videos_in_the_order_asked_for(store: Store) -> None:
    store.put_videos(
        [(record(name), {"subtitle": clips(count, seed=count)}) for name, count in (("a", 3), ("b", 5))]
    )
    block = store.clips_of("subtitle", ["b", "missing", "a", "b"])
    assert block.video_ids == ["b", "missing", "a"]
    assert block.offsets.tolist() == [0, 5, 5, 8]
    assert block.index.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert block.text[block.rows(2)] == ["line 0", "line 1", "line 2"]
    expected = clips(3, seed=3).vectors
    assert expected is not None
    assert np.allclose(block.vectors[block.rows(2)], expected, atol=1e-3)
    assert store.clips_of("subtitle", ["a"], vectors=False).vectors.shape == (3, 0)
    assert len(store.clips_of("subtitle", [])) == 0


def test_clips_without_vectors_are_found_by_words_only(store: Store) -> None:
    plain = ClipColumns(np.zeros(1), np.ones(1), ["only words"], None)
    store.put_videos([(record("a"), {"subtitle": plain}), (record("b"), {"subtitle": clips(2)})])
    assert set(store.nearest("subtitle", np.ones(WIDTH), 9).video_ids) == {"b"}
    assert store.match_text("subtitle", "only", 9).video_ids == ["a"]
    assert not store.clips_of("subtitle", ["a"]).vectors.any()


def test_how_sure_a_recogniser_was_is_kept_of_the_clips_that_it_made(store: Store) -> None:
    written, time = clips(2), np.arange(2.0)
    store.put_video(record("a"), {"subtitle": written})
    assert store.clips_of("subtitle", ["a"]).recognised is None
    sure = np.array([0.5, 1.0], np.float32)
    spoken = ClipColumns(time, time + 1, ["one", "two"], written.vectors, recognised=sure)
    store.put_videos([(record("b"), {"subtitle": spoken}), (record("c"), {"subtitle": written})])
    for vectors in (True, False):
        kept = store.clips_of("subtitle", ["b", "a", "c"], vectors=vectors).recognised
        assert kept is not None and kept[:2].tolist() == [0.5, 1.0] and np.isnan(kept[2:]).all()
    with pytest.raises(UsageError, match="finite"):
        ClipColumns(time, time + 1, ["one", "two"], None, recognised=np.array([np.nan, 1.0]))


def test_a_stream_without_vectors_takes_the_first_encoder_that_comes(tmp_path: Path) -> None:
    corpus = Store.open(tmp_path / "c", create=True)
    corpus.add_stream(StreamInfo("subtitle", "", "", 0))
    corpus.put_video(
        record("a", streams={"subtitle": ""}), {"subtitle": ClipColumns(np.zeros(1), np.ones(1), ["hi"])}
    )
    with pytest.raises(UsageError, match="no vectors"):
        corpus.nearest("subtitle", np.ones(WIDTH), 1)
    assert corpus.match_text("subtitle", "hi", 1).video_ids == ["a"]
    corpus.add_stream(WORDS)
    assert len(corpus.nearest("subtitle", np.ones(WIDTH), 1)) == 0
    corpus.put_video(record("a"), {"subtitle": clips(2)})
    assert corpus.nearest("subtitle", np.ones(WIDTH), 1).video_ids == ["a"]


def test_another_encoder_is_an_error_that_names_both(store: Store) -> None:
    other = StreamInfo("subtitle", "large", "large@2", WIDTH)
    for attempt in (
        lambda: store.add_stream(other),
        lambda: store.check_stream("subtitle", "large@2", "large"),
    ):
        with pytest.raises(EncoderMismatch, match=r"mini \(mini@1\).*large.*large@2"):
            attempt()


def test_a_stream_can_be_removed_for_another_encoder(store: Store) -> None:
    store.put_video(record("a"), {"subtitle": clips(2)})
    store.erase({}, dropped=["subtitle"])
    assert store.streams == {}
    assert store.videos()[0].streams == {}
    store.add_stream(StreamInfo("subtitle", "large", "large@2", 8))
    assert store.clip_counts("subtitle") == {}


def test_wrong_vectors_are_refused_and_nothing_is_changed(store: Store) -> None:
    store.put_video(record("a"), {"subtitle": clips(2)})
    with pytest.raises(UsageError, match="width 8"):
        store.put_video(record("a"), {"subtitle": clips(2, width=8)})
    with pytest.raises(UsageError, match="NaN"):
        ClipColumns(np.zeros(1), np.ones(1), None, np.full((1, WIDTH), np.nan))
    with pytest.raises(UsageError, match="no stream 'vision'"):
        store.put_video(record("a"), {"vision": clips(2)})
    with pytest.raises(UsageError, match=r"shape \(3,\)"):
        store.nearest("subtitle", np.ones(3), 1)
    assert store.video("a") == record("a")
    assert store.clip_counts("subtitle") == {"a": 2}


# Opening ---------------------------------------------------------------------------------------------


def test_a_place_without_a_corpus_says_so_and_stays_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(NotACorpus, match="is not there"):
        Store.open(tmp_path / "none")
    (tmp_path / "holiday.mp4").write_bytes(b"x")
    with pytest.raises(NotACorpus, match="holds no corpus"):
        Store.open(tmp_path)
    with pytest.raises(NotACorpus, match="holds other files"):
        Store.open(tmp_path, create=True)
    with pytest.raises(NotACorpus, match="is a file"):
        Store.open(tmp_path / "holiday.mp4", create=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["holiday.mp4"]


def test_a_newer_corpus_is_an_error_that_names_both_versions(store: Store) -> None:
    with contextlib.suppress(NewerCorpus):
        store._describe({"format": {"version": 7, "whenabouts": "9.9"}})
    with pytest.raises(NewerCorpus, match=r"format 7 \(written by whenabouts 9\.9\).*up to format 1"):
        Store.open(store.place)


def test_a_half_made_corpus_is_made_whole(tmp_path: Path) -> None:
    from whenabouts.index.lance import connect
    from whenabouts.index.records import ledger_schema

    connect(str(tmp_path), None).create_table("videos", schema=ledger_schema())
    assert Store.open(tmp_path, create=True).videos() == []


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody without permission")
def test_a_corpus_that_may_not_be_read_says_so(store: Store) -> None:
    code = (
        "import os, sys\nfrom whenabouts.index.store import Store\n"
        "from whenabouts.index import lance\n"
        "lance.import_lancedb()\nos.setuid(65534)\n"
        "try:\n    Store.open(sys.argv[1])\n"
        "except Exception as error:\n    print(type(error).__name__, error)"
    )
    Path(store.place).chmod(0o700)
    Path(store.place).parent.chmod(0o755)
    answer = subprocess.run(
        [sys.executable, "-c", code, store.place], capture_output=True, text=True, check=True
    )
    assert answer.stdout.startswith("StoreError")
    assert "ermission" in answer.stdout


def test_a_lost_table_is_named(store: Store) -> None:
    shutil.rmtree(Path(store.place) / "clips_subtitle.lance")
    with pytest.raises(StoreError, match="clips_subtitle"):
        Store.open(store.place).clip_counts("subtitle")


# Index and upkeep ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_limits() -> Iterator[None]:
    """Ten thousand clips are many enough for an index."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "INDEX_ROWS", 5_000)
        patch.setattr(memory, "INDEX_ROWS", 5_000)
        patch.setattr(upkeep, "PARTITION_ROWS", 100)
        patch.setattr(lookup, "EXACT_ROWS", 300)
        patch.setattr(lookup, "_LONG_LIST", 80)
        yield


@pytest.fixture(scope="module")
def built(small_limits: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, NDArray[np.float32]]:
    """A corpus of 200 videos x 50 clips around 40 topics, with its index; not to be changed."""
    store = Store.open(tmp_path_factory.mktemp("indexed") / "my.corpus", create=True)
    store.add_stream(WORDS)
    rng = np.random.default_rng(1)
    topics = unit(rng, 40)
    rows = topics[np.repeat(rng.integers(40, size=200), 50)] + 0.25 * rng.standard_normal((10_000, WIDTH))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    time = np.arange(50.0)
    store.put_videos(
        (
            record(f"{n:03d}"),
            {"subtitle": ClipColumns(time, time + 1, ["w"] * 50, rows[n * 50 : n * 50 + 50])},
        )
        for n in range(200)
    )
    store.optimize()
    return store, rows


@pytest.fixture
def indexed(built: tuple[Store, NDArray[np.float32]], tmp_path: Path) -> tuple[Store, NDArray[np.float32]]:
    """A copy of that corpus, which a test may change."""
    store, rows = built
    return Store.open(shutil.copytree(store.place, tmp_path / "indexed.corpus")), rows


def test_a_run_that_is_stopped_leaves_few_words_outside_the_index(store: Store) -> None:
    """Each search splits all texts outside the index into words again."""
    for number in range(12):
        store.put_videos([(record(f"{number}"), {"subtitle": clips(250, seed=number)})])
    state = upkeep.state_of(store._clips("subtitle"))
    assert state.rows == 3_000 and state.unindexed < 1_250


# An index is trained from random places, so recall differs from build to build. In 30 builds with 100
# queries it was never below 0.972, 0.956, 0.995, 0.999, 0.999 for these shares (deviation at most 0.004).
# With half the partitions looked into it is 0.91 and 0.87 for the first two; with a filter that is given no
# more partitions 0.94 and 0.80 for the next two; with filters tried on the answers only 0.32, 0.11, 0.02 for
# the last three. (Half of all videos is less than all only for a k as small as here: over a million clips
# and k = 200 it is 0.996 against 0.986.)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "least"), [(1.0, 0.95), (0.5, 0.93), (0.3, 0.98), (0.1, 0.98), (0.03, 0.98)]
)
@pytest.mark.parametrize("is_kept", [False, True])
def test_an_indexed_search_keeps_the_true_neighbours_under_any_filter(
    built: tuple[Store, NDArray[np.float32]], share: float, least: float, is_kept: bool
) -> None:
    store, rows = reader_of(built[0], is_kept=is_kept), built[1]
    assert store.stats().streams["subtitle"].vector_index
    rng = np.random.default_rng(2)
    keep = np.flatnonzero(rng.permutation(200) < 200 * share)
    ids = None if share == 1.0 else [f"{n:03d}" for n in keep]
    allowed = (keep[:, None] * 50 + np.arange(50)).reshape(-1)
    found = []
    for query in rows[rng.integers(10_000, size=100)] + 0.1 * rng.standard_normal((100, WIDTH)):
        truth = allowed[np.argsort(-(rows[allowed] @ query))[:50]]
        hits = store.nearest("subtitle", query, 50, video_ids=ids)
        got = {int(v) * 50 + int(i) for v, i in zip(hits.video_ids, hits.index, strict=True)}
        found.append(len(got & set(truth.tolist())) / len(truth))
    assert np.mean(found) >= least
    assert (store._memory.stream("subtitle", store.state_of("subtitle")) is not None) == is_kept


def reader_of(store: Store, *, is_kept: bool) -> Store:
    """Another reader of a corpus, which keeps large streams in memory or not."""
    reader = Store.open(store.place)
    reader.keep_at_most(1 << 30 if is_kept else 0)
    for _ in range(3):
        reader.nearest("subtitle", np.ones(WIDTH), 1)
    return reader


@pytest.mark.slow
def test_an_indexed_stream_in_memory_answers_as_the_files_do(
    built: tuple[Store, NDArray[np.float32]],
) -> None:
    files, kept = (reader_of(built[0], is_kept=is_kept) for is_kept in (False, True))
    queries = list(built[1][::1_500])
    together = kept.nearest_of_each("subtitle", queries, 20)
    assert together is not None
    assert files.nearest_of_each("subtitle", queries, 20) is None
    for query, shared in zip(queries, together, strict=True):
        alone, on_disk = kept.nearest("subtitle", query, 20), files.nearest("subtitle", query, 20)
        assert (shared.video_ids, shared.index.tolist()) == (alone.video_ids, alone.index.tolist())
        np.testing.assert_array_equal(shared.score, alone.score)
        assert set(zip(alone.video_ids, alone.index.tolist(), strict=True)) == set(
            zip(on_disk.video_ids, on_disk.index.tolist(), strict=True)
        )
        np.testing.assert_allclose(alone.score, on_disk.score, atol=2e-3)  # files: half precision throughout
    block, read = (store.clips_of("subtitle", ["007", "gone", "003"]) for store in (kept, files))
    assert block.text == read.text
    assert block.vectors.dtype == read.vectors.dtype
    np.testing.assert_array_equal(block.vectors, read.vectors)
    assert len(kept.match_text("subtitle", "w", 7)) == 7


@pytest.mark.slow
def test_a_large_stream_that_cannot_be_read_is_read_at_a_later_search(
    built: tuple[Store, NDArray[np.float32]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, query = Store.open(built[0].place), np.ones(WIDTH)
    store.keep_at_most(1 << 30)
    store.nearest("subtitle", query, 1)
    with monkeypatch.context() as patch:
        patch.setattr(memory.WholeStream, "read", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            store.nearest("subtitle", query, 1)
    for _ in range(2):
        assert len(store.nearest("subtitle", query, 1)) == 1
    assert store._memory.stream("subtitle", store.state_of("subtitle")) is not None


@pytest.mark.slow
def test_neighbours_are_kept_when_an_indexed_corpus_grows(indexed: tuple[Store, NDArray[np.float32]]) -> None:
    store, rows = indexed
    time = np.arange(50.0)
    for first in range(200, 300, 25):
        more = np.roll(rows, first, axis=1)
        store.put_videos(
            (
                record(f"{n:03d}"),
                {"subtitle": ClipColumns(time, time + 1, None, more[(n - 200) * 50 :][:50])},
            )
            for n in range(first, first + 25)
        )
        store.optimize(force=True)
    everything = store.clips_of("subtitle", [f"{n:03d}" for n in range(300)]).vectors
    found = []
    for row in range(0, 15_000, 100):
        truth = np.argsort(-(everything @ everything[row]))[:50]
        hits = store.nearest("subtitle", everything[row], 50)
        got = {int(v) * 50 + int(i) for v, i in zip(hits.video_ids, hits.index, strict=True)}
        found.append(len(got & set(truth.tolist())) / 50)
    # 20 builds: 0.957 to 0.965; with half the partitions looked into 0.88 to 0.89.
    assert np.mean(found) >= 0.93


def test_the_index_is_left_aside_when_exactness_is_asked_for(
    built: tuple[Store, NDArray[np.float32]],
) -> None:
    store, rows = built
    hits = store.nearest("subtitle", rows[77], 20, exact=True)
    truth = np.argsort(-(np.asarray(rows, np.float16).astype(np.float32) @ rows[77]))[:20]
    assert {int(v) * 50 + int(i) for v, i in zip(hits.video_ids, hits.index, strict=True)} == set(
        truth.tolist()
    )


def test_clips_added_after_indexing_are_found_at_once(indexed: tuple[Store, NDArray[np.float32]]) -> None:
    store, _ = indexed
    store.put_video(record("new"), {"subtitle": clips(3, seed=99, text="fresh")})
    vector = clips(3, seed=99).vectors
    assert vector is not None
    assert store.nearest("subtitle", vector[1], 1).video_ids == ["new"]
    assert set(store.match_text("subtitle", "fresh", 9).video_ids) == {"new"}
    assert store.remove_videos(["new"])
    assert "new" not in store.nearest("subtitle", vector[1], 5).video_ids


@pytest.mark.slow
def test_many_small_writes_are_merged(store: Store) -> None:
    for number in range(20):
        store.put_video(record(f"v{number}"), {"subtitle": clips(2)})
    assert store.stats().streams["subtitle"].fragments == 20
    store.optimize()
    stats = store.stats()
    assert stats.streams["subtitle"].fragments <= 2
    assert (stats.videos, stats.streams["subtitle"].clips) == (20, 40)
    versions = len(list((Path(store.place) / "clips_subtitle.lance" / "_versions").iterdir()))
    assert versions < 10  # 21 were written; how many of the last milliseconds stay depends on the clock


def test_stats_count_what_is_there(store: Store) -> None:
    store.put_videos(
        [
            (record("a", duration=1800.0), {"subtitle": clips(3)}),
            (record("b", state="failed", streams={}), {}),
        ]
    )
    stats = store.stats()
    assert (stats.videos, stats.failed, stats.hours) == (2, 1, 0.5)
    assert stats.streams["subtitle"].clips == 3
    assert stats.bytes is not None
    assert stats.bytes > 1000
    (Path(store.place) / "empty").mkdir()
    assert store.stats().bytes == stats.bytes, "a folder has no bytes of its own"


_DEFERRED_STILL_WORKS = """
import overrides
from lance_namespace import DescribeTableRequest as Request
from lance_namespace_urllib3_client import ApiException
from lance_namespace_urllib3_client.models.describe_table_request import DescribeTableRequest

class Narrower(Request):
    pass

asked = Narrower.from_dict({"id": ["videos"]})
assert asked.id == ["videos"] and isinstance(asked, Request) and issubclass(Narrower, Request)
assert isinstance(Request(id=["a"]), DescribeTableRequest) and not isinstance("a", Request)
assert Request.model_fields.keys() == DescribeTableRequest.model_fields.keys()
assert not hasattr(Request, "__origin__")
assert str(ApiException(status=404)).startswith("(404)")
assert "check_signature" in overrides.override.__kwdefaults__
"""


@pytest.mark.slow
def test_a_cold_start_needs_no_table_libraries_and_no_rest_client() -> None:
    code = (
        "import sys, json, tempfile\nfrom whenabouts.index.store import Store\n"
        "Store.open(tempfile.mkdtemp(), create=True)\nprint(json.dumps(sorted(sys.modules)))\n"
        + _DEFERRED_STILL_WORKS
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(answer.stdout)
    assert not {"pandas", "polars", "torch", "lance_namespace_urllib3_client.api"} & set(loaded)
    assert "lancedb" in loaded
    models = [name for name in loaded if name.startswith("lance_namespace_urllib3_client.models.")]
    assert len(models) < 30, "what the deferred package has stays unread"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="LanceDB takes `override` from typing")
def test_a_method_that_overrides_nothing_is_still_refused_outside_lancedb() -> None:
    import overrides

    with pytest.raises(TypeError, match="No super class"):

        class Child(Path):
            @overrides.override
            def no_such_method(self) -> None: ...
