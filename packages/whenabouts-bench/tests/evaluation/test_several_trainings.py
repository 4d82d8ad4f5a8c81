"""Differences of systems that were trained several times: trainings and videos both count."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t, ttest_1samp

from whenabouts.types import UsageError
from whenabouts_bench.evaluation.several_trainings import ENOUGH, Pooled, over_trainings, pooled_variance

Floats = NDArray[np.float64]
VIDEOS = np.repeat(np.arange(60), 2)


def drawn(of_training: float, of_video: float, seed: int = 0) -> Floats:
    """(3, 120, 1) differences whose mean is 0."""
    random = np.random.default_rng(seed)
    trainings = of_training * random.standard_normal((3, 1))
    videos = of_video * random.standard_normal(60)
    return np.clip(trainings + videos[VIDEOS], -1, 1)[..., None]


def test_where_trainings_alone_differ_it_is_the_t_test_over_trainings() -> None:
    values = drawn(0.1, 0)
    found = over_trainings(values, VIDEOS)
    test = ttest_1samp(values[:, 0, 0], 0)
    assert found.p[0] == pytest.approx(test.pvalue)
    ends = test.confidence_interval()
    np.testing.assert_allclose(found.ends[0], [ends.low, ends.high])


def test_where_videos_alone_differ_the_error_is_that_of_videos_with_the_degrees_of_trainings() -> None:
    values = drawn(0, 0.3)
    found = over_trainings(values, VIDEOS)
    statistic = ttest_1samp(values[0, ::2, 0], 0).statistic
    assert found.p[0] == pytest.approx(2 * t.sf(abs(statistic), 2))


def test_false_alarms_are_as_rare_as_promised_and_videos_alone_would_raise_many() -> None:
    alarms = {"both": 0, "videos": 0}
    for seed in range(400):
        values = drawn(0.05, 0.2, seed)
        alarms["both"] += int(over_trainings(values, VIDEOS).p[0] <= 0.05)
        alarms["videos"] += int(ttest_1samp(values.mean(0)[::2, 0], 0).pvalue <= 0.05)
    assert alarms["both"] < 400 * 0.07  # 5 % are promised; 7 % is 1.8 standard errors above
    assert alarms["videos"] > 400 * 0.15


@pytest.mark.slow
@pytest.mark.parametrize("trainings", [3, 5])
@pytest.mark.parametrize("others", [0, 4])
@pytest.mark.parametrize("ratio", [pytest.param(2.0, marks=pytest.mark.slow), 5.0])
def test_a_small_p_is_as_rare_as_it_says(trainings: int, others: int, ratio: float) -> None:
    """All trials at once: each is a column. With Satterthwaite's degrees 3 to 10 times as many are found."""
    random = np.random.default_rng([trainings, others, int(ratio)])
    trials, videos = 3_000, 60
    of_videos = 0.05 * random.standard_normal((videos, trials))
    error = ratio * 0.05 / np.sqrt(videos) * np.sqrt(trainings / 2)
    systems = error * random.standard_normal((2 + others, trainings, 1, trials))
    one = pooled_variance([*systems])
    pooled = Pooled(2 * one.variance, one.degrees)
    p = over_trainings(systems[0] - systems[1] + of_videos, np.arange(videos), pooled).p
    for alpha in (0.01, 0.0017, 0.001):
        assert (p <= alpha).sum() <= alpha * trials + 3 * np.sqrt(alpha * trials)


def test_pooling_finds_what_three_trainings_alone_cannot_show() -> None:
    random = np.random.default_rng(3)
    systems = [0.01 * random.standard_normal((3, 120, 1)) for _ in range(6)]
    values = systems[0] - systems[1] + 0.05 + drawn(0, 0.1)
    alone = over_trainings(values, VIDEOS)
    one = pooled_variance(systems)
    together = over_trainings(values, VIDEOS, Pooled(2 * one.variance, one.degrees))
    assert one.degrees == 12
    assert together.p[0] < 0.01 < alone.p[0]


def test_a_pair_that_varies_more_than_the_others_counts_with_its_own_variance() -> None:
    values = drawn(0.2, 0.1)
    less, own = Pooled(np.array([1e-6]), 30), Pooled(pooled_variance([values]).variance, 30)
    assert over_trainings(values, VIDEOS, less).p == pytest.approx(over_trainings(values, VIDEOS, own).p)


def test_a_difference_of_two_systems_varies_twice_as_much_as_one() -> None:
    one = Pooled(np.array([0.01, 0.04]), 12)
    assert one.of_difference.variance.tolist() == [0.02, 0.08]
    assert one.of_difference.degrees == 12


@pytest.mark.parametrize("degrees", [ENOUGH - 1, ENOUGH])
def test_degrees_of_trainings_are_combined_with_those_of_videos_where_they_are_enough(degrees: int) -> None:
    values = drawn(0.02, 0.3)
    found = over_trainings(values, VIDEOS, Pooled(np.array([0.01]), degrees))
    of_trainings, of_videos = 0.01 / 3, values.mean(0)[::2, 0].var(ddof=1) / 60
    both = of_trainings + of_videos
    combined = both**2 / (of_trainings**2 / degrees + of_videos**2 / 59)
    freedom = combined if degrees >= ENOUGH else degrees
    assert combined > 1.5 * degrees
    assert found.p[0] == pytest.approx(2 * t.sf(abs(values.mean()) / np.sqrt(both), freedom))


def test_the_variance_is_pooled_over_systems_of_different_numbers_of_trainings() -> None:
    first, second = np.array([0.1, 0.3]), np.array([0.2, 0.4, 0.9])
    pooled = pooled_variance([np.tile(one[:, None, None], (1, 7, 1)) for one in (first, second)])
    assert pooled.degrees == 3
    assert pooled.variance[0] == pytest.approx((first.var() * 2 + second.var() * 3) / 3)
    with pytest.raises(UsageError, match="no system was trained twice"):
        pooled_variance([np.zeros((1, 7, 1))] * 4)


def test_a_difference_is_minus_that_of_the_swapped_systems() -> None:
    values = drawn(0.1, 0.3)
    one, other = over_trainings(values, VIDEOS), over_trainings(-values, VIDEOS)
    np.testing.assert_allclose(one.ends, -other.ends[:, ::-1])
    assert one.p == other.p


def test_what_never_differs_is_sure() -> None:
    found = over_trainings(np.stack([np.zeros((3, 120)), np.full((3, 120), 0.5)], axis=-1), VIDEOS)
    assert found.p.tolist() == [1, 0]
    assert found.ends.tolist() == [[0, 0], [0.5, 0.5]]


def test_one_training_and_one_video_are_refused() -> None:
    with pytest.raises(UsageError, match="1 trainings, 60 videos: give at least two of each"):
        over_trainings(np.zeros((1, 120, 1)), VIDEOS)
    with pytest.raises(UsageError, match="3 trainings, 1 videos"):
        over_trainings(np.zeros((3, 120, 1)), np.zeros(120, np.int64))
