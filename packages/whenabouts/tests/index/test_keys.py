"""What trained systems made of videos, as the index keeps it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts.index import lookup, upkeep
from whenabouts.index.keys import (
    EncodedVideo,
    Keys,
    SystemKeys,
    add_keys,
    known_systems,
    mark_of,
    open_keys,
    remove_keys,
)
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.index.vector_index import Distance
from whenabouts.types import UsageError

WIDTH = 8
INFO = SystemKeys("0123456789abcdef", "xml", "/runs/xml", {"subtitle": WIDTH})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    corpus = Store.open(tmp_path / "my.corpus", create=True)
    corpus.add_stream(StreamInfo("subtitle", "mini", "mini@1", 2))
    return corpus


def encoded(
    video_id: str, count: int = 3, seed: int = 0, mark: str = "m", width: int = WIDTH
) -> EncodedVideo:
    rng = np.random.default_rng(seed)
    keys = rng.standard_normal((count, width)).astype(np.float32)
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    start = np.arange(count, dtype=np.float64)
    end = start + 1
    return EncodedVideo(
        video_id,
        mark,
        count,
        float(count),
        {"subtitle": keys},
        {"subtitle": start},
        {"subtitle": end},
        b"all",
    )


def put_video(store: Store, video_id: str) -> None:
    clips = ClipColumns(np.zeros(1), np.ones(1), ["hello"], np.ones((1, 2), np.float32))
    store.put_video(
        VideoRecord(video_id, f"/{video_id}", streams={"subtitle": "mini@1"}), {"subtitle": clips}
    )


def test_what_is_put_comes_back(store: Store) -> None:
    keys = add_keys(store, INFO)
    keys.put([encoded("b's", 3, 1), encoded("a", 2, 2)])
    assert keys.marks() == {"a": "m", "b's": "m"}
    assert keys.count() == 2
    assert [
        (kept.video_id, kept.rows, kept.duration, kept.encoding)
        for kept in keys.encodings(sorted(keys.marks()))
    ] == [
        ("a", 2, 2.0, b"all"),
        ("b's", 3, 3.0, b"all"),
    ]
    assert [kept.video_id for kept in keys.encodings(["b's", "none", "a"])] == ["b's", "a"]
    assert keys.encodings([]) == []


@pytest.mark.parametrize("distance", ["l2", "dot"])
def test_the_nearest_keys_are_those_of_the_greatest_product(store: Store, distance: Distance) -> None:
    keys = add_keys(store, replace(INFO, distance=distance))
    scale = 1.0 if distance == "l2" else 3.0
    videos = [encoded(f"v{seed}", 5, seed) for seed in range(6)]
    for number, video in enumerate(videos):
        video.keys["subtitle"][:] *= scale if number % 2 else 1.0
    keys.put(videos)
    query = np.random.default_rng(9).standard_normal(WIDTH).astype(np.float32)
    query /= np.linalg.norm(query)
    products = {
        (video.video_id, at): float(row @ query)
        for video in videos
        for at, row in enumerate(video.keys["subtitle"])
    }
    expected = sorted(products, key=lambda one: -products[one])[:7]
    found = keys.nearest("subtitle", query, 7)
    assert list(zip(found.video_ids, found.index.tolist(), strict=True)) == expected
    np.testing.assert_allclose(found.score, [products[one] for one in expected], atol=5e-3)
    assert set(keys.nearest("subtitle", query, 99, ["v1", "v2"]).video_ids) == {"v1", "v2"}


def test_a_video_put_again_is_there_once(store: Store) -> None:
    keys = add_keys(store, INFO)
    keys.put([encoded("a", 5), encoded("b", 2)])
    keys.put([encoded("a", 3, mark="new")])
    assert keys.marks() == {"a": "new", "b": "m"}
    rows = store.read_side(INFO.table("subtitle"), ["video_id"])["video_id"].to_pylist()
    assert sorted(rows) == ["a"] * 3 + ["b"] * 2


def test_a_video_that_is_taken_out_of_the_corpus_leaves_no_keys(store: Store) -> None:
    keys = add_keys(store, INFO)
    for name in ("gone away", "b", "c"):
        put_video(store, name)
    keys.put([encoded("gone away"), encoded("b"), encoded("c", 40)])
    store.remove_videos(["c"])
    assert keys.marks() == {"gone away": "m", "b": "m"}
    store.erase({"subtitle": ()}, videos=["gone away"])
    assert keys.marks() == {"b": "m"}
    files = [path for path in Path(store.place).rglob("*") if path.is_file()]
    assert not [path for path in files if b"gone away" in path.read_bytes()]
    assert keys.nearest("subtitle", encoded("b").keys["subtitle"][0], 1).video_ids == ["b"]
    assert set(store.read_side(INFO.table("subtitle"), ["video_id"])["video_id"].to_pylist()) == {"b"}


def test_systems_are_known_to_other_handles_and_go_whole(store: Store) -> None:
    add_keys(store, INFO).put([encoded("a")])
    other = Store.open(store.place)
    assert known_systems(other) == [INFO]
    found = open_keys(other, INFO.system)
    assert found is not None
    assert found.marks() == {"a": "m"}
    remove_keys(other, INFO)
    assert known_systems(other) == []
    assert open_keys(other, INFO.system) is None
    assert not other.sides
    assert not [path.name for path in Path(store.place).iterdir() if INFO.system in path.name]
    store.refresh()
    assert not store.sides


def test_keys_made_again_start_empty(store: Store) -> None:
    add_keys(store, INFO).put([encoded("a")])
    remove_keys(store, INFO)
    keys = add_keys(store, INFO)
    assert keys.marks() == {}
    keys.put([encoded("b")])
    assert keys.marks() == {"b": "m"}


def test_room_that_is_there_is_taken_as_it_is(store: Store) -> None:
    add_keys(store, INFO).put([encoded("a")])
    assert add_keys(store, INFO).marks() == {"a": "m"}


def test_keys_of_another_width_are_refused(store: Store) -> None:
    keys = add_keys(store, INFO)
    with pytest.raises(UsageError, match=r"a: keys of width 9; stream subtitle holds 8"):
        keys.put([encoded("a", width=9)])


def test_a_fingerprint_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="not a fingerprint of a system"):
        SystemKeys("../other", "xml", "/runs/xml")


def test_a_mark_changes_with_everything_that_writes_clips_anew() -> None:
    record = VideoRecord("a", "/a", content_hash="x", indexed_at=1.0, streams={"subtitle": "m"}, duration=3.0)
    changes: tuple[dict[str, Any], ...] = (
        {"content_hash": "y"},
        {"indexed_at": 2.0},
        {"streams": {}},
        {"duration": 4.0},
    )
    marks = {mark_of(record), *(mark_of(replace(record, **change)) for change in changes)}
    assert len(marks) == 5
    assert mark_of(replace(record, path="/b", title="moved")) == mark_of(record)


def test_many_keys_get_a_vector_index(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "INDEX_ROWS", 500)
    monkeypatch.setattr(upkeep, "PARTITION_ROWS", 50)
    keys = add_keys(store, INFO)
    videos = [encoded(f"v{seed:03d}", 20, seed) for seed in range(40)]
    keys.put(videos)
    store.optimize()
    assert INFO.table("subtitle") in store._indices
    query = videos[7].keys["subtitle"][3]
    found = keys.nearest("subtitle", query, 5)
    assert (found.video_ids[0], int(found.index[0])) == ("v007", 3)
    reader = Keys(Store.open(store.place), INFO)
    assert reader.nearest("subtitle", query, 5).video_ids == found.video_ids


TWO = SystemKeys("0123456789abcdef", "prem", "/runs/prem", {"seen": WIDTH, "said": WIDTH})


def of_two(video_id: str, seed: int, said: int, segments: bool = False) -> EncodedVideo:
    """A video with 6 keys of what is seen and so many of what is said; as segments one key each."""
    keys = {
        "seen": encoded("", 6, seed).keys["subtitle"],
        "said": encoded("", 6, -seed % 997).keys["subtitle"],
    }
    keys["said"] = keys["said"][:said]
    times = {name: np.arange(len(rows), dtype=np.float64) for name, rows in keys.items()}
    ends = {name: start + 1 for name, start in times.items()}
    index = {name: start.astype(np.int64) for name, start in times.items()} if segments else None
    return EncodedVideo(video_id, "m", 6, 6.0, keys, times, ends, b"", index=index)


def test_keys_are_asked_by_the_streams_that_their_video_has(store: Store) -> None:
    keys = add_keys(store, TWO)
    assert keys.kinds() == ()
    keys.put([of_two("both", 1, 4), of_two("silent", 2, 0)])
    assert keys.kinds() == (("said", "seen"), ("seen",))
    query = np.ones(WIDTH, np.float32)
    assert set(keys.nearest("seen", query, 99, kind=("seen",)).video_ids) == {"silent"}
    assert set(keys.nearest("seen", query, 99, kind=("said", "seen")).video_ids) == {"both"}
    assert set(keys.nearest("seen", query, 99).video_ids) == {"both", "silent"}
    assert keys.nearest("seen", query, 99, ["both"], kind=("seen",)).video_ids == []
    assert len(keys.nearest("said", query, 99, kind=("seen",))) == 0
    keys.forget(["silent"])
    assert keys.kinds() == (("said", "seen"),)


def test_keys_of_segments_are_asked_by_the_streams_that_their_segment_has(store: Store) -> None:
    keys = add_keys(store, TWO)
    keys.put([of_two("film", 1, 4, segments=True)])
    assert keys.kinds() == (("said", "seen"), ("seen",))
    query = np.ones(WIDTH, np.float32)
    assert sorted(keys.nearest("seen", query, 99, kind=("seen",)).index) == [4, 5]
    assert sorted(keys.nearest("said", query, 99, kind=("said", "seen")).index) == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("grown", [False, True], ids=["indexed", "and more since"])
def test_scores_of_several_streams_are_true_also_with_a_vector_index(
    store: Store, grown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "INDEX_ROWS", 500)
    monkeypatch.setattr(upkeep, "PARTITION_ROWS", 50)
    monkeypatch.setattr(lookup, "EXACT_ROWS", 50)
    keys = add_keys(store, TWO)
    videos = [of_two(f"v{seed:03d}", seed, 0 if seed % 3 else 6) for seed in range(200)]
    keys.put(videos)
    store.optimize()
    assert TWO.table("seen") in store._indices
    if grown:
        more = [of_two(f"v{seed:03d}", seed, 0 if seed % 3 else 6) for seed in range(200, 230)]
        videos += more
        keys.put(more)
    query = videos[7].keys["seen"][3]
    for kind in keys.kinds():
        found = keys.nearest("seen", query, 20, kind=kind)
        true = [float(videos[int(name[1:])].keys["seen"][at] @ query) for name, at in
                zip(found.video_ids, found.index, strict=True)]  # fmt: skip
        np.testing.assert_allclose(found.score, true, atol=0.02)
        assert len(found) == 20 and min(true) < 0.9
        assert {int(name[1:]) % 3 == 0 for name in found.video_ids} == {"said" in kind}


def test_what_was_kept_in_an_earlier_layout_is_not_used(store: Store) -> None:
    add_keys(store, INFO).put([encoded("a")])
    fact = store.fact("system:" + INFO.system)
    assert fact is not None
    store.put_fact("system:" + INFO.system, {name: fact[name] for name in fact if name != "layout"})
    assert open_keys(store, INFO.system) is None
    (known,) = known_systems(store)
    assert not known.is_current
    remove_keys(store, known)
    assert not store.sides


def counted_reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ids that each reading of encodings asked the table for."""
    asked: list[Any] = []
    read = store.read_side

    def counting(name: str, columns: Any, video_ids: Any = None) -> Any:
        asked.append(video_ids)
        return read(name, columns, video_ids)

    monkeypatch.setattr(store, "read_side", counting)
    return asked


def test_encodings_that_were_read_are_not_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add_keys(store, INFO).put([encoded(name) for name in "abc"])
    keys = Keys(store, INFO)
    asked = counted_reads(store, monkeypatch)
    assert [one.video_id for one in keys.encodings(["a", "b"], with_keys=False)] == ["a", "b"]
    assert [one.video_id for one in keys.encodings(["c", "b", "?"], with_keys=False)] == ["c", "b"]
    assert asked == [["a", "b"], ["c", "?"]]


def test_what_is_remembered_of_encodings_stays_within_its_bytes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_keys(store, INFO).put([encoded(name) for name in "abc"])
    keys = Keys(store, INFO, cache_bytes=2 * len(b"all"))
    asked = counted_reads(store, monkeypatch)
    keys.encodings(["a", "b", "c"], with_keys=False)
    keys.encodings(["b", "c"], with_keys=False)
    keys.encodings(["a"], with_keys=False)
    assert asked == [["a", "b", "c"], ["a"]]


def test_encodings_written_anew_are_read_anew(store: Store) -> None:
    keys = add_keys(store, INFO)
    keys.put([encoded("a")])
    assert keys.encodings(["a"])[0].encoding == b"all"
    keys.put([replace(encoded("a"), encoding=b"other")])
    assert keys.encodings(["a"])[0].encoding == b"other"
    keys.forget(["a"])
    assert keys.encodings(["a"]) == []
