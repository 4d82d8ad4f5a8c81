"""Simulated clips: what is shown where, and that it depends on nothing but the seed and the video."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.simulated_features import (
    Appearance,
    Captions,
    Settings,
    Simulator,
    _splits,
    fewer_videos,
    is_held_out,
    rank_correlation,
    some_videos,
)
from benchmarks.simulated_moments import Moment, moments_of
from numpy.typing import NDArray

from whenabouts_bench.formats import write_annotations
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations

TEXTS = [f"somebody does {number}" for number in range(30)]
QUIET = Settings(
    clip_seconds=2, width=64, hidden=64, step=0, faint_moments=0, strangers=0, context=0, border=0, leak=0
)


class Encoder:
    """Vectors drawn from a text's letters."""

    name, dimension = "made", 16

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [np.random.default_rng([self.seed, *text.encode()]).standard_normal(16) for text in texts]
        return np.array(rows, np.float32)


@pytest.fixture(scope="module")
def captions() -> Captions:
    return Captions(Encoder(), TEXTS)  # type: ignore[arg-type]


def simulator(captions: Captions, **changed: float) -> Simulator:
    settings = Settings(**{**{name: getattr(QUIET, name) for name in QUIET.__dataclass_fields__}, **changed})
    return Simulator(captions, Appearance(captions, settings), settings)


def test_captions_are_centred_and_of_length_one_in_the_mean(captions: Captions) -> None:
    np.testing.assert_allclose(captions.vectors.mean(0), 0, atol=1e-7)
    assert np.linalg.norm(captions.vectors, axis=1).mean() == pytest.approx(1)


def test_clips_of_a_moment_show_its_caption_and_others_do_not(captions: Captions) -> None:
    made = simulator(captions, noise=0.0, scene=0.0, spoken=1.0)
    seen = made.video("v", 20, [Moment(TEXTS[3], 4, 8)], []).seen
    image = made.appearance(captions[TEXTS[3]])
    assert seen.shape == (10, 64)
    assert np.corrcoef(seen[2], image)[0, 1] == pytest.approx(1)
    np.testing.assert_allclose(seen[[0, 1, 4, 9]], 0)


def test_a_video_does_not_depend_on_what_was_simulated_before(captions: Captions) -> None:
    made = simulator(captions, strangers=1.0)
    moments, others = [Moment(TEXTS[0], 0, 5)], [("w", text) for text in TEXTS[5:]]
    first = made.video("v", 31, moments, others)
    made.video("w", 9, moments, others)
    again = made.video("v", 31, moments, others)
    np.testing.assert_array_equal(first.seen, again.seen)
    np.testing.assert_array_equal(first.said, again.said)
    other = simulator(captions, strangers=1.0, seed=1).video("v", 31, moments, others)
    assert not np.allclose(first.seen, other.seen)


def test_strangers_are_shown_only_where_no_moment_is_and_never_of_the_same_video(captions: Captions) -> None:
    made = simulator(captions, noise=0.0, scene=0.0, strangers=1.0)
    moments = [Moment(TEXTS[3], 4, 8)]
    alone = made.video("v", 20, moments, [("v", TEXTS[9])]).seen
    np.testing.assert_allclose(alone[[0, 1, 4, 9]], 0)
    seen = made.video("v", 20, moments, [("w", TEXTS[9])]).seen
    image = made.appearance(captions[TEXTS[9]])
    for clip in (0, 1, 4, 5, 9):
        assert np.corrcoef(seen[clip], image)[0, 1] == pytest.approx(1)
    np.testing.assert_allclose(seen[2:4], alone[2:4])


def test_clips_leak_into_their_neighbours_and_keep_what_they_share(captions: Captions) -> None:
    seen = simulator(captions, noise=0.0, scene=0.0, leak=0.25).video("v", 20, [Moment(TEXTS[3], 4, 8)], [])
    image = Appearance(captions, QUIET)(captions[TEXTS[3]])
    expected = np.outer([0, 0.25, 0.75, 0.75, 0.25, 0, 0, 0, 0, 0], image)
    expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True) / 8, 1)
    np.testing.assert_allclose(seen.seen, expected, atol=1e-12)


def test_a_faint_moment_shows_a_part_and_the_content_lies_under_all_clips(captions: Captions) -> None:
    made = simulator(captions, noise=0.0, scene=0.0, faint_moments=1.0, faint=0.2, context=0.5)
    seen = made.video("v", 20, [Moment(TEXTS[3], 4, 8)], []).seen
    image = made.appearance(captions[TEXTS[3]])
    np.testing.assert_allclose(seen[[0, 9]], np.stack([0.1 * image] * 2))
    np.testing.assert_allclose(seen[2], 0.3 * image)


def test_borders_are_off_by_a_share_of_the_moment(captions: Captions) -> None:
    made, random = simulator(captions, border=0.2), np.random.default_rng(0)
    found = np.array([made._borders(Moment(TEXTS[3], 100, 150), random) for _ in range(1000)])
    np.testing.assert_allclose(found.mean(0), [100, 150], atol=2)
    np.testing.assert_allclose(found.std(0), [10, 10], rtol=0.1)


def test_clips_with_scene_and_noise_are_of_deviation_one(captions: Captions) -> None:
    made = simulator(captions, noise=2.0, scene=1.0)
    assert made.video("v", 600, [Moment(TEXTS[3], 0, 600)], []).seen.std() == pytest.approx(1, rel=0.1)


def test_what_is_said_stands_in_the_moment_and_is_zero_elsewhere(captions: Captions) -> None:
    said = simulator(captions, spoken=1.0).video("v", 60, [Moment(TEXTS[3], 10, 50)], []).said
    spoken = np.flatnonzero(np.abs(said).sum(1))
    assert 8 <= len(spoken) <= 20
    assert spoken.min() >= 5
    assert spoken.max() < 25


def annotated(prefix: str) -> Annotations:
    builder = AnnotationBuilder("made")
    for number in range(300):
        builder.add_video(f"{prefix}{number}", 30)
        builder.add_query(f"q{prefix}{number}", f"text {number}")
        builder.judge(f"q{prefix}{number}", f"{prefix}{number}", 1, 5)
    return builder.annotations()


def test_held_out_videos_are_about_a_tenth_and_no_query_is_in_both_parts() -> None:
    whole = annotated("v")
    val = some_videos(whole, "val", is_held_out)
    train = some_videos(whole, "train", lambda video: not is_held_out(video))
    assert len(train.videos) + len(val.videos) == 300
    assert 15 <= len(val.videos) <= 45
    assert all(is_held_out(video.id) for video in val.videos)
    assert {query.id for query in train.queries}.isdisjoint(query.id for query in val.queries)
    assert moments_of(val)[val.videos[0].id] == [Moment(val.queries[0].text, 1, 5)]
    fewer, fewest = (fewer_videos(whole, count) for count in (100, 20))
    assert (len(fewer.videos), len(fewest.queries)) == (100, 20)
    assert {video.id for video in fewest.videos} < {video.id for video in fewer.videos}
    assert 2 <= len(some_videos(fewer, "val", is_held_out).videos) <= 25
    assert fewer_videos(whole, None) is whole


def test_a_model_agrees_with_itself_and_not_with_a_stranger(captions: Captions) -> None:
    assert rank_correlation(captions, Encoder(), 20) > 0.8  # type: ignore[arg-type]  # not centred there
    assert abs(rank_correlation(captions, Encoder(7), 20)) < 0.3  # type: ignore[arg-type]


def test_another_data_set_is_trained_on_and_held_out_as_the_first_is(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.jsonl" for name in "abcd"}
    for name, file in files.items():
        write_annotations(annotated(name), file, "tvr")
    others = {"also": [f"other_test={files['d']}"], "also_train": [f"other={files['c']}"]}
    sizes = {"videos": 200, "test_videos": 50}
    shares = {"held_out": 0.1, "tested": 0.0}
    made = _splits(Namespace(train=files["a"], val=None, test=files["b"], **shares, **others, **sizes))
    assert set(made) == {"train", "val", "other_train", "other_val", "test", "other_test"}
    assert len(made["test"].videos) == len(made["other_test"].videos) == 50
    for prefix in ("", "other_"):
        parts = [made[f"{prefix}{part}"].videos for part in ("train", "val")]
        assert sum(map(len, parts)) == 200
        assert [is_held_out(video.id) for own in parts for video in own] == [False] * len(parts[0]) + [
            True
        ] * len(parts[1])


def test_a_share_of_one_file_is_tested_on(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    write_annotations(annotated("a"), file, "tvr")
    none: dict[str, Any] = {
        "val": None,
        "test": None,
        "also": [],
        "also_train": [],
        "videos": None,
        "test_videos": None,
    }
    made = _splits(Namespace(train=file, held_out=0.15, tested=0.25, **none))
    names = {split: {video.id for video in own.videos} for split, own in made.items()}
    every = set.union(*names.values())
    assert sum(map(len, names.values())) == len(every) == len(annotated("a").videos)
    assert len(names["test"]) == pytest.approx(0.25 * len(every), rel=0.3)
    assert len(names["val"]) == pytest.approx(0.15 * len(every), rel=0.4)
