"""Annotations and features of an experiment: what is found, what is counted, what is refused and how."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_bench.relevance.pairs import ListedPairs, PairSettings, RelevantPairs
from whenabouts_systems.features import FeatureMismatch, Fingerprint, cache, open_features
from whenabouts_systems.features.layouts.store import write_store
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.inputs import Inputs
from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.training.data import DataSettings, ExperimentData, FeatureSettings
from whenabouts_systems.training.tables import converted

CLIP = 2.0
VIDEOS = {"a": 9.0, "b": 20.0, "c": 13.5, "d": 1.5, "e": 60.0}
QUERIES = [
    ("q0", "a", 0.0, 4.0),
    ("q1", "b", 3.0, 9.0),
    ("q2", "b", 11.0, 19.0),
    ("q3", "c", 0.0, 13.5),
    ("q4", "d", 0.2, 1.1),
    ("q5", "e", 44.0, 50.5),
    ("q6", "a", 5.0, 9.0),
]
DATA = DataSettings(train="train.jsonl")
FEATURES = FeatureSettings(query="query.h5", streams={"video": "video.h5"}, clip_seconds=CLIP, max_clips=12)

Arrays = dict[str, NDArray[Any]]


def clips_of(duration: float) -> int:
    return int(np.ceil(duration / CLIP))


def video_rows(width: int = 6) -> Arrays:
    random = np.random.default_rng(0)
    return {name: random.normal(size=(clips_of(long), width)) for name, long in VIDEOS.items()}


def query_rows() -> Arrays:
    random = np.random.default_rng(1)
    return {name: random.normal(size=(3 + at, 5)) for at, (name, *_) in enumerate(QUERIES)}


def write_hdf5(path: Path, arrays: Mapping[str, NDArray[Any]], **facts: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, rows in arrays.items():
            file.create_dataset(name, data=rows.astype(np.float16))
        file.attrs.update(facts)
    return path


def write_annotations(path: Path, queries: list[tuple[str, str, float, float]] = QUERIES) -> None:
    lines = [
        {
            "desc_id": query,
            "desc": f"sentence of {query}",
            "vid_name": video,
            "duration": VIDEOS.get(video, 10.0),
            "ts": [start, end],
            "type": "v",
        }
        for query, video, start, end in queries
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture()
def place(tmp_path: Path) -> Path:
    write_annotations(tmp_path / "train.jsonl")
    write_hdf5(tmp_path / "video.h5", video_rows())
    write_hdf5(tmp_path / "query.h5", query_rows())
    return tmp_path


def counts(material: ExperimentData, split: str = "train") -> Mapping[str, int]:
    return material.split(split).summary.counts


def same(first: Batch, second: Batch) -> bool:
    return (
        torch.equal(first.spans, second.spans)
        and torch.equal(first.queries.tokens, second.queries.tokens)
        and torch.equal(first.videos.streams["video"], second.videos.streams["video"])
        and torch.equal(first.video_of, second.video_of)
        and first.progress == second.progress
    )


def test_annotations_and_features_become_batches(place: Path) -> None:
    with ExperimentData.open(DATA, FEATURES, place) as material:
        examples = material.split("train")
        batch = examples.batch(np.arange(len(examples)))
    assert material.inputs.widths == {"video": 6} and material.inputs.query.width == 5
    assert batch.video_of.tolist() == [0, 1, 1, 2, 3, 4, 0]
    assert batch.spans[:5].tolist() == [[0, 1], [1, 4], [5, 9], [0, 6], [0, 0]]
    assert examples.clips.tolist() == [5, 10, 7, 1, 12]
    rows = video_rows()["b"].astype(np.float16).astype(np.float32)
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(batch.videos.streams["video"][1, :10], expected, atol=1e-4)
    assert batch.confidence is None and batch.weight is None


def test_labels_of_a_pooled_video_lie_on_its_longer_clips(place: Path) -> None:
    with ExperimentData.open(DATA, FEATURES, place) as material:
        examples = material.split("train")
    assert examples.clip_seconds.tolist() == [CLIP, CLIP, CLIP, CLIP, 5.0]
    at = examples.query.tolist().index(5)
    assert examples.spans[at].tolist() == [8, 10], "44 to 50.5 s in clips of 5 s"
    assert counts(material)["videos of more than 12 clips are pooled to 12"] == 1


def test_moments_behind_the_clips_that_are_kept_are_no_examples(place: Path) -> None:
    with ExperimentData.open(DATA, replace(FEATURES, long_videos="cut"), place) as material:
        found = counts(material)
        assert len(material.split("train")) == len(QUERIES) - 1
    assert found["videos of more than 12 clips are cut at 12"] == 1
    assert found["moments begin after their video's last clip and are skipped"] == 1
    assert found["queries have no positive among the videos"] == 1


def test_released_labels_keep_them_at_the_last_clip(place: Path) -> None:
    settings = replace(FEATURES, long_videos="cut")
    with ExperimentData.open(replace(DATA, labels="as-released"), settings, place) as material:
        examples = material.split("train")
    assert examples.spans[5].tolist() == [11, 11]


def test_an_epoch_that_begins_later_goes_on_as_it_would_have(place: Path) -> None:
    with ExperimentData.open(DATA, FEATURES, place) as material:
        examples = material.split("train")
        told = {"size": 2, "epoch": 3, "seed": 5, "epochs": 10}
        whole = list(examples.batches(**told, ahead_by=0))
        late = list(examples.batches(**told, first=2))
    assert len(whole) == examples.batch_count(2) == 3 and [len(one) for one in whole] == [2, 2, 3]
    assert len(late) == 1 and same(late[0], whole[2])
    assert [one.progress for one in whole] == pytest.approx([0.3, 0.3 + 1 / 30, 0.3 + 2 / 30])
    assert {one.epoch for one in whole} == {3}


def test_the_thread_changes_nothing(place: Path) -> None:
    with ExperimentData.open(DATA, FEATURES, place) as material:
        examples = material.split("train")
        alone, ahead = (list(examples.batches(size=3, seed=1, ahead_by=count)) for count in (0, 4))
    assert all(same(a, b) for a, b in zip(alone, ahead, strict=True))


def test_what_does_not_fit_into_memory_is_read_from_the_file(place: Path) -> None:
    with h5py.File(place / "video.h5", "w") as file:  # packed, so that it cannot be mapped
        for name, one in video_rows().items():
            file.create_dataset(name, data=one.astype(np.float16), compression="gzip")
    found = []
    for memory in (0, 4096):
        with ExperimentData.open(DATA, replace(FEATURES, memory_mb=memory), place) as material:
            examples = material.split("train")
            assert bool(examples._streams["video"].cached.items_held) == bool(memory)
            found.append(examples.batch(np.arange(len(examples))))
    assert same(*found)


@pytest.mark.parametrize("name", ["store", "video.h5"])
def test_what_lies_in_one_piece_is_mapped_and_not_copied(place: Path, name: str) -> None:
    write_store(place / "store", video_rows().items(), Fingerprint())
    settings = replace(FEATURES, streams={"video": name}, memory_mb=0)
    with ExperimentData.open(DATA, settings, place) as material:
        rows = material.split("train")._streams["video"].cached
        assert rows.items_held == len(VIDEOS) and rows.bytes_held == 0


def test_a_cache_is_used_until_the_file_changes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(FEATURES, cache="cache")
    made: list[Path] = []

    def writing(path: Path, *rest: Any) -> None:
        made.append(path)
        write_store(path, *rest)

    monkeypatch.setattr(cache, "write_store", writing)

    def first_batch() -> Batch:
        with ExperimentData.open(DATA, settings, place) as material:
            return material.split("train").batch(np.arange(4))

    before = first_batch()
    assert len(made) == 2
    assert same(before, first_batch()) and len(made) == 2
    rows = {name: -one for name, one in video_rows().items()}
    write_hdf5(place / "video.h5", rows)
    os.utime(place / "video.h5", ns=(1, 1))
    after = first_batch()
    assert len(made) == 3 and made[2].name.startswith("video.h5")
    torch.testing.assert_close(after.videos.streams["video"], -before.videos.streams["video"])
    (made[2] / "features.npy").write_bytes(b"")
    assert same(after, first_batch()) and len(made) == 4


def test_another_process_may_make_the_same_cache_meanwhile(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(path: Path, items: Any, fingerprint: Fingerprint) -> None:
        rows = list(items)
        write_store(path, rows, fingerprint)
        write_store(path, rows, fingerprint)

    monkeypatch.setattr(cache, "write_store", twice)
    with ExperimentData.open(DATA, replace(FEATURES, cache="cache"), place) as material:
        assert material.split("train")._streams["video"].cached.source.path.parent == place / "cache"


def test_an_old_cache_that_cannot_be_removed_is_not_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(FEATURES, cache="cache")
    ExperimentData.open(DATA, settings, place).close()
    os.utime(place / "video.h5", ns=(1, 1))
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    for _ in range(2):
        with pytest.raises(UsageError, match=r"video\.h5-.*: is there already"):
            ExperimentData.open(DATA, settings, place)


def test_a_cache_lies_in_the_home_folder_where_it_is_named_so(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with ExperimentData.open(DATA, replace(FEATURES, cache="~/cache"), place) as material:
        assert len(material.split("train")) == len(QUERIES)
    assert (tmp_path / "home" / "cache").is_dir() and not (place / "~").exists()


def test_a_cache_of_tacos_features_keeps_both_names_of_videos(place: Path) -> None:
    write_hdf5(place / "video.h5", {f"{name}.avi": rows for name, rows in video_rows().items()})
    annotations = place / "train.jsonl"
    annotations.write_text(re.sub(r'("vid_name": "\w)', r"\1.avi", annotations.read_text()))
    with ExperimentData.open(DATA, replace(FEATURES, cache="cache"), place) as material:
        assert len(material.split("train")) > 0


def test_potentially_relevant_pairs_are_looked_up_by_query(place: Path) -> None:
    ids = [name for name, *_ in reversed(QUERIES)]
    captions = tuple(f"sentence of {name}" for name in ids)
    starts = np.array([0, 1, 1, 1, 1, 2, 2, 2])
    kept = ListedPairs(starts, np.array([6, 5], np.int32), np.array([0.75, 0.5], np.float16))
    pairs = RelevantPairs(
        tuple(ids), np.arange(7, dtype=np.int32), captions, PairSettings("vp", 0.5, "", ""), kept
    )
    pairs.save(place / "pairs.safetensors")
    with ExperimentData.open(replace(DATA, pairs="pairs.safetensors"), FEATURES, place) as material:
        batch = material.split("train").batch(np.array([6, 0, 2, 1]))
    assert batch.confidence is not None
    expected = torch.zeros(4, 4)
    expected[0, 1] = expected[1, 0] = 0.75  # q6 and q0
    expected[2, 3] = expected[3, 2] = 0.5  # q2 and q1
    torch.testing.assert_close(batch.confidence, expected)
    write_annotations(place / "train.jsonl", [*QUERIES, ("q7", "a", 0, 1)])
    write_hdf5(place / "query.h5", {**query_rows(), "q7": np.ones((1, 5))})
    refused(place, "query 'q7' is not among", data=replace(DATA, pairs="pairs.safetensors"))


def test_pairs_are_needed_only_for_the_training(place: Path) -> None:
    data = replace(DATA, test="train.jsonl", pairs="none.safetensors", positives="similar")
    with ExperimentData.open(data, FEATURES, place, splits=("test",)) as material:
        assert len(material.split("test")) == len(QUERIES)
    with pytest.raises(FormatError, match=r"none\.safetensors"):
        ExperimentData.open(data, FEATURES, place)


def test_queries_of_the_same_words_can_share_their_positives(place: Path) -> None:
    lines = [json.loads(line) for line in (place / "train.jsonl").read_text().splitlines()]
    lines[0]["desc"], lines[1]["desc"] = "A person  runs.", "a person runs"
    (place / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = {}
    for positives in ("judged", "sentence"):
        data = replace(DATA, positives=positives)
        with ExperimentData.open(data, FEATURES, place) as material:
            found[positives] = material.split("train").batch(np.array([0, 1, 3])).positives.tolist()
    assert found["judged"] == [[True, False, False], [False, True, False], [False, False, True]]
    assert found["sentence"] == [[True, True, False], [True, True, False], [False, False, True]]


def write_ranked(place: Path, moments: Sequence[tuple[str, str, float, float, float]]) -> None:
    """Write ranked.json: moments as (query, video, start, end, relevance)."""
    names = ("query_id", "query", "video_name", "timestamp", "duration", "relevance")
    rows = [(q, q, v, [start, end], VIDEOS[v], relevance) for q, v, start, end, relevance in moments]
    (place / "ranked.json").write_text(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))


def test_the_similarity_of_a_ranked_set_is_the_weight(place: Path) -> None:
    moments = [("q0", "a", 0.0, 4.0, 1.0), ("q0", "b", 2.0, 4.0, 0.25), ("q1", "c", 1.0, 3.0, 0.0)]
    write_ranked(place, moments)
    data = DataSettings(train="ranked.json", weights="relevance")
    with ExperimentData.open(data, FEATURES, place) as material:
        batch = material.split("train").batch(np.arange(2))
        found = counts(material)
    assert batch.weight is not None and batch.weight.tolist() == [1.0, 0.25]
    assert batch.positives.all(), "both videos answer the one query of the batch"
    assert found["judgements of relevance 0 are skipped"] == 1
    assert found["queries have no positive among the videos"] == 1


def test_a_query_with_all_its_windows_comes_once_for_each_of_its_videos(place: Path) -> None:
    moments = [("q0", "a", 0.0, 4.0), ("q0", "b", 2.0, 4.0), ("q0", "b", 8.0, 10.0), ("q1", "c", 1.0, 3.0)]
    write_ranked(place, [(*moment, 1.0) for moment in moments])
    data = DataSettings(train="ranked.json", batch_of="windows")
    with ExperimentData.open(data, FEATURES, place) as material:
        train = material.split("train")
        (planned,) = train.plan(8, 0, 0)
        windows = train.batch(np.sort(planned)).labels["windows"].isfinite().all(2).sum(1)
    assert np.stack([train.query, train.video])[:, np.sort(planned)].T.tolist() == [[0, 0], [0, 1], [1, 2]]
    assert windows.tolist() == [1, 2, 1]


def pseudo_pairs(place: Path) -> None:
    """A pseudo training set as it is released: similarities, and no relevance."""
    moments = [("q0", "a", 0.0, 4.0, 1.0), ("q0", "b", 2.0, 4.0, 0.25), ("q1", "c", 1.0, 3.0, -0.1)]
    queries: dict[str, list[Any]] = {}
    for query, video, start, end, similarity in moments:
        row = {"video_name": video, "timestamp": [start, end], "duration": VIDEOS[video]}
        queries.setdefault(query, []).append(row | {"caption": "…", "similarity": similarity})
    entries = [{"query_id": q, "query": q, "relevant_moment": rows} for q, rows in queries.items()]
    (place / "ranked.json").write_text(json.dumps(entries))


def test_a_released_pseudo_training_set_is_weighed_by_similarity(place: Path) -> None:
    pseudo_pairs(place)
    data = DataSettings(train="ranked.json", weights="similarity")
    with ExperimentData.open(data, FEATURES, place) as material:
        examples = material.split("train")
        batch = examples.batch(np.arange(3))
    assert batch.weight is not None and batch.weight.tolist() == [1.0, 0.25, 0.0]
    assert batch.positives.int().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


def test_a_validation_needs_no_similarities(place: Path) -> None:
    pseudo_pairs(place)
    write_annotations(place / "val.jsonl", QUERIES[5:6])
    data = DataSettings(train="ranked.json", validation="val.jsonl", weights="similarity")
    with ExperimentData.open(data, FEATURES, place) as material:
        assert material.split("train").weight is not None
        assert material.split("validation").weight is None


def test_weights_that_a_training_set_does_not_have_are_refused(place: Path) -> None:
    pseudo_pairs(place)
    refused(
        place,
        "weights is 'relevance', but every relevance is 1 and .* give weights = 'similarity'",
        data=DataSettings(train="ranked.json", weights="relevance"),
    )
    refused(
        place,
        "weights is 'similarity', but 7 judgements, such as of query 'q0', have no similarity",
        data=replace(DATA, weights="similarity"),
    )


def test_a_data_set_is_opened_by_its_name(place: Path) -> None:
    (place / "annotations").mkdir()
    (place / "train.jsonl").rename(place / "annotations" / "tvr_train_release.jsonl")
    data = DataSettings(dataset="tvr", train="train", folder=str(place / "annotations"))
    with ExperimentData.open(data, FEATURES, place) as material:
        assert len(material.split("train")) == len(QUERIES)


def test_odd_data_is_counted_and_told(place: Path) -> None:
    odd = [
        *QUERIES,
        ("past", "a", 8.0, 11.0),
        ("behind", "a", 30.0, 40.0),
        ("reversed", "b", 9.0, 3.0),
    ]
    write_annotations(place / "train.jsonl", odd)
    rows = query_rows() | {name: np.ones((2, 5)) for name in ("past", "behind", "reversed")}
    write_hdf5(place / "query.h5", rows)
    videos = video_rows()
    videos["b"] = videos["b"][:-1]
    words = {name: np.zeros((len(one), 2)) for name, one in videos.items() if name != "c"}
    write_hdf5(place / "words.h5", words)
    settings = replace(
        FEATURES, streams={"video": "video.h5", "words": "words.h5"}, optional=("words",), max_tokens=5
    )
    write_hdf5(place / "video.h5", videos)
    with ExperimentData.open(DATA, settings, place) as material:
        found, lines = counts(material), material.summary()
        assert len(material.split("train")) == len(QUERIES) + 1
        batch = material.split("train").batch(np.arange(8))
    assert not batch.videos.streams["words"].any()
    assert found == {
        "moments end after their video": 2,
        "moments end before they start": 1,
        "videos of more than 12 clips are pooled to 12": 1,
        "videos have one clip": 1,
        "videos have fewer rows than clips; their last clips are dropped": 1,
        "videos have only zeros in stream 'words'": 5,
        "queries of more than 5 tokens are cut": 4,
        "judgements without a usable moment are skipped": 1,
        "moments begin after their video's end and are skipped": 1,
        "moments end after their video and are cut there": 1,
        "queries have no positive among the videos": 2,
    }
    assert lines[0].startswith("train       8 examples of 10 queries in 5 videos")
    assert len(lines) == 1 + len(found)
    assert json.loads(json.dumps(material.to_json()))["train"]["counts"] == found


def test_one_of_a_kind_is_told_as_one(place: Path) -> None:
    write_annotations(place / "train.jsonl", [("q4", "d", 0.2, 1.1)])
    with ExperimentData.open(DATA, FEATURES, place) as material:
        lines = material.summary()
    assert lines[0] == "train       1 example of 1 query in 1 video, 1 clip"
    assert lines[1] == "            videos have one clip: 1"


def test_videos_of_which_nothing_is_read_are_counted_and_silent(place: Path) -> None:
    videos = video_rows()
    words = {name: np.zeros((len(rows), 2)) if name in "bd" else rows[:, :2] for name, rows in videos.items()}
    del words["c"]
    write_hdf5(place / "words.h5", words)
    told = "videos have only zeros in all streams and are never retrieved (scored only if given)"
    both = replace(FEATURES, streams={"video": "video.h5", "words": "words.h5"}, optional=("words",))
    with ExperimentData.open(DATA, both, place) as material:
        assert told not in counts(material)
        assert counts(material)["videos have only zeros in stream 'words'"] == 3
    write_hdf5(place / "words.h5", words | {"c": np.zeros((1, 2))})
    alone = replace(FEATURES, streams={"words": "words.h5"})
    with ExperimentData.open(DATA, alone, place) as material:
        examples = material.split("train")
        silent = examples.video_batch(range(len(examples.videos))).silent
        assert counts(material)[told] == 3
    assert silent is not None
    assert [one.id for one, is_silent in zip(examples.videos, silent, strict=True) if is_silent] == [
        "b",
        "c",
        "d",
    ]


def test_a_stream_that_no_video_has_is_zeros_and_counted(place: Path) -> None:
    write_hdf5(place / "words.h5", {"of another corpus": np.ones((3, 2))})
    both = replace(FEATURES, streams={"video": "video.h5", "words": "words.h5"}, optional=("words",))
    with ExperimentData.open(DATA, both, place) as material:
        examples = material.split("train")
        batch = examples.batch(np.arange(len(examples)))
        found = counts(material)
    assert found["videos have only zeros in stream 'words'"] == len(examples.videos) == len(VIDEOS)
    assert batch.videos.streams["words"].shape[2] == 2
    assert not batch.videos.streams["words"].any() and batch.videos.streams["video"].any()
    config = config_of(
        "xml", {"streams": {"video": 6, "words": 2}, "query_width": 5, "hidden": 8, "heads": 2}
    )
    losses = new_model("xml", config).loss(batch)
    assert all(loss.isfinite() for loss in losses.values())
    alone = replace(FEATURES, streams={"words": "words.h5"}, optional=("words",))
    refused(place, "video 'a' of train is in none of the feature files .and 4 more", features=alone)


def test_rows_of_the_named_streams_alone_are_brought_to_unit_length(place: Path) -> None:
    write_hdf5(place / "words.h5", {name: 3 * rows[:, :2] for name, rows in video_rows().items()})
    both = replace(FEATURES, streams={"video": "video.h5", "words": "words.h5"})
    for normalise, unit in ((True, {"video", "words"}), (False, set()), (("words",), {"words"})):
        with ExperimentData.open(DATA, replace(both, normalise=normalise), place) as material:
            videos = material.split("train").video_batch([1])
            told = material.inputs.streams
        assert {name for name, one in told.items() if one.normalise} == unit
        for name, rows in videos.streams.items():
            lengths = rows[0].norm(dim=1)
            assert torch.allclose(lengths, torch.ones(()), atol=1e-4) == (name in unit)


def test_queries_without_words_are_counted(place: Path) -> None:
    write_annotations(place / "train.jsonl")
    lines = [json.loads(line) for line in (place / "train.jsonl").read_text().splitlines()]
    lines[2]["desc"], lines[4]["desc"] = "", "  "
    (place / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with ExperimentData.open(DATA, FEATURES, place) as material:
        found = counts(material)
    assert found["queries have no text in the annotations; their features are used"] == 2


def test_a_video_without_any_time_is_named_with_its_file_and_the_remedy(place: Path) -> None:
    write_annotations(place / "train.jsonl")
    lines = [json.loads(line) for line in (place / "train.jsonl").read_text().splitlines()]
    for line in lines:
        line["duration"] = 0 if line["vid_name"] == "b" else line["duration"]
    (place / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    refused(
        place,
        r"train\.jsonl: the duration of 1 of 5 videos is 0, such as 'b'; expected seconds above 0. If a "
        "duration is unknown, leave it out",
    )


def refused(
    place: Path,
    told: str,
    kind: type[WhenaboutsError] = UsageError,
    data: DataSettings = DATA,
    features: FeatureSettings = FEATURES,
    inputs: Inputs | None = None,
) -> None:
    with pytest.raises(kind, match=told):
        ExperimentData.open(data, features, place, inputs=inputs)


def test_queries_that_name_no_video_are_refused(place: Path) -> None:
    (place / "train.jsonl").write_text('{"desc": "words", "desc_id": "q0"}\n')
    refused(place, r"data\.train = 'train\.jsonl': names no video, so there is nothing to search; name the")


def test_missing_features_are_named(place: Path) -> None:
    videos, queries = video_rows(), query_rows()
    del videos["c"]
    write_hdf5(place / "video.h5", videos)
    refused(place, r"video.h5: has no features for 1 of the 5 videos of train, such as 'c'; it holds 4 items")
    refused(place, r"; if videos may lack it, set features\.optional=\['video'\]$")
    write_hdf5(place / "video.h5", video_rows())
    del queries["q1"], queries["q4"]
    write_hdf5(place / "query.h5", queries)
    refused(place, r"query.h5: has no features for 2 of the 7 queries of train, such as 'q1', 'q4'; [^;]*$")


def test_a_row_of_another_width_is_named(place: Path) -> None:
    write_hdf5(place / "video.h5", {**video_rows(), "d": np.ones((1, 7))})
    refused(place, r"video.h5.*item 'd'.*is 7 wide.*first item, 6", FormatError)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("memory", [0, 4096])
def test_rows_that_are_not_finite_are_named_before_the_first_step(
    place: Path, value: float, memory: int
) -> None:
    videos = video_rows()
    videos["c"][4, 2] = value
    write_hdf5(place / "video.h5", videos)
    settings = replace(FEATURES, memory_mb=memory)
    refused(
        place,
        r"video.h5.*item 'c'.*1 of 7 rows are not finite, the first is row 4",
        FormatError,
        features=settings,
    )


@pytest.mark.parametrize("share", [0.1, 0.5, 0.98])
@pytest.mark.parametrize("name", ["video.h5", "query.h5"])
def test_a_feature_file_that_is_cut_off_is_named(place: Path, name: str, share: float) -> None:
    path = place / name
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    refused(place, rf"{name}.*(cut off|not a complete HDF5 file|damaged).*fetch", FormatError)


def test_a_store_that_is_cut_off_is_named(place: Path) -> None:
    write_store(place / "store", video_rows().items(), Fingerprint())
    path = place / "store" / "features.npy"
    path.write_bytes(path.read_bytes()[:-50])
    refused(
        place, "features.npy.*cut off", FormatError, features=replace(FEATURES, streams={"video": "store"})
    )


def two_splits(place: Path, **test_facts: Any) -> tuple[DataSettings, FeatureSettings]:
    """Files of their own for train and test."""
    write_annotations(place / "test.jsonl", QUERIES[:2])
    write_hdf5(place / "video_train.h5", video_rows(), encoder="clip", frame_rate=2.0)
    write_hdf5(place / "video_test.h5", video_rows(), **test_facts)
    return replace(DATA, test="test.jsonl"), replace(FEATURES, streams={"video": "video_{split}.h5"})


def test_splits_may_have_feature_files_of_their_own(place: Path) -> None:
    data, features = two_splits(place, encoder="clip", frame_rate=2.0)
    with ExperimentData.open(data, features, place) as material:
        assert list(material.to_json()) == ["train", "test"]
        assert len(material.split("test").videos) == 2
        assert material.inputs.streams["video"].encoder == "clip"
    with pytest.raises(UsageError, match="names no 'validation'; it names train, test"):
        material.split("validation")


def test_splits_made_by_different_encoders_are_refused(place: Path) -> None:
    data, features = two_splits(place, encoder="slowfast", frame_rate=2.0)
    told = r"video_train.h5 and .*video_test.h5 were not made.*encoder: clip in .*slowfast in"
    refused(place, told, FeatureMismatch, data, features)
    data, features = two_splits(place, encoder="clip", frame_rate=3.0)
    refused(place, "frame rate: 2 in .*, 3 in", FeatureMismatch, data, features)


def test_features_of_another_encoder_than_the_checkpoints_are_refused(place: Path) -> None:
    write_hdf5(place / "video.h5", video_rows(), encoder="clip", weights_sha256="a" * 64)
    with ExperimentData.open(DATA, FEATURES, place) as material:
        inputs = material.inputs
    with ExperimentData.open(DATA, replace(FEATURES, max_clips=50), place, inputs=inputs) as again:
        assert again.inputs is inputs and again.split("train").clips.max() == 12
    write_hdf5(place / "video.h5", video_rows(), encoder="slowfast")
    refused(place, "the checkpoint and .*encoder: clip in .*slowfast", FeatureMismatch, inputs=inputs)
    write_hdf5(place / "video.h5", video_rows(), encoder="clip", weights_sha256="b" * 64)
    refused(place, "weights sha256: aaa", FeatureMismatch, inputs=inputs)
    write_hdf5(place / "video.h5", video_rows(9), encoder="clip")
    refused(place, r"stream 'video' are 9 wide; the checkpoint expects 6 \(clip\)", inputs=inputs)
    other = replace(FEATURES, streams={"video": "video.h5", "words": "video.h5"})
    refused(place, "streams. are video, words; the checkpoint expects video", features=other, inputs=inputs)


def test_a_checkpoint_of_another_clip_length_is_refused(place: Path) -> None:
    (place / "video.h5").rename(place / "video_cl-2.h5")
    settings = replace(FEATURES, streams={"video": "video_cl-2.h5"}, clip_seconds=None)
    with ExperimentData.open(DATA, settings, place) as material:
        inputs = replace(material.inputs, clip_seconds=3.0)
    refused(place, "its clips are 2 s long, .* says 3 s", features=settings, inputs=inputs)


def test_an_id_with_two_sentences_is_refused(place: Path) -> None:
    write_annotations(place / "test.jsonl", QUERIES[:2])
    text = (place / "test.jsonl").read_text().replace("sentence of q1", "another one")
    (place / "test.jsonl").write_text(text)
    told = "query 'q1' is 'sentence of q1' in train and 'another one' in test; give them different ids"
    refused(place, told, data=replace(DATA, test="test.jsonl"))


def test_an_id_that_comes_twice_in_a_file_is_left_out_and_counted(place: Path) -> None:
    line = json.loads((place / "train.jsonl").read_text().splitlines()[0])
    with (place / "train.jsonl").open("a") as stream:
        stream.write(json.dumps({**line, "desc": "other words"}) + "\n")
    with ExperimentData.open(DATA, FEATURES, place) as material:
        assert counts(material)["query ids come twice"] == 1
        assert len(material.split("train")) == len(QUERIES)


def test_clip_lengths_that_are_unknown_or_wrong_are_named(place: Path) -> None:
    refused(
        place,
        "video.h5: the files do not say how many seconds a row covers.*clip_seconds",
        features=replace(FEATURES, clip_seconds=None),
    )
    refused(
        place,
        r"the median of 5 videos has 1 row for 2 clips.*is clip_seconds right",
        features=replace(FEATURES, clip_seconds=1.0),
    )
    refused(
        place,
        r"video 'b'.*10 rows for 5 clips of 4 s in 20 s",
        features=replace(FEATURES, clip_seconds=4.0),
    )


def test_streams_on_different_grids_are_named(place: Path) -> None:
    words = {name: np.ones((max(1, len(one) // 2), 2)) for name, one in video_rows().items()}
    write_hdf5(place / "words.h5", words)
    settings = replace(FEATURES, streams={"video": "video.h5", "words": "words.h5"})
    told = r"video 'a': has 5 rows in stream 'video' and 2 in 'words' \(and 3 more .* with `on_grid`"
    refused(place, told, features=settings)


def test_a_video_without_features_anywhere_is_named(place: Path) -> None:
    videos = video_rows()
    del videos["c"]
    write_hdf5(place / "video.h5", videos)
    settings = replace(FEATURES, optional=("video",))
    refused(place, "video 'c' of train is in none of the feature files", features=settings)


def test_a_training_set_without_examples_is_refused(place: Path) -> None:
    write_annotations(place / "train.jsonl", [("q0", "a", 5.0, 5.0)])
    refused(place, r"train.jsonl: has no example to train on \(1 moments have no length; ")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"query": ""}, "names no query"),
        ({"streams": {}}, "is empty"),
        ({"streams": {"video": "nothing.h5"}}, "nothing.h5.*No such file"),
        ({"query": "train.jsonl"}, "train.jsonl.*no known layout"),
    ],
)
def test_settings_that_name_nothing_are_refused(place: Path, change: dict[str, Any], told: str) -> None:
    refused(place, told, WhenaboutsError, features=replace(FEATURES, **change))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: FeatureSettings(optional=("sound",)), "optional names the stream 'sound'; there are none"),
        (lambda: converted({"memory_mb": -1}, FeatureSettings, ""), "memory_mb is -1; accepted: megabytes"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        make()


def test_folders_and_files_that_are_not_there_are_named(place: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: not a folder"):
        ExperimentData.open(DATA, FEATURES, place / "nowhere")
    refused(place, r"missing.jsonl.*No such file", WhenaboutsError, data=DataSettings(train="missing.jsonl"))
    refused(place, r"\[data\] names no judgements for train or validation or test", data=DataSettings())


def test_closing_gives_back_the_files(place: Path) -> None:
    with ExperimentData.open(DATA, FEATURES, place) as material:
        source = material.split("train")._streams["video"].cached.source
    with pytest.raises(UsageError, match="are closed"):
        source.get("a")
    with open_features(place / "video.h5") as again:
        assert len(again) == len(VIDEOS)
