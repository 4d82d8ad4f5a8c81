"""Differences of systems that were trained several times: trainings and videos both count."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from whenabouts.types import UsageError
from whenabouts_bench.evaluation.several_trainings import over_trainings

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
    assert found.of_trainings[0] == pytest.approx(1)


def test_where_videos_alone_differ_it_is_the_t_test_over_videos() -> None:
    values = drawn(0, 0.3)
    found = over_trainings(values, VIDEOS)
    assert found.p[0] == pytest.approx(ttest_1samp(values[0, ::2, 0], 0).pvalue)
    assert found.of_trainings[0] == 0


def test_false_alarms_are_as_rare_as_promised_and_videos_alone_would_raise_many() -> None:
    alarms = {"both": 0, "videos": 0}
    for seed in range(400):
        values = drawn(0.05, 0.2, seed)
        alarms["both"] += int(over_trainings(values, VIDEOS).p[0] <= 0.05)
        alarms["videos"] += int(ttest_1samp(values.mean(0)[::2, 0], 0).pvalue <= 0.05)
    assert alarms["both"] < 400 * 0.11  # 5 % are promised; some more while few degrees are estimated
    assert alarms["videos"] > 400 * 0.15


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
    with pytest.raises(UsageError, match="1 trainings, 60 videos: two and more of each"):
        over_trainings(np.zeros((1, 120, 1)), VIDEOS)
    with pytest.raises(UsageError, match="3 trainings, 1 videos"):
        over_trainings(np.zeros((3, 120, 1)), np.zeros(120, np.int64))
