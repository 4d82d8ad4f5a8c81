"""Sign flips, bootstrap intervals, corrections: against definitions, against SciPy, on known truths."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from whenabouts.types import UsageError
from whenabouts_bench.evaluation import significance
from whenabouts_bench.evaluation.significance import bootstrap_intervals, corrected, sign_flip_test

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@pytest.fixture(scope="module")
def scipy_stats() -> Any:
    """SciPy's statistics, an oracle; it comes with the sentence encoders and is no dependency."""
    return pytest.importorskip("scipy.stats", reason="SciPy is not installed")


def by_hand(differences: Floats, clusters: Indices) -> float:
    """The share of all patterns of signs whose sum is as far from 0, straight from the definition."""
    sums = [math.fsum(differences[clusters == label]) for label in np.unique(clusters)]
    observed = abs(math.fsum(sums))
    patterns = list(itertools.product((-1, 1), repeat=len(sums)))
    far = [abs(math.fsum(s * c for s, c in zip(p, sums, strict=True))) >= observed - 1e-9 for p in patterns]
    return sum(far) / len(patterns)


# ------------------------------------------------------------------------------- sign flips


@given(
    differences=arrays.arrays(
        np.float64, st.integers(1, 12), elements=st.sampled_from([-1, -0.5, 0, 0.25, 1])
    ),
    seed=st.integers(0, 3),
)
@settings(deadline=None, max_examples=30)
def test_few_clusters_are_counted_exactly(differences: Floats, seed: int) -> None:
    clusters = np.random.default_rng(seed).integers(0, 6, len(differences))
    told = sign_flip_test(differences[:, None], clusters, resamples=1000)
    assert told.exact.all()
    assert told.p[0] == pytest.approx(by_hand(differences, clusters), abs=1e-12)


def test_columns_with_few_and_with_many_moved_clusters_stand_side_by_side() -> None:
    rng = np.random.default_rng(0)
    differences = rng.choice([-1.0, 0.0, 1.0], (400, 3))
    differences[40:, 0] = 0
    differences[:, 2] = 0
    clusters = np.arange(400) // 4
    told = sign_flip_test(differences, clusters, resamples=2000)
    assert told.exact.tolist() == [True, False, True]
    assert told.p[0] == by_hand(differences[:40, 0], clusters[:40])
    assert told.p[1] == sign_flip_test(differences[:, 1:2], clusters, resamples=2000).p[0]
    assert told.p[2] == 1.0
    assert told.moved[2] == 0


def test_columns_that_move_few_and_many_of_many_clusters_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(8)
    differences = rng.choice([-1.0, 1.0], (200, 2))
    differences[:, 0] = np.repeat([1.0, -1.0, 0.0], [18, 12, 170])
    alone = sign_flip_test(differences[:, :1], np.arange(200))
    assert not alone.exact[0] and alone.moved[0] == 30 and alone.p[0] < 1
    assert sign_flip_test(differences, np.arange(200)).p[0] == alone.p[0]


def test_sampled_p_values_agree_with_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    differences, clusters = rng.uniform(-0.6, 1, (26, 5)), np.repeat(np.arange(13), 2)
    exact = sign_flip_test(differences, clusters, resamples=10_000)
    monkeypatch.setattr(significance, "_MOST_PATTERNS", 2)
    drawn = sign_flip_test(differences, clusters, resamples=10_000)
    assert exact.exact.all() and not drawn.exact.any()
    spread = np.sqrt(exact.p * (1 - exact.p) / 10_000)
    assert (np.abs(drawn.p - exact.p) < 5 * spread + 2e-4).all()
    assert (drawn.p != exact.p).any()


def test_sampled_p_values_agree_with_scipy(scipy_stats: Any) -> None:
    rng = np.random.default_rng(2)
    for shift in (0.0, 0.05, 0.1):
        one, other = rng.uniform(0, 0.8, 80), rng.uniform(0, 0.8, 80) + shift
        ours = sign_flip_test((other - one)[:, None], np.arange(80), resamples=20_000).p[0]
        theirs = scipy_stats.permutation_test(
            (other, one),
            lambda a, b, axis: np.mean(a - b, axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=20_000,
            rng=np.random.default_rng(0),
        ).pvalue
        assert ours == pytest.approx(theirs, abs=0.02)


def test_a_difference_that_floats_cannot_hold_is_a_tie() -> None:
    same = np.array([[0.1 + 0.2 - 0.3], [1e-17], [0.0]])
    told = sign_flip_test(same, np.arange(3))
    assert told.moved[0] == 0
    assert told.p[0] == 1.0


def test_p_is_never_zero_however_clear_the_difference() -> None:
    told = sign_flip_test(np.ones((500, 1)), np.arange(500), resamples=999)
    assert told.p[0] == 1 / 1000


# ------------------------------------------------------------------------------- properties of both


@st.composite
def studies(draw: st.DrawFn) -> tuple[Floats, Indices]:
    """(Q, 2) differences, many of them equal, and clusters of very different sizes."""
    seed = draw(st.integers(0, 10_000))
    queries = draw(st.integers(1, 120))
    rng = np.random.default_rng(seed)
    steps = draw(st.sampled_from([1, 3, 1000]))
    values = rng.integers(-steps, steps + 1, (queries, 2)) / steps
    clusters = np.minimum(rng.geometric(draw(st.sampled_from([0.05, 0.3])), queries), 60)
    return values, clusters.astype(np.int64)


@given(studies(), st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_results_do_not_depend_on_order_names_or_other_columns(
    study: tuple[Floats, Indices], seed: int
) -> None:
    values, clusters = study
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(values))
    renamed = rng.permutation(100)[clusters]
    first = sign_flip_test(values, clusters, resamples=200)
    again = sign_flip_test(values[order][:, ::-1], renamed[order], resamples=200)
    alone = sign_flip_test(values[:, :1], clusters, resamples=200)
    assert first.p.tolist() == again.p[::-1].tolist()
    assert first.p[0] == alone.p[0]
    ends = bootstrap_intervals(values, clusters, resamples=200)
    assert (ends == bootstrap_intervals(values[order][:, ::-1], renamed[order], resamples=200)[::-1]).all()
    assert (ends[0] == bootstrap_intervals(values[:, :1], clusters, resamples=200)[0]).all()


@given(studies())
@settings(deadline=None, max_examples=30)
def test_swapping_the_systems_mirrors_everything(study: tuple[Floats, Indices]) -> None:
    values, clusters = study
    first, swapped = (sign_flip_test(own, clusters, resamples=200) for own in (values, -values))
    assert first.p.tolist() == swapped.p.tolist()
    ends, turned = (bootstrap_intervals(own, clusters, resamples=200) for own in (values, -values))
    assert (ends == -turned[:, ::-1]).all()


@given(studies())
@settings(deadline=None, max_examples=30)
def test_p_is_a_probability_and_intervals_stay_within_what_is_possible(study: tuple[Floats, Indices]) -> None:
    values, clusters = study
    told = sign_flip_test(values, clusters, resamples=200)
    assert ((told.p > 0) & (told.p <= 1)).all()
    floor = np.where(told.exact, 2.0 ** (1 - np.minimum(told.moved, 60)), 1 / 201)
    assert (told.p >= np.minimum(1, floor) - 1e-12).all()
    ends = bootstrap_intervals(values, clusters, resamples=200)
    assert (ends[:, 0] <= ends[:, 1]).all()
    by_cluster = np.array([values[clusters == label].mean(axis=0) for label in np.unique(clusters)])
    assert (ends[:, 0] >= by_cluster.min(axis=0) - 1e-9).all()
    assert (ends[:, 1] <= by_cluster.max(axis=0) + 1e-9).all()


def test_a_column_that_mirrors_itself_has_an_interval_that_does_too() -> None:
    values = np.array([[0.5], [-0.5], [0.25], [-0.25], [0.0]])
    low, high = bootstrap_intervals(values, np.arange(5), resamples=500)[0]
    assert low == -high < 0


def test_runs_that_do_not_differ_have_no_width() -> None:
    assert bootstrap_intervals(np.zeros((9, 1)), np.arange(9)).tolist() == [[0.0, 0.0]]
    assert "-" not in str(bootstrap_intervals(np.zeros((9, 1)), np.arange(9)))


@pytest.mark.parametrize("numbers_at_a_time", [64, 1000, 1 << 14])
def test_results_do_not_depend_on_the_size_of_blocks(
    monkeypatch: pytest.MonkeyPatch, numbers_at_a_time: int
) -> None:
    rng = np.random.default_rng(3)
    values, clusters = rng.uniform(-1, 1, (300, 4)), rng.integers(0, 90, 300)
    p, ends = sign_flip_test(values, clusters, resamples=500).p, bootstrap_intervals(values, clusters)
    monkeypatch.setattr(significance, "_BLOCK", numbers_at_a_time)
    assert sign_flip_test(values, clusters, resamples=500).p.tolist() == p.tolist()
    assert (bootstrap_intervals(values, clusters) == ends).all()


def test_another_seed_draws_other_resamples() -> None:
    rng = np.random.default_rng(4)
    values, clusters = rng.uniform(-1, 1, (300, 4)), np.arange(300)
    assert (sign_flip_test(values, clusters, seed=0).p != sign_flip_test(values, clusters, seed=1).p).any()
    ends = [bootstrap_intervals(values, clusters, seed=seed, resamples=500) for seed in (0, 0, 1)]
    assert (ends[0] == ends[1]).all() and (ends[0] != ends[2]).all()


@pytest.mark.parametrize("bad", [np.full((3, 1), np.nan), np.full((3, 1), 2.0), np.zeros((0, 1))])
def test_values_that_are_no_fractions_are_refused(bad: Floats) -> None:
    with pytest.raises(UsageError):
        sign_flip_test(bad, np.arange(len(bad)))
    with pytest.raises(UsageError):
        bootstrap_intervals(bad, np.arange(len(bad)))


# ------------------------------------------------------------------------------- intervals


def test_intervals_agree_with_percentiles_of_scipy(scipy_stats: Any) -> None:
    rng = np.random.default_rng(5)
    values = rng.beta(1, 3, (60, 1))
    ours = bootstrap_intervals(values, np.arange(60), resamples=20_000)[0]
    level = 1 - 2 * significance.tail_share(60, 0.95)
    assert 0.95 < level < 0.96
    theirs = scipy_stats.bootstrap(
        (values[:, 0],), np.mean, confidence_level=level, method="percentile", n_resamples=20_000, rng=0
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours[0] == pytest.approx(theirs.low, abs=0.02 * width)
    assert ours[1] == pytest.approx(theirs.high, abs=0.02 * width)


def test_clusters_are_drawn_whole_and_weigh_by_their_queries() -> None:
    values = np.array([[1.0]] * 30 + [[0.0]] * 10)
    clusters = np.array([0] * 30 + list(range(1, 11)))
    times = np.random.default_rng(0).multinomial(11, np.full(11, 1 / 11), 20_000)[:, 0]
    means = 30 * times / (30 * times + 11 - times)
    low, high = bootstrap_intervals(values, clusters, resamples=20_000)[0]
    tail = significance.tail_share(11, 0.95)
    assert [low, high] == pytest.approx(np.quantile(means, [tail, 1 - tail]).tolist(), abs=0.02)


@pytest.mark.parametrize(("clusters", "tail"), [(1, 0.0), (5, 0.0010), (10, 0.0086), (10_000, 0.0250)])
def test_with_few_clusters_percentiles_move_outwards(clusters: int, tail: float) -> None:
    assert significance.tail_share(clusters, 0.95) == pytest.approx(tail, abs=5e-5)


# ------------------------------------------------------------------------------- known truths


def planted(
    rng: np.random.Generator, videos: int, trials: int, luck: float, gain: float
) -> tuple[Floats, Indices]:
    """(Q, trials) differences of hits, 6 queries a video; `luck` with videos; `gain` is the second's lead."""
    clusters = np.repeat(np.arange(videos), 6)
    hits = []
    for more in (0.0, gain):
        level = luck * rng.normal(size=(videos, trials))[clusters] + more
        hits.append(rng.random((len(clusters), trials)) < 1 / (1 + np.exp(0.5 - level)))
    return hits[1].astype(np.float64) - hits[0], clusters


def share_of_alarms(luck: float, gain: float, *, by_video: bool = True) -> float:
    rng = np.random.default_rng(6)
    p = []
    for seed in range(20):  # the columns of one call share their random signs
        differences, clusters = planted(rng, 60, 100, luck, gain)
        labels = clusters if by_video else np.arange(len(clusters))
        p.append(sign_flip_test(differences, labels, resamples=999, seed=seed).p)
    return float((np.concatenate(p) <= 0.05).mean())


@pytest.mark.parametrize("luck", [0.0, 1.0])
def test_equal_systems_are_told_apart_as_rarely_as_alpha_says(luck: float) -> None:
    assert 0.03 < share_of_alarms(luck, 0.0) < 0.07


def test_taking_queries_of_a_video_as_independent_finds_what_is_not_there() -> None:
    assert share_of_alarms(1.0, 0.0, by_video=False) > 0.1


def test_a_real_difference_is_found() -> None:
    assert share_of_alarms(0.5, 0.9) > 0.95


def test_intervals_cover_the_truth_as_often_as_they_promise() -> None:
    rng = np.random.default_rng(7)
    held = []
    for seed in range(10):
        differences, clusters = planted(rng, 25, 100, 0.7, 0.0)
        ends = bootstrap_intervals(differences, clusters, resamples=500, seed=seed)
        held.append((ends[:, 0] <= 0) & (ends[:, 1] >= 0))
    assert 0.925 < float(np.mean(held)) < 0.975


# ------------------------------------------------------------------------------- corrections

families = arrays.arrays(np.float64, st.integers(1, 8), elements=st.floats(0.0001, 1))


@given(families)
def test_holm_steps_down_as_it_is_defined(p: Floats) -> None:
    for alpha in (*(own for own in corrected(p).tolist() if own < 1), 0.05):
        rejected = set()
        for step, number in enumerate(sorted(range(len(p)), key=lambda number: p[number])):
            if p[number] * (len(p) - step) > alpha:
                break
            rejected.add(number)
        assert rejected == set(np.flatnonzero(corrected(p) <= alpha).tolist())


@given(families)
def test_corrections_raise_p_and_keep_its_order(p: Floats) -> None:
    holm, bonferroni = corrected(p), corrected(p, "bonferroni")
    order = np.argsort(p, kind="stable")
    assert (holm >= p).all() and (holm <= 1).all()
    assert (np.diff(holm[order]) >= 0).all()
    assert (holm <= bonferroni).all()
    assert corrected(p, "none").tolist() == p.tolist()


def test_each_column_is_a_family_of_its_own() -> None:
    p = np.array([[0.01, 0.2], [0.04, 0.001], [0.03, 0.5]])
    assert corrected(p).tolist() == np.stack([corrected(p[:, 0]), corrected(p[:, 1])], axis=1).tolist()
    assert corrected(p)[:, 0].tolist() == pytest.approx([0.03, 0.06, 0.06])


def test_an_unknown_correction_is_refused() -> None:
    with pytest.raises(UsageError, match="holm"):
        corrected(np.array([0.1]), "magic")  # type: ignore[arg-type]
