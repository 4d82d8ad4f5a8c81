"""The zero-shot localizer: what it promises of every curve, and that it finds what was planted."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from whenabouts.moments.segments import maximal_segments
from whenabouts.moments.zero_shot import (
    Config,
    Curves,
    Moments,
    ZeroShotLocalizer,
    snap,
)
from whenabouts.types import UsageError

Floats = NDArray[np.float64]
SETTINGS = st.sampled_from(
    [
        Config(),
        Config(soft_borders=False, smoothing=0.0),
        Config(own_level=0.0, nms_iou=0.0),
        Config(min_seconds=7.0, max_seconds=20.0, moments_per_video=2),
        Config(height_shares=(0.2, 0.4, 0.8), drift_seconds=15.0, min_share=0.0, max_gap_seconds=1.0),
    ]
)


def regular(score: list[float] | Floats, clip_seconds: float = 2.0, **background: float) -> Curves:
    """One video with clips of equal length."""
    values = np.asarray(score, dtype=np.float64)
    start = np.arange(len(values), dtype=np.float64) * clip_seconds
    return Curves(values, start, start + clip_seconds, np.array([0, len(values)]), **background)


def joined(parts: list[Curves]) -> Curves:
    """Several curves as one batch."""
    counts = [np.diff(part.offsets) for part in parts]
    return Curves(
        np.concatenate([part.score for part in parts]),
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.end for part in parts]),
        np.concatenate([[0], np.cumsum(np.concatenate(counts))]),
        np.concatenate([np.asarray(part.level) for part in parts]),
        np.concatenate([np.asarray(part.spread) for part in parts]),
    )


@st.composite
def video(draw: st.DrawFn) -> Curves:
    """A video with up to 40 clips: regular, or with gaps and overlaps; half of them with ties."""
    count = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    coarse = draw(st.booleans())
    score = rng.integers(-2, 4, count).astype(np.float64) if coarse else rng.standard_normal(count) * 2
    if draw(st.booleans()):
        start = np.arange(count, dtype=np.float64) * 2.0
        end = start + 2.0
    else:
        length = rng.integers(1, 20, count) / 2
        start = np.concatenate([[0.0], np.cumsum(length + rng.choice([0, 0, 0, 3, 60, -0.5], count))[:-1]])
        start = np.maximum.accumulate(start)
        end = start + length
    return Curves(
        score, start, end, np.array([0, count]), draw(st.integers(-2, 2)), draw(st.sampled_from([0.5, 1, 2]))
    )


def same(left: Moments, right: Moments) -> bool:
    """Every column equal, to the bit."""
    return all(np.array_equal(getattr(left, f.name), getattr(right, f.name)) for f in fields(Moments))


# ------------------------------------------------------------------ maximal-scoring segments


def by_definition(values: list[int]) -> list[tuple[int, int, int]]:
    """Ruzzo and Tompa's definition: the best segment, then the same to its left and right."""
    found: list[tuple[int, int, int]] = []
    waiting = [(0, len(values))]
    while waiting:
        low, high = waiting.pop()
        spans = [(i, j) for i in range(low, high) for j in range(i, high)]
        if not spans:
            continue
        i, j = max(spans, key=lambda s: (sum(values[s[0] : s[1] + 1]), s[0] - s[1], -s[0]))
        if sum(values[i : j + 1]) > 0:
            found.append((i, j, sum(values[i : j + 1])))
            waiting += [(low, i), (j + 1, high)]
    return sorted(found)


@given(st.lists(st.lists(st.integers(-4, 4), min_size=1, max_size=14), min_size=1, max_size=3))
def test_segments_are_those_of_the_definition(sequences: list[list[int]]) -> None:
    values = np.array([value for sequence in sequences for value in sequence], dtype=np.float64)
    begins = np.cumsum([0, *(len(sequence) for sequence in sequences)])
    opens = np.isin(np.arange(len(values)), begins)
    segments = maximal_segments(values, opens)
    found = list(zip(segments.first.tolist(), segments.last.tolist(), segments.gain.tolist(), strict=True))
    expected = [
        (begin + first, begin + last, gain)
        for begin, sequence in zip(begins, sequences, strict=False)
        for first, last, gain in by_definition(sequence)
    ]
    assert found == expected


def test_no_values_have_no_segments() -> None:
    assert len(maximal_segments(np.zeros(0), np.zeros(0, dtype=bool)).first) == 0


# ------------------------------------------------------------------------ promises to everyone


@given(st.lists(video(), min_size=1, max_size=4), SETTINGS)
def test_moments_are_never_empty_reversed_or_outside_the_clips(parts: list[Curves], config: Config) -> None:
    moments = ZeroShotLocalizer(config).localize(joined(parts))
    assert set(moments.video.tolist()) == set(range(len(parts)))
    assert (moments.start < moments.end).all()
    assert (moments.first_clip >= 0).all() and (moments.first_clip <= moments.last_clip).all()
    for row in range(len(moments)):
        part = parts[moments.video[row]]
        assert moments.last_clip[row] < len(part.score)
        assert part.start.min() <= moments.start[row] < moments.end[row] <= part.end.max()


@pytest.mark.slow
@given(st.lists(video(), min_size=1, max_size=4), SETTINGS)
def test_moments_are_in_a_total_order(parts: list[Curves], config: Config) -> None:
    moments = ZeroShotLocalizer(config).localize(joined(parts))
    keys = list(zip(-moments.score, moments.video, moments.start, moments.end, strict=True))
    assert keys == sorted(keys)


@pytest.mark.slow
@given(st.lists(video(), min_size=1, max_size=4), SETTINGS)
def test_moments_of_a_video_do_not_overlap_more_than_allowed(parts: list[Curves], config: Config) -> None:
    moments = ZeroShotLocalizer(config).localize(joined(parts))
    for index in range(len(parts)):
        own = moments.take(moments.video == index)
        assert len(own) <= config.moments_per_video
        for i in range(len(own)):
            shared = np.minimum(own.end, own.end[i]) - np.maximum(own.start, own.start[i])
            union = (own.end - own.start) + (own.end[i] - own.start[i]) - shared
            assert ((shared <= config.nms_iou * union) | (np.arange(len(own)) == i)).all()


@pytest.mark.slow
@given(st.lists(video(), min_size=2, max_size=5), SETTINGS)
def test_a_video_gets_the_same_moments_in_any_batch(parts: list[Curves], config: Config) -> None:
    localizer = ZeroShotLocalizer(config)
    together = localizer.localize(joined(parts))
    for index, part in enumerate(parts):
        own = together.take(together.video == index)
        assert same(replace(own, video=np.zeros_like(own.video)), localizer.localize(part))


@given(video(), SETTINGS, st.sampled_from([-8.0, -0.5, 0.0, 16.0]), st.sampled_from([0.25, 1.0, 32.0]))
def test_a_shifted_and_scaled_curve_gives_the_same_moments(
    part: Curves, config: Config, shift: float, scale: float
) -> None:
    # On a grid of binary fractions shifting and scaling are exact, so equality may be asked for to the bit.
    score = np.rint(part.score * 64) / 64
    level, spread = np.asarray(part.level), np.asarray(part.spread)
    plain = Curves(score, part.start, part.end, part.offsets, level, spread)
    moved = Curves(
        score * scale + shift, part.start, part.end, part.offsets, level * scale + shift, spread * scale
    )
    localizer = ZeroShotLocalizer(config)
    assert same(localizer.localize(plain), localizer.localize(moved))


@given(video(), SETTINGS)
def test_lengths_keep_to_the_limits_where_the_clips_allow_it(part: Curves, config: Config) -> None:
    moments = ZeroShotLocalizer(config).localize(part)
    many = moments.last_clip > moments.first_clip
    half_clips = (part.end - part.start).max() if config.soft_borders else 0.0
    assert (moments.end - moments.start <= config.max_seconds + half_clips)[many].all()


def test_the_block_size_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    curves = joined([regular(rng.standard_normal(count)) for count in (3, 40, 1, 17, 250, 9)])
    whole = ZeroShotLocalizer().localize(curves)
    monkeypatch.setattr("whenabouts.moments.zero_shot._BLOCK", 16)
    assert same(whole, ZeroShotLocalizer().localize(curves))


# ------------------------------------------------------------------------------ what it finds


@pytest.mark.parametrize("clips", [1, 3, 10, 30, 120])
def test_a_planted_moment_of_any_length_is_found(clips: int) -> None:
    rng = np.random.default_rng(clips)
    score = rng.standard_normal(400) * 0.1
    score[150 : 150 + clips] += 1.0
    moments = ZeroShotLocalizer().localize(regular(score, level=0.0, spread=0.1))
    assert moments.start[0] == pytest.approx(300.0, abs=1.0)
    assert moments.end[0] == pytest.approx(300.0 + 2 * clips, abs=1.0)


def test_several_moments_of_one_video_are_found() -> None:
    score = np.random.default_rng(0).standard_normal(300) * 0.1
    for first in (20, 120, 220):
        score[first : first + 10] += 1.0
    moments = ZeroShotLocalizer().localize(regular(score, level=0.0, spread=0.1))
    assert np.sort(moments.start) == pytest.approx([40.0, 240.0, 440.0], abs=1.0)


def test_a_moment_is_found_on_a_drifting_baseline() -> None:
    clips = np.arange(1200)
    score = np.random.default_rng(0).standard_normal(1200) * 0.1 + 0.4 * np.sin(clips / 180)
    score[820:835] += 1.0
    moments = ZeroShotLocalizer().localize(regular(score, level=0.0, spread=0.1))
    best = moments.take(np.abs(moments.start - 1640.0) <= 2.0)
    assert len(best) and best.end[0] == pytest.approx(1670.0, abs=2.0)


def test_the_better_match_is_ranked_first_across_videos() -> None:
    weak, strong = np.zeros(30), np.zeros(30)
    weak[5:10], strong[5:10] = 2.0, 4.0
    moments = ZeroShotLocalizer().localize(joined([regular(weak), regular(strong)]))
    assert moments.video.tolist() == [1, 0]


def test_of_two_equally_high_moments_the_longer_is_ranked_first() -> None:
    short, long = np.zeros(60), np.zeros(60)
    short[5:8], long[5:25] = 3.0, 3.0
    moments = ZeroShotLocalizer().localize(joined([regular(short), regular(long)]))
    assert moments.video.tolist() == [1, 0]


def test_soft_borders_lie_between_the_middles_of_two_clips() -> None:
    score = [0.0, 0.0, 0.0, 2.0, 4.0, 4.0, 4.0, 0.0, 0.0, 0.0]  # clip 3 holds half of the moment
    soft = ZeroShotLocalizer(Config(smoothing=0.0)).localize(regular(score))
    hard = ZeroShotLocalizer(Config(smoothing=0.0, soft_borders=False)).localize(regular(score))
    assert hard.start[0] == 8.0 and hard.end[0] == 14.0
    assert 6.5 < soft.start[0] < 7.5 and soft.end[0] == pytest.approx(14.0, abs=0.3)


def test_no_moment_reaches_over_a_long_silence() -> None:
    start = np.concatenate([np.arange(10) * 10.0, 1000.0 + np.arange(10) * 10.0])
    score = np.zeros(20)
    score[8:12] = 5.0
    curves = Curves(score, start, start + 10.0, np.array([0, 20]))
    moments = ZeroShotLocalizer(Config(soft_borders=False)).localize(curves)
    assert sorted(zip(moments.start.tolist(), moments.end.tolist(), strict=True)) == [
        (80.0, 100.0),
        (1000.0, 1020.0),
    ]


def test_a_short_moment_grows_towards_the_higher_neighbour() -> None:
    config = Config(min_seconds=4.0, soft_borders=False, smoothing=0.0, height_shares=(0.5,))
    moments = ZeroShotLocalizer(config).localize(regular([0, 0, 0, 0, 9, 1, 0, 0]))
    assert (moments.start[0], moments.end[0]) == (8.0, 12.0)


def test_what_is_too_long_is_cut_to_what_stands_out() -> None:
    score = np.zeros(100)
    score[20:80], score[40:50] = 2.0, 6.0
    config = Config(max_seconds=30.0, soft_borders=False)
    moments = ZeroShotLocalizer(config).localize(regular(score))
    assert (moments.start[0], moments.end[0]) == (80.0, 100.0)


# ----------------------------------------------------------------------------- odd curves


def test_a_video_of_one_clip_yields_that_clip() -> None:
    moments = ZeroShotLocalizer().localize(regular([0.7], level=0.2, spread=0.1))
    assert (moments.start.tolist(), moments.end.tolist()) == ([0.0], [2.0])
    assert moments.score[0] == pytest.approx(5.0 * 2.0**0.3)


@pytest.mark.parametrize(("score", "sign"), [(3.0, 1), (0.0, 0), (-3.0, -1)])
def test_a_flat_curve_is_one_moment_scored_as_low_as_it_is(score: float, sign: int) -> None:
    moments = ZeroShotLocalizer().localize(regular([score] * 10))
    assert (moments.start.tolist(), moments.end.tolist()) == ([0.0], [20.0])
    assert np.sign(moments.score[0]) == sign


def test_a_flat_curve_longer_than_a_moment_may_be_is_cut() -> None:
    moments = ZeroShotLocalizer(Config(max_seconds=7.0)).localize(regular([0.1] * 10))
    assert (moments.start.tolist(), moments.end.tolist()) == ([0.0], [6.0])


def test_no_videos_and_empty_videos_yield_nothing() -> None:
    nothing = np.zeros(0)
    assert len(ZeroShotLocalizer().localize(Curves(nothing, nothing, nothing, np.array([0])))) == 0
    assert len(ZeroShotLocalizer().localize(Curves(nothing, nothing, nothing, np.array([0, 0, 0])))) == 0
    one = np.ones(1)
    moments = ZeroShotLocalizer().localize(Curves(one, 0 * one, one, np.array([0, 0, 1, 1])))
    assert moments.video.tolist() == [1]


def test_float32_curves_are_taken() -> None:
    curves = regular(np.ones(4, dtype=np.float32))
    assert curves.score.dtype == np.float64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"score": [0.0, np.nan, 0.0]}, r"score\[1\] is nan"),
        ({"start": [0.0, np.inf, 4.0]}, r"start\[1\] is inf"),
        ({"end": [2.0, 2.0, 6.0]}, "clip 1 runs from 2.0 to 2.0"),
        ({"start": [3.0, 2.0, 4.0], "end": [6.0, 6.0, 6.0]}, "clip 1 starts at 2.0 s, before"),
        ({"score": [0.0, 1.0]}, "one per clip"),
        ({"score": [[0.0, 1.0, 2.0]]}, "one row"),
        ({"offsets": [0, 2]}, "number of clips"),
        ({"offsets": [0, 3, 2, 3]}, "offsets decrease"),
        ({"spread": 0.0}, "spread"),
        ({"level": np.nan}, "level"),
        ({"level": [0.0, 0.0]}, "level"),
    ],
)
def test_curves_that_make_no_sense_are_refused(change: dict[str, object], words: str) -> None:
    good = {"score": [0.0, 1.0, 0.0], "start": [0.0, 2.0, 4.0], "end": [2.0, 4.0, 6.0], "offsets": [0, 3]}
    with pytest.raises(UsageError, match=words):
        Curves(**(good | change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting",
    [
        {"min_seconds": -1.0},
        {"min_seconds": 5.0, "max_seconds": 4.0},
        {"height_shares": ()},
        {"height_shares": (0.5, 1.0)},
        {"smoothing": 0.5},
        {"nms_iou": 2.0},
        {"min_share": float("nan")},
        {"moments_per_video": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(setting))):
        Config(**setting)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------ snap


def moments_at(*spans: tuple[int, float, float]) -> Moments:
    """Moments of one score at (video, start, end)."""
    video, start, end = (np.array(column) for column in zip(*spans, strict=True))
    zeros = np.zeros(len(spans), dtype=np.int64)
    return Moments(video, start.astype(float), end.astype(float), np.zeros(len(spans)), zeros, zeros)


def test_borders_snap_to_what_is_close_in_their_own_video() -> None:
    moments = moments_at((0, 10.0, 20.0), (1, 10.0, 20.0))
    snapped = snap(moments, [9.4, 20.3, 3.0, 12.0, 19.0], [0, 2, 5], 1.0)
    assert snapped.start.tolist() == [9.4, 10.0]
    assert snapped.end.tolist() == [20.3, 19.0]


def test_a_border_never_snaps_to_or_past_the_middle() -> None:
    snapped = snap(moments_at((0, 10.0, 12.0)), [11.0], [0, 1], 5.0)
    assert (snapped.start.tolist(), snapped.end.tolist()) == ([10.0], [12.0])


def test_of_two_borders_equally_close_the_earlier_is_taken() -> None:
    snapped = snap(moments_at((0, 10.0, 30.0)), [9.0, 11.0], [0, 2], 1.0)
    assert snapped.start.tolist() == [9.0]


def test_without_borders_nothing_moves() -> None:
    moments = moments_at((0, 10.0, 30.0))
    assert same(snap(moments, [], [0, 0], 1.0), moments)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=9),
    st.lists(st.lists(st.integers(0, 240), max_size=9), min_size=3, max_size=3),
    st.sampled_from([0.0, 0.5, 3.0]),
)
def test_snapping_is_what_looking_at_each_border_gives(
    rows: list[tuple[int, int, int]], quarters: list[list[int]], reach: float
) -> None:
    borders = [[quarter / 4 for quarter in sorted(part)] for part in quarters]
    moments = moments_at(*((video, start, start + length) for video, start, length in rows))
    offsets = np.cumsum([0, *map(len, borders)])
    snapped = snap(moments, np.concatenate([np.zeros(0), *borders]), offsets, reach)
    expected = []
    for video, first, length in rows:
        start, end, middle = float(first), float(first + length), first + length / 2
        near = {
            at: min(
                [b for b in borders[video] if abs(b - at) <= reach],
                key=lambda b: (abs(b - at), b),
                default=at,
            )
            for at in (start, end)
        }
        expected.append(
            (video, near[start] if near[start] < middle else start, near[end] if near[end] > middle else end)
        )
    assert list(zip(snapped.video, snapped.start, snapped.end, strict=True)) == sorted(expected)


@pytest.mark.parametrize(
    ("borders", "offsets", "words"),
    [
        ([1.0, np.nan], [0, 2], "nan"),
        ([1.0, 2.0], [0, 1], "number of borders"),
        ([2.0, 1.0], [0, 2], "descend"),
        ([], [0], "none of 0"),
    ],
)
def test_borders_that_make_no_sense_are_refused(borders: list[float], offsets: list[int], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        snap(moments_at((0, 1.0, 2.0)), borders, offsets, 1.0)
