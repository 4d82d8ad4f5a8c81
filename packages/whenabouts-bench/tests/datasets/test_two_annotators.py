"""ActivityNet's two annotators: queries are one person's, the words of videos another's, by fixed splits."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.datasets.conftest import Release, seconds, write_json

from whenabouts_bench.datasets import open_dataset
from whenabouts_bench.datasets.activitynet_two_annotators import (
    SHARES,
    WORDS_FILE,
    split_of,
    write_two_annotators,
)
from whenabouts_bench.formats.sentences import read_sentences


def test_queries_are_the_second_persons_and_words_the_first_ones(release: Release) -> None:
    folder = release("activitynet-two-annotators")
    dataset, said = open_dataset("activitynet-two-annotators", folder), read_sentences(folder / WORDS_FILE)
    for split in dataset.splits:
        annotations = dataset.annotations(split)
        assert annotations.videos and all(split_of(video.id) == split for video in annotations.videos)
        assert all(query.text.startswith("second person") for query in annotations.queries)
        for video in annotations.videos:
            assert [sentence.text for sentence in said[video.id]] == [
                "first person does thing 0",
                "first person does thing 1",
            ]
            assert [(one.start, one.end) for one in said[video.id]] == [(0.0, 9.0), (8.0, 20.0)]


def test_a_video_that_only_one_person_described_is_left_out(tmp_path: Path) -> None:
    write_json(tmp_path / "val_1.json", {"v_aaaaaaaaaaa": seconds((0, 5)), "v_bbbbbbbbbbb": seconds((0, 5))})
    write_json(tmp_path / "val_2.json", {"v_bbbbbbbbbbb": seconds((1, 4)), "v_ccccccccccc": seconds((0, 5))})
    both = open_dataset("activitynet-captions", tmp_path)
    made = write_two_annotators(both.annotations("val_2"), both.annotations("val_1"), tmp_path / "out")
    assert [video.id for split in made.values() for video in split.videos] == ["v_bbbbbbbbbbb"]
    assert list(read_sentences(tmp_path / "out" / WORDS_FILE)) == ["v_bbbbbbbbbbb"]


def test_moments_without_length_are_neither_queries_nor_words(tmp_path: Path) -> None:
    write_json(tmp_path / "val_1.json", {"v_bbbbbbbbbbb": seconds((0, 5), (7, 7), about="first")})
    write_json(tmp_path / "val_2.json", {"v_bbbbbbbbbbb": seconds((4, 4), (1, 4), about="second")})
    both = open_dataset("activitynet-captions", tmp_path)
    made = write_two_annotators(both.annotations("val_2"), both.annotations("val_1"), tmp_path / "out")
    texts = [query.text for split in made.values() for query in split.queries]
    assert texts == ["second person does thing 1"]
    (said,) = read_sentences(tmp_path / "out" / WORDS_FILE).values()
    assert [sentence.text for sentence in said] == ["first person does thing 0"]


def test_the_split_of_a_video_is_that_of_its_hash_and_shares_are_as_told() -> None:
    assert [split_of(f"v_{name}") for name in ("uqiMw7tQ1Cc", "HWV_ccmZVPA", "4Lu8ECLHvK4")] == [
        "train",
        "val",
        "test",
    ]
    splits = [split_of(f"v_{number}") for number in range(5000)]
    assert SHARES == {"train": 0.6, "val": 0.1, "test": 0.3}
    for name, share in SHARES.items():
        assert splits.count(name) / 5000 == pytest.approx(share, abs=0.03)
