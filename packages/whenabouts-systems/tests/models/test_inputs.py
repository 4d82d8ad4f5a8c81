"""Features become batches: sizes, times, unit length, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.golden_folder import cases, golden_folder

from whenabouts.types import UsageError
from whenabouts_systems.features.resample import average_to_length
from whenabouts_systems.models.inputs import Inputs, StreamInput, endpoint_features

WIDTH = 4


def inputs(**settings: Any) -> Inputs:
    return Inputs(StreamInput(3), {"video": StreamInput(WIDTH)}, **settings)


def rows(count: int, width: int = WIDTH, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def plain(**settings: Any) -> Inputs:
    """Inputs that leave rows as they are."""
    return Inputs(StreamInput(3, False), {"video": StreamInput(WIDTH, False)}, **settings)


def test_rows_become_unit_vectors_and_padding_is_zero() -> None:
    batch = inputs().clips([{"video": rows(2)}, {"video": rows(5)}])
    assert batch.streams["video"].shape == (2, 5, WIDTH)
    assert batch.mask.tolist() == [[True, True, False, False, False], [True] * 5]
    lengths = batch.streams["video"].norm(dim=-1)
    torch.testing.assert_close(lengths[batch.mask], torch.ones(7), atol=1e-4, rtol=0)
    assert not batch.streams["video"][~batch.mask].any()


def test_a_row_of_zeros_stays_zero() -> None:
    video = rows(3)
    video[1] = 0
    found = inputs().clips([{"video": video}]).streams["video"][0]
    assert not found[1].any() and found[0].any() and found[2].any()


def test_float16_rows_whose_squares_overflow_are_fine() -> None:
    video = np.full((1, WIDTH), 60000, np.float16)
    found = inputs().clips([{"video": video}]).streams["video"][0]
    torch.testing.assert_close(found, torch.full((1, WIDTH), 0.5))


def test_what_was_given_is_not_changed() -> None:
    video, tokens = rows(3), rows(2, 3)
    kept = video.copy(), tokens.copy()
    inputs(tef=True).clips([{"video": video}])
    inputs().queries([tokens])
    np.testing.assert_array_equal(video, kept[0])
    np.testing.assert_array_equal(tokens, kept[1])


@pytest.mark.parametrize("long_videos", ["pool", "cut", "pool-as-released"])
@pytest.mark.parametrize("tef", [False, True])
def test_batch_mates_do_not_move_a_video(long_videos: Any, tef: bool) -> None:
    made = inputs(max_clips=6, long_videos=long_videos, tef=tef)
    videos = [{"video": rows(count, seed=count)} for count in (1, 4, 6, 7, 20)]
    together = made.clips(videos)
    for at, video in enumerate(videos):
        alone = made.clips([video])
        count = int(alone.mask.sum())
        assert int(together.mask[at].sum()) == count
        torch.testing.assert_close(
            together.streams["video"][at, :count], alone.streams["video"][0], atol=0, rtol=0
        )


def test_endpoint_features_are_shares_of_the_real_clips_and_come_last() -> None:
    batch = inputs(tef=True).clips([{"video": rows(2)}, {"video": rows(4)}])
    assert batch.streams["video"].shape == (2, 4, WIDTH + 2)
    tef = batch.streams["video"][..., WIDTH:]
    assert tef[0].tolist() == [[0, 0.5], [0.5, 1], [0, 0], [0, 0]]
    assert tef[1].tolist() == [[0, 0.25], [0.25, 0.5], [0.5, 0.75], [0.75, 1]]


def test_a_stream_that_a_video_lacks_is_zero_but_keeps_its_place_in_time() -> None:
    made = Inputs(StreamInput(3), {"video": StreamInput(WIDTH), "subtitle": StreamInput(2)}, tef=True)
    batch = made.clips([{"video": rows(3)}, {"video": rows(3), "subtitle": rows(2, 2)}])
    words = batch.streams["subtitle"]
    assert not words[0, :, :2].any() and not words[1, 2, :2].any() and words[1, :2, :2].any()
    torch.testing.assert_close(words[..., 2:], batch.streams["video"][..., WIDTH:])


@given(count=st.integers(1, 300), most=st.integers(1, 40))
def test_pooling_counts_every_row_once_and_keeps_times_right(count: int, most: int) -> None:
    made = plain(max_clips=most, clip_seconds=1.5)
    numbers = np.repeat(np.arange(count, dtype=np.float32)[:, None] + 0.5, WIDTH, 1)
    found = made.clips([{"video": numbers}]).streams["video"][0, :, 0].numpy()
    clips = made.clips_of(count)
    seconds = made.clip_seconds_of(count)
    assert len(found) == clips == min(count, most)
    assert clips * seconds == pytest.approx(count * 1.5)
    # The mean of the middles of a clip's rows is the middle of the clip, to half a row at either border.
    middles = (np.arange(clips) + 0.5) * seconds / 1.5
    assert np.abs(found - middles).max() <= 0.5 + 1e-3
    ones = np.eye(count, dtype=np.float32)
    wide = Inputs(StreamInput(1), {"video": StreamInput(count, normalise=False)}, max_clips=most)
    shares = wide.clips([{"video": ones}]).streams["video"][0].numpy() > 0
    assert (shares.sum(0) == 1).all()


@pytest.mark.parametrize("settings", [{}, {"tef": True}, {"long_videos": "even", "max_clips": 4}])
def test_videos_of_which_no_stream_has_anything_are_silent(settings: dict[str, Any]) -> None:
    made = Inputs(StreamInput(3), {"video": StreamInput(WIDTH), "words": StreamInput(2)}, **settings)
    nothing, some = np.zeros((5, WIDTH), np.float32), rows(3)
    videos = [{"video": nothing}, {"video": nothing, "words": rows(1, 2)}, {"video": some}]
    silent = made.clips([*videos, {"video": nothing, "words": np.zeros((5, 2), np.float32)}]).silent
    assert silent is not None and silent.tolist() == [True, False, False, True]


def test_cutting_keeps_the_first_clips_and_their_length() -> None:
    made = plain(max_clips=3, long_videos="cut")
    video = rows(5)
    np.testing.assert_array_equal(made.clips([{"video": video}]).streams["video"][0].numpy(), video[:3])
    assert made.clip_seconds_of(5) == made.clip_seconds


def test_rows_behind_the_end_are_left_out() -> None:
    made = plain(clip_seconds=2.0)
    video = rows(5)
    batch = made.clips([{"video": video}, {"video": video}], durations=[8.0, 8.1])
    assert batch.mask.sum(1).tolist() == [4, 5]


def test_many_more_rows_than_clips_are_another_clip_length() -> None:
    told = r"^video 'a': 20 rows for 8 clips of 1.5 s in 12 s.*0.6 s would"
    with pytest.raises(UsageError, match=told):
        plain().clips([{"video": rows(20)}], durations=[12.0], names=["a"])
    with pytest.raises(UsageError, match=told):
        plain().rows_in(20, 12.0, "a")


def test_rows_that_are_not_finite_are_named() -> None:
    video = rows(4)
    video[2, 1] = np.nan
    with pytest.raises(UsageError, match=r"video 'b', stream 'video': row 2 is not finite"):
        inputs().clips([{"video": rows(6)}, {"video": video}], names=["a", "b"])
    tokens = rows(2, 3)
    tokens[0, 0] = np.inf
    with pytest.raises(UsageError, match=r"query 'q': row 0 is not finite"):
        inputs().queries([tokens], names=["q"])


@pytest.mark.parametrize("value", [1e38, 1e300])
@pytest.mark.parametrize("long_videos", ["pool", "even"])
def test_numbers_too_large_for_float32_are_called_large_and_not_infinite(
    value: float, long_videos: Any
) -> None:
    video: NDArray[Any] = rows(12).astype(np.float64 if value > 1e38 else np.float32)
    video[2, 1] = -value
    message = rf"video 'b', stream 'video': row \d+ holds a number as large as {re.escape(f'{value:g}')}; "
    with pytest.raises(UsageError, match=message + r"expected numbers up to 1e\+16"):
        inputs(long_videos=long_videos).clips([{"video": video}], names=["b"])
    tokens = rows(2, 3).astype(video.dtype)
    tokens[1, 0] = value
    with pytest.raises(UsageError, match=r"query 'q': row 1 holds a number as large as 1e\+"):
        inputs().queries([tokens], names=["q"])


def test_rows_in_half_precision_are_averaged_without_a_warning() -> None:
    half = rows(12).astype(np.float16)
    made, same = (
        inputs(long_videos="even").clips([{"video": one}]) for one in (half, half.astype(np.float32))
    )
    assert torch.equal(made.streams["video"], same.streams["video"])


def test_another_width_is_named() -> None:
    with pytest.raises(UsageError, match=r"video 'a', stream 'video': is of shape \(3, 5\); expected"):
        inputs().clips([{"video": rows(3, 5)}], names=["a"])
    with pytest.raises(UsageError, match=r"query number 0: is of shape \(2, 4\); expected \(rows, 3\)"):
        inputs().queries([rows(2, 4)])


def test_a_video_without_any_stream_is_named() -> None:
    with pytest.raises(
        UsageError, match=r"video 'a': has no rows; expected some in one of the streams video"
    ):
        inputs().clips([{"sound": rows(3)}], names=["a"])


def test_long_queries_keep_their_first_tokens() -> None:
    tokens = rows(5, 3)
    batch = plain(max_tokens=3).queries([tokens, tokens[:2]])
    np.testing.assert_array_equal(batch.tokens[0].numpy(), tokens[:3])
    assert batch.mask.tolist() == [[True] * 3, [True, True, False]]


def test_inputs_come_back_from_json() -> None:
    made = Inputs(
        StreamInput(3, False, "a", "b"), {"video": StreamInput(4)}, 2.0, 7, 9, "pool-as-released", True
    )
    assert Inputs.from_json(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"colour": 1}, "no setting 'colour'"),
        ({"query": None}, "query is None"),
        ({"query": {"width": 0}}, "inputs of a stream: width is 0"),
        ({"query": {"width": 3, "size": 3}}, "no setting 'size'"),
        ({"clip_seconds": 0}, "clip_seconds is 0"),
        ({"max_clips": 0}, "max_clips is 0"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"long_videos": "drop"}, "long_videos is 'drop'"),
        ({"streams": []}, r"streams are \[\]"),
        ({"tef": "no"}, "tef is 'no'; accepted: true or false"),
        ({"tokenizer": ["a"]}, r"tokenizer is \['a'\]; accepted: a text"),
    ],
)
def test_settings_that_cannot_be_are_named(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Inputs.from_json({**inputs().to_json(), **change})


def test_uniform_sampling_and_unit_length_are_the_released_ones() -> None:
    found = cases("batching", "tvrr_batches*.npz")
    if not found:
        pytest.skip(f"{golden_folder()} has no batching/tvrr_batches*.npz")
    for path in found:
        compare_sampling(np.load(path))


def compare_sampling(arrays: Any) -> None:
    recorded = [name for name in arrays if name.startswith("uniform_sampling/in_")]
    assert recorded
    for name in recorded:
        most = int(name.rsplit("_", 1)[1])
        given = arrays[name]
        told = StreamInput(given.shape[1], False)
        made = Inputs(told, {"video": told}, max_clips=most, long_videos="pool-as-released")
        found = made.clips([{"video": given}]).streams["video"][0].numpy()
        np.testing.assert_allclose(found, arrays[name.replace("/in_", "/out_")], atol=1e-6)
    told = StreamInput(arrays["l2norm/in"].shape[1])
    found = Inputs(told, {}).queries([arrays["l2norm/in"]]).tokens[0].numpy()
    np.testing.assert_allclose(found, arrays["l2norm/out"], atol=1e-7)


def test_endpoint_features_of_nothing_are_nothing() -> None:
    assert endpoint_features(np.zeros(0, np.int64), np.zeros((0, 1), bool)).shape == (0, 1, 2)


# --- an even grid, and cells of several clips


@pytest.mark.parametrize("count", [1, 5, 8, 21])
def test_an_even_grid_has_as_many_clips_for_every_video(count: int) -> None:
    told = inputs(long_videos="even", max_clips=8)
    batch = told.clips([{"video": rows(count)}, {"video": rows(3)}])
    assert batch.mask.tolist() == [[True] * 8] * 2
    unit = rows(count) / np.linalg.norm(rows(count), axis=1, keepdims=True)
    expected = average_to_length(unit, 8)
    torch.testing.assert_close(batch.streams["video"][0], torch.from_numpy(expected), atol=1e-6, rtol=0)


def test_an_even_grid_is_a_share_of_the_videos_duration() -> None:
    told = inputs(long_videos="even", max_clips=8, clips_per_cell=2, clip_seconds=3.0)
    assert told.clips_of(21) == 8
    assert told.cells_of(21) == 4
    assert told.clip_seconds_of(21, 50.0) == 12.5
    assert told.clip_seconds_of(21) == 21 * 3.0 / 4
    assert told.rows_in(21, 5.0, "v") == 21, "however long a row is told to be"


def test_cells_of_clips_on_the_usual_grid() -> None:
    told = inputs(max_clips=8, clips_per_cell=3, clip_seconds=2.0)
    assert [told.cells_of(count) for count in (1, 3, 4, 20)] == [1, 1, 2, 3]
    assert told.clip_seconds_of(4) == 6.0
    assert told.clip_seconds_of(16) == 12.0


def test_a_row_that_is_not_finite_is_named_on_an_even_grid_too() -> None:
    wrong = rows(5)
    wrong[2, 1] = np.nan
    with pytest.raises(UsageError, match=r"video 'v', stream 'video': row \d+ is not finite"):
        inputs(long_videos="even", max_clips=8).clips([{"video": wrong}], names=["v"])


def test_what_says_nothing_is_not_written_and_the_rest_comes_back() -> None:
    assert not {"clips_per_cell", "tokenizer"} & set(inputs().to_json())
    told = inputs(long_videos="even", clips_per_cell=2, tokenizer="some")
    assert Inputs.from_json(json.loads(json.dumps(told.to_json()))) == told


@pytest.mark.parametrize("size", [0, True, 1.5])
def test_a_cell_has_one_clip_or_more(size: Any) -> None:
    with pytest.raises(UsageError, match="clips_per_cell is"):
        inputs(clips_per_cell=size)


def test_sentences_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(UsageError, match="this system reads features of words"):
        inputs().sentences(["a door"])


def test_averages_are_those_of_the_program(golden: Path) -> None:
    paths = sorted((golden / "mmn").glob("data_utils*.npz"))
    if not paths:
        pytest.skip(f"{golden / 'mmn'} has no data_utils.npz")
    for path in paths:
        with np.load(path) as file:
            numbers = [name.split(".")[1] for name in file.files if name.endswith(".in_raw")]
            assert numbers
            for number in numbers:
                raw = file[f"avgfeats.{number}.in_raw"]
                count = int(file[f"avgfeats.{number}.num_pre_clips"])
                stream = {"video": StreamInput(raw.shape[1])}
                told = Inputs(StreamInput(3), stream, long_videos="even-as-released", max_clips=count)
                found = told.clips([{"video": raw}]).streams["video"][0]
                np.testing.assert_allclose(found, file[f"avgfeats.{number}.out"], atol=1e-5)


def test_cells_of_an_even_grid_are_equally_long() -> None:
    with pytest.raises(UsageError, match=r"max_clips is 10; accepted with 'even': a multiple of .* \(3\)"):
        inputs(long_videos="even", max_clips=10, clips_per_cell=3)
