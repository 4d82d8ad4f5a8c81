"""What each data set's files mean, on small files whose content is known."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from whenabouts.intake.files import FormatError
from whenabouts_bench.datasets import Dataset, open_dataset
from whenabouts_bench.datasets.tvr import CORPUS

Release = Callable[[str], Path]
Moments = list[tuple[str, float, float, float]]


def moments_of(dataset: Dataset, split: str, query_id: str) -> Moments:
    """(video, start, end, relevance) of a query."""
    judged = dataset.annotations(split).qrels[query_id]
    return [(j.moment.video_id, j.moment.start, j.moment.end, j.relevance) for j in judged]


def test_tvr_has_its_moment_its_type_and_all_videos_of_the_split(release: Release) -> None:
    dataset = open_dataset("tvr", release("tvr"))
    val = dataset.annotations("val")
    assert [query.id for query in val.queries] == [str(100 + i) for i in range(12)]
    assert val.queries[1].text == "val says thing 1."
    assert val.queries[1].metadata["type"] == "t"
    assert moments_of(dataset, "val", "101") == [("val_s01e01_seg02_clip_01", 3.0, 7.5, 1.0)]
    # The third video has no query, but is searched.
    assert {video.id: video.duration for video in val.videos} == {
        f"val_s01e0{i}_seg02_clip_01": 60.5 + i for i in range(3)
    }


def test_the_public_test_of_tvr_has_queries_and_the_videos_to_search(release: Release) -> None:
    test = open_dataset("tvr", release("tvr")).annotations("test_public")
    assert len(test.queries) == 12
    assert len(test.videos) == 3
    assert len(test.query) == 0


def test_a_list_of_videos_without_the_split_is_an_error(release: Release, tmp_path: Path) -> None:
    source = release("tvr") / "data" / "tvr_val_release.jsonl"
    (tmp_path / source.name).write_bytes(source.read_bytes())
    (tmp_path / CORPUS).write_text(json.dumps({"train": {}}))
    with pytest.raises(
        FormatError, match=r"val: is missing \(found: 'train'\); accepted: an object, split -> "
    ):
        open_dataset("tvr", tmp_path).annotations("val")


@pytest.mark.parametrize("row", ["60", [], ["long", 0], [-1, 0], [None, 0]])
def test_a_list_of_videos_without_lengths_is_an_error(release: Release, tmp_path: Path, row: object) -> None:
    source = release("tvr") / "data" / "tvr_val_release.jsonl"
    (tmp_path / source.name).write_bytes(source.read_bytes())
    (tmp_path / f"{CORPUS}.gz").write_bytes(gzip.compress(json.dumps({"val": {"a": row}}).encode()))
    with pytest.raises(FormatError, match=r"val\.a(\[0\])?: .*accepted: \[seconds, index\]"):
        open_dataset("tvr", tmp_path).annotations("val")


def test_tvr_ranking_has_grades_and_the_whole_corpus(release: Release) -> None:
    dataset = open_dataset("tvr-ranking", release("tvr-ranking"))
    assert moments_of(dataset, "val", "1") == [
        (f"show_clip_0{k}", 2.0 * k, 2.0 * k + 3, float(k)) for k in range(5)
    ]
    for split in dataset.splits:
        assert len(dataset.annotations(split).videos) == 9
    card = dataset.card("val")
    assert card.numbers.judgements == 15
    assert card.numbers.relevant_per_query == 4.0, "grade 0 is a judgement and no relevant moment"
    assert card.numbers.judged_videos == 5


def test_the_pseudo_training_sets_of_tvr_ranking_have_similarities_and_no_grades(release: Release) -> None:
    train = open_dataset("tvr-ranking", release("tvr-ranking")).annotations("train_top20")
    assert train.relevance.tolist() == [1.0] * 12
    assert train.similarity is not None and train.similarity.tolist() == [0.9] * 12


def test_tvr_ranking_without_its_corpus_has_the_judged_videos(release: Release, tmp_path: Path) -> None:
    (tmp_path / "val.json").write_bytes((release("tvr-ranking") / "val.json").read_bytes())
    assert len(open_dataset("tvr-ranking", tmp_path).annotations("val").videos) == 5


def test_charades_sta_is_read_from_text_with_lengths_from_the_csv_beside_it(release: Release) -> None:
    dataset = open_dataset("charades-sta", release("charades-sta"))
    assert dataset.file("train").file.format == "2d-tan"
    assert dataset.file("test").file.format == "charades"
    test = dataset.annotations("test")
    assert {video.id: video.duration for video in test.videos} == {f"TST0{i}": 20.5 + i for i in range(4)}
    assert moments_of(dataset, "test", "TST01#2") == [("TST01", 9.0, 13.5, 1.0)]


def test_moments_after_the_end_are_cut_there_and_counted(release: Release) -> None:
    dataset = open_dataset("charades-sta", release("charades-sta"))
    assert moments_of(dataset, "train", "TRN00#1") == [("TRN00", 2.0, 30.0, 1.0)]
    assert dataset.card("train").rules == {"moments end after their video": 6}


def test_empty_and_reversed_moments_keep_their_query_and_lose_their_span(release: Release) -> None:
    dataset = open_dataset("activitynet-captions", release("activitynet-captions"))
    train = dataset.annotations("train")
    assert {"v_train_00000#0", "v_train_00000#1"} <= {query.id for query in train.queries}
    assert len(train.query) == len(train.queries)
    assert moments_of(dataset, "train", "v_train_00000#0") == []
    assert moments_of(dataset, "train", "v_train_00000#1") == []
    assert dict(train.counts) == {"moments have no length": 1, "moments end before they start": 1}


def test_both_names_of_an_activitynet_split_are_read(release: Release, tmp_path: Path) -> None:
    source = release("activitynet-captions")
    (tmp_path / "test.json").write_bytes((source / "val_2.json").read_bytes())
    (tmp_path / "val.json").write_bytes(gzip.decompress((source / "val_1.json.gz").read_bytes()))
    renamed = open_dataset("activitynet-captions", tmp_path)
    assert renamed.splits == ("val_1", "val_2")
    first = open_dataset("activitynet-captions", source)
    assert renamed.annotations("val_2").queries == first.annotations("val_2").queries
    assert renamed.annotations("val_1").queries == first.annotations("val_1").queries


def test_times_of_tacos_are_frames_in_the_file_and_seconds_here(release: Release) -> None:
    dataset = open_dataset("tacos", release("tacos"))
    test = dataset.annotations("test")
    assert test.videos[0].duration == pytest.approx(100.0)
    [(video_id, start, end, _)] = moments_of(dataset, "test", "s30-d21.avi#0")
    assert video_id == "s30-d21.avi"
    assert (start, end) == pytest.approx((4.79592, 12.04082))
    [(_, start, end, _)] = moments_of(dataset, "test", "s30-d21.avi#1")
    assert end == test.videos[0].duration, "it ended 6 frames after its video"
    # A moment entirely after the end has no usable span.
    assert moments_of(dataset, "test", "s30-d21.avi#2") == []
    assert dict(test.counts) == {"moments end after their video": 8, "moments have no length": 4}


def test_didemo_takes_what_two_annotators_agree_on(release: Release) -> None:
    dataset = open_dataset("didemo", release("didemo"))
    val = dataset.annotations("val")
    assert moments_of(dataset, "val", "100") == [("7@N00_val", 20.0, 30.0, 1.0)]
    # Two agree on one segment and two on three: both are true, each once.
    assert moments_of(dataset, "val", "109") == [("7@N04_val", 5.0, 10.0, 1.0), ("7@N04_val", 0.0, 15.0, 1.0)]
    assert len(val.videos) == 5, "a video under two file names is one video"
    assert dict(val.counts) == {"videos have two file names": 3}
    assert val.queries[1].metadata["annotated"] == ((20.0, 30.0), (20.0, 30.0), (20.0, 30.0), (5.0, 30.0))


def test_qvhighlights_has_several_moments_a_query_and_saliency_scores(release: Release) -> None:
    dataset = open_dataset("qvhighlights", release("qvhighlights"))
    val = dataset.annotations("val")
    assert moments_of(dataset, "val", "103") == [
        ("val_yt_3.0_150.0", 6.0, 16.0, 1.0),
        ("val_yt_3.0_150.0", 100.0, 110.0, 1.0),
    ]
    assert val.queries[3].metadata["relevant_clip_ids"] is not None
    assert val.queries[3].metadata["saliency_scores"] is not None
    assert dataset.card("val").numbers.relevant_per_query == 2.0


def test_pools_have_their_own_moment_first_then_those_of_other_videos(release: Release) -> None:
    dataset = open_dataset("mvmr-charades-sta", release("mvmr-charades-sta"))
    test = dataset.annotations("test")
    assert moments_of(dataset, "test", "MV003#0") == [("MV003", 1.0, 5.0, 1.0), ("MV004", 1.0, 5.0, 1.0)]
    assert test.pools["MV003#0"][0] == "MV003"
    assert len(test.pools["MV003#0"]) == 50
    card = dataset.card("test")
    assert card.numbers.queries == 100
    assert card.numbers.full_pools == 50
    assert card.numbers.relevant_per_query == 2.0, "over the queries whose pool is full"


def test_pools_of_tacos_have_all_their_times_in_seconds(release: Release) -> None:
    dataset = open_dataset("mvmr-tacos", release("mvmr-tacos"))
    [own, other] = moments_of(dataset, "test", "s30-d21.avi#0")
    assert (own[0], other[0]) == ("s30-d21.avi", "s30-d22.avi")
    assert own[1:3] == pytest.approx((10.0, 20.0))
    assert other[1:3] == pytest.approx((10.0, 20.0))


def test_repeated_queries_are_kept_and_counted(tmp_path: Path) -> None:
    record = {"fps": 29.4, "num_frames": 2940, "sentences": ["He cuts", " He cuts", "He cuts"]}
    videos = {"s30-d21.avi": {**record, "timestamps": [[1, 20], [1, 20], [2, 20]]}}
    (tmp_path / "test.json").write_text(json.dumps(videos))
    card = open_dataset("tacos", tmp_path).card("test")
    assert card.numbers.queries == 3
    assert card.repeated_queries == 1
