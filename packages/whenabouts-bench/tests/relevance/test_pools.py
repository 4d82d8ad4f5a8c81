from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.golden_folder import cases as golden_cases
from tests.golden_folder import golden_folder
from tests.relevance.conftest import WordEncoder
from tests.relevance.made_pools import (
    THINGS,
    Construction,
    GivenSimilarity,
    annotated,
    construction,
    household,
)

from whenabouts.types import UsageError
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.released.mvmr_pools import (
    AsReleased,
    BeyondThresholds,
    ReleasedCheck,
    ReleasedConstruction,
    last_per_video,
)
from whenabouts_bench.relevance.emscore import Scores
from whenabouts_bench.relevance.pool_report import count_pools, report_lines
from whenabouts_bench.relevance.pools import (
    NO_MOMENT,
    NOT_FULL,
    Pools,
    PoolSettings,
    VisualCheck,
    build_pools,
    described_by,
    first_passing,
)
from whenabouts_bench.relevance.similarity import (
    Thresholds,
    VectorSimilarity,
    most_similar_per_video,
    nearest_of,
    query_distance,
)

RELEASED = BeyondThresholds()
_CUT = 20
"""The number of candidates that the program considers, source video included."""


@pytest.fixture(scope="module")
def cases() -> list[Construction]:
    files = golden_cases("mvmr_build", "*.npz")
    if not files:
        pytest.skip(f"{golden_folder()} has no mvmr_build")
    return [construction(file) for file in files]


def released_check(case: Construction) -> ReleasedCheck:
    own = case.scorer.score(np.arange(len(case.words)), case.arrays["sentence_video"]).full_f
    drawn = case.arrays["sampled_negative.pairs_sentence_video"].T
    return ReleasedCheck(case.scorer, own, case.scorer.score(drawn[0], drawn[1]).full_f)


def test_the_query_check_finds_the_released_similarities_and_negatives(cases: list[Construction]) -> None:
    for case in cases:
        described = described_by(case.annotations)
        assert described.video.tolist() == case.arrays["sentence_video"].tolist()
        count = len(case.words)
        ((_, nearest),) = nearest_of(case.similarity, described, np.arange(count))
        assert nearest == pytest.approx(case.arrays["query_video_similarity_max"], abs=1e-6)
        distance = query_distance(case.similarity, described, count, RELEASED)
        found = np.unpackbits(distance.far, axis=1, count=described.videos).astype(bool)
        assert (found == case.arrays["neg_candidate_mask"]).all()


@pytest.mark.parametrize(
    ("one_per_video", "name"),
    [(last_per_video, "pos_candidate_sentence_per_video"),
     (most_similar_per_video, "pos_candidate_most_similar_sentence_per_video_paper")],
)  # fmt: skip
def test_one_sentence_stands_for_a_video_as_released_and_as_in_the_paper(
    cases: list[Construction], one_per_video: Any, name: str
) -> None:
    for case in cases:
        described = described_by(case.annotations)
        distance = query_distance(case.similarity, described, len(case.words), RELEASED)
        found = np.full(case.arrays[name].shape, -1)
        for query in range(len(found)):
            places, _ = one_per_video(*distance.near(query), described)
            found[query, described.video[places]] = described.sentence[places]
        found[np.arange(len(found)), case.arrays["sentence_video"]] = -1
        assert (found == case.arrays[name]).all()


def test_the_two_means_and_what_passes_are_the_released_ones(cases: list[Construction]) -> None:
    for case in cases:
        check = released_check(case)
        assert check.least_positive == pytest.approx(float(case.arrays["em_pos_threshold"]), abs=1e-5)
        assert check.most_negative == pytest.approx(float(case.arrays["em_neg_threshold"]), abs=1e-5)
        near = np.nonzero(case.arrays["pos_candidate_sentence_per_video"] >= 0)
        far = np.nonzero(case.arrays["neg_candidate_mask"])
        assert (check.positive(*near) == case.arrays["pos_kept"][near]).all()
        assert (check.negative(*far) == case.arrays["neg_kept_before_sampling"][far]).all()
        for pairs, idf, kept, stored in (
            (near, False, "pos_kept", "pos_candidate_emscore_noidf"),
            (far, True, "neg_kept_before_sampling", "neg_emscore_idf"),
        ):
            assert case.arrays[kept].sum() == case.arrays[kept][pairs].sum()
            score = case.scorer.score(*pairs, idf=idf).full_f
            assert score == pytest.approx(case.arrays[stored][pairs], abs=1e-5)
        consistent = VisualCheck(check.scorer, check.own, check.drawn)
        assert (consistent.positive(*near) == case.arrays["pos_kept_if_idf_used_consistently"][near]).all()


def test_the_released_draw_and_ours_are_drawn_from_the_same_videos(
    cases: list[Construction], monkeypatch: pytest.MonkeyPatch
) -> None:
    for case in cases:
        check = released_check(case)
        monkeypatch.setattr(ReleasedConstruction, "visual_check", lambda *_, it=check: it)
        settings = AsReleased(size=case.pool_size)
        made = build_pools(case.annotations, case.similarity, settings, case.scorer)
        assert len(made.pools) == len(case.words)
        released = case.arrays["released_run.final_pool_video"]
        positives = case.arrays["released_run.final_positive_video"]
        for pool, theirs, good in zip(made.pools, released, positives, strict=True):
            theirs, good = theirs[theirs >= 0], good[good >= 0]
            last = case.arrays["pos_candidate_sentence_per_video"][pool.query]
            if (last >= 0).sum() < _CUT:  # with more candidates, the number considered is random
                assert len(pool.videos) == len(theirs) and len(pool.rows) == 1 + len(good)
            kept = np.flatnonzero(case.arrays["pos_kept"][pool.query])
            bad = np.flatnonzero(case.arrays["neg_kept_before_sampling"][pool.query])
            ours = pool.videos[1 : len(pool.rows)]
            assert {*ours, *good.tolist()} <= set(kept.tolist())
            assert {*pool.videos[len(pool.rows) :], *theirs[1 + len(good) :].tolist()} <= set(bad.tolist())
            assert pool.videos[0] == theirs[0]
            sentences = case.annotations.query[list(pool.rows[1:])]
            assert sentences.tolist() == last[list(ours)].tolist()
            told = case.arrays["released_run.final_positive_sentence"][pool.query]
            assert told[told >= 0].tolist() == last[good].tolist()


# A data set with known pools: eight paraphrases of one thing, and as many of others.


def built(annotations: Annotations | None = None, *, rules: Any = PoolSettings, **settings: object) -> Pools:
    annotations = household() if annotations is None else annotations
    similarity = VectorSimilarity.of(annotations.queries, WordEncoder())
    wanted: dict[str, object] = {"size": 8, "most_positives": 3, "positive": 0.9, "negative": 0.8, **settings}
    return build_pools(annotations, similarity, rules(**wanted))


def thing_of(pools: Pools, video: int) -> int:
    return int(pools.source.videos[video].id[1:]) % 4


def test_positives_show_the_thing_and_negatives_do_not() -> None:
    pools = built()
    assert len(pools.pools) == len(pools.source.queries) == 28 and not pools.dropped
    for pool in pools.pools:
        own = pools.source.video[pool.rows[0]]
        assert pool.videos[0] == own and len(set(pool.videos)) == 8
        answering = 3 - ([*pools.source.video[list(pool.rows)]].count(own) - 1)
        alike = [thing_of(pools, video) == thing_of(pools, own) for video in pool.videos]
        assert alike == [True] * answering + [False] * (8 - answering)
        elsewhere = [int(pools.source.video[row]) for row in pool.rows if pools.source.video[row] != own]
        assert elsewhere == list(pool.videos[1:answering])


def test_another_moment_of_the_own_video_is_a_positive_within_k_and_not_as_released() -> None:
    pools = built()
    query = next(q for q in range(28) if pools.source.queries[q].id == "v06#0")
    pool = next(pool for pool in pools.pools if pool.query == query)
    spans = [
        (pools.source.videos[int(pools.source.video[r])].id, float(pools.source.start[r])) for r in pool.rows
    ]
    assert spans[:2] == [("v06", 1.0), ("v06", 8.0)] and len(spans) == 3
    released = built(rules=AsReleased)
    pool = next(pool for pool in released.pools if pool.query == query)
    assert [released.source.video[row] for row in pool.rows].count(6) == 1


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_no_query_has_more_positive_moments_than_it_may(most: int) -> None:
    """One video has the thing at seven moments, half of them paraphrased; others have it once."""
    again = {"duration": 90.0, "timestamps": [[10.0 * n, 10.0 * n + 5] for n in range(7)]}
    videos = {
        "often": again
        | {"sentences": ["person opens the door", "a person opens the door"] * 3 + ["person opens the door."]}
    }
    for number in range(12):
        text = "person opens the door" if number < 6 else f"dog eats {number} of the red apples"
        videos[f"v{number}"] = {"duration": 20.0, "timestamps": [[1.0, 5.0]], "sentences": [text]}
    pools = built(annotated(videos), most_positives=most, size=6)
    for pool in pools.pools:
        assert len(pool.rows) <= most and len(pool.videos) == 6
        own = int(pools.source.video[pool.rows[0]])
        inside = [row for row in pool.rows if pools.source.video[row] == own]
        if pools.source.videos[own].id == "often":
            assert len(inside) == min(most, 7) and pool.no_room == 7 - len(inside)
            assert list(pool.similarity[: len(inside)]) == sorted(
                pool.similarity[: len(inside)], reverse=True
            )
    counts = count_pools(pools.annotations)
    assert counts.most_positives == max(len(pool.rows) for pool in pools.pools) <= most
    beyond = pools.about()["own moments beyond the most positives"]
    assert beyond == sum(pool.no_room for pool in pools.pools)
    assert (beyond > 0) == (most < 7)


def test_the_own_moment_as_others_marked_it_takes_nothing_of_k() -> None:
    """Four annotators marked the moment of "often"; a fifth span of the words is another moment."""
    spans = [[10.0, 20.0], [10.0, 19.0], [11.0, 20.0], [12.0, 21.0], [40.0, 50.0]]
    often = {"duration": 90.0, "timestamps": spans, "sentences": ["person opens the door"] * 5}
    videos: dict[str, dict[str, Any]] = {"often": often}
    for number in range(12):
        text = "person opens the door" if number < 6 else f"dog eats {number} of the red apples"
        videos[f"v{number}"] = {"duration": 20.0, "timestamps": [[1.0, 5.0]], "sentences": [text]}
    pools = built(annotated(videos), most_positives=3, size=6)
    (first, *_) = pools.pools
    of_video = [pools.source.videos[int(pools.source.video[row])].id for row in first.rows]
    # Its moment with three more spans, the other moment, and one video: 3 of k.
    assert of_video[:5] == ["often"] * 5 and len(of_video) == 6 and first.no_room == 0
    counts = count_pools(pools.annotations)
    assert counts.positive_videos < counts.moments_per_query
    answered = next(line for line in report_lines(pools, [], True) if "how many moments answer" in line)
    assert answered.endswith(
        "(the own moment's other spans, by an IoU of 0.5 or more, do not count as positives)"
    )
    short = built(annotated(videos), most_positives=1, size=6)
    # The other moment has no room; the three spans of the own moment stay.
    assert len(short.pools[0].rows) == 4 and short.pools[0].no_room == 1


def test_a_seed_decides_and_another_seed_decides_otherwise() -> None:
    first, again, other = built(seed=4), built(seed=4), built(seed=5)
    assert first.pools == again.pools
    assert first.pools != other.pools
    assert [len(pool.videos) for pool in first.pools] == [len(pool.videos) for pool in other.pools]


@pytest.mark.slow
def test_a_random_draw_takes_all_that_pass_equally_often() -> None:
    seen: Counter[int] = Counter()
    for seed in range(60):
        seen.update(built(seed=seed).pools[1].videos[3:])
    # 60 draws of 5 out of 18: each 16.7 times on average, with a standard deviation of 3.5
    assert len(seen) == 18 and max(seen.values()) < 32 and min(seen.values()) > 4


def test_queries_whose_pool_cannot_be_filled_are_dropped_and_counted() -> None:
    lonely = {
        f"x{n}": {"duration": 9.0, "timestamps": [[0.0, 2.0]], "sentences": [f"person {THINGS[0]}"]}
        for n in range(3)
    }
    crowd = {
        f"y{n}": {"duration": 9.0, "timestamps": [[0.0, 2.0]], "sentences": [f"word{n} other{n} third{n}"]}
        for n in range(6)
    }
    pools = built(annotated({**lonely, **crowd}), size=8, most_positives=1, negative=0.5)
    # A query of the crowd has 8 other videos; one of the three similar ones excludes 6.
    assert pools.dropped == {NOT_FULL: 3} and len(pools.pools) == 6
    assert set(pools.left_out) == {0, 1, 2}
    kept = built(annotated({**lonely, **crowd}), size=8, most_positives=1, negative=0.5, rules=AsReleased)
    assert [len(pool.videos) for pool in kept.pools] == [7, 7, 7, 8, 8, 8, 8, 8, 8]
    assert len(kept.full) == 6
    assert kept.about()["left out"] == {
        f"{NOT_FULL}: they are in the file, and the evaluation leaves them out": 3
    }


def test_a_data_set_none_of_whose_pools_can_be_filled_is_refused() -> None:
    alike = {f"v{n}": {"duration": 9.0, "timestamps": [[0, 2]], "sentences": ["the same"]} for n in range(9)}
    with pytest.raises(UsageError, match=r"no query has a pool of 8 videos \(9 queries have a pool that"):
        built(annotated(alike))


def test_a_split_without_judgements_is_told_what_it_lacks() -> None:
    silent = household().where(np.zeros(len(household().query), bool))
    with pytest.raises(UsageError, match=r"\(28 queries have no positive moment\); give judged moments"):
        built(silent)
    similarity = VectorSimilarity.of(silent.queries, WordEncoder())
    with pytest.raises(UsageError, match=r"\(28 queries have no positive moment\); give judged moments"):
        build_pools(silent, similarity, PoolSettings(size=6), Brightness(silent))


def test_fewer_videos_than_a_pool_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"has 24 videos, too few for a pool of 30; give a --pool-size of 24"
    ):
        built(size=30)


def test_a_query_without_a_moment_is_dropped_and_its_video_is_no_negative_of_what_it_shows() -> None:
    annotations = household()
    end = annotations.end.copy()
    end[5] = annotations.start[5]  # a query's moment becomes empty
    start = annotations.start.copy()
    pools = built(replace(annotations, start=start, end=end))
    (query,) = pools.left_out
    assert pools.dropped == {NO_MOMENT: 1} and query == annotations.query[5]
    video = int(annotations.video[5])
    for pool in pools.pools:
        same = thing_of(pools, pool.videos[0]) == thing_of(pools, video)
        assert not (same and video in pool.videos)


def test_a_query_that_is_judged_irrelevant_everywhere_is_dropped() -> None:
    annotations = household()
    relevance = annotations.relevance.copy()
    relevance[0] = 0
    pools = built(replace(annotations, relevance=relevance))
    assert pools.dropped == {NO_MOMENT: 1} and 0 in pools.left_out


def test_a_query_asked_of_two_videos_has_both_and_fewer_others() -> None:
    annotations = household()
    more: dict[str, Any] = {
        "query": np.append(annotations.query, 0), "video": np.append(annotations.video, 4),
        "start": np.append(annotations.start, 2.0), "end": np.append(annotations.end, 3.0),
        "relevance": np.append(annotations.relevance, 1.0),
    }  # fmt: skip
    order = np.argsort(more["query"], kind="stable")
    pools = built(replace(annotations, **{name: column[order] for name, column in more.items()}))
    pool = pools.pools[0]
    assert pool.videos[:2] == (0, 4) and len({*pool.videos}) == 8
    assert len(pool.rows) == 3 and sum(thing_of(pools, video) == 0 for video in pool.videos) == 2


def test_videos_without_a_sentence_are_in_no_pool() -> None:
    annotations = household()
    silent = annotated({"silent": {"duration": 5.0, "timestamps": [], "sentences": []}}).videos
    pools = built(replace(annotations, videos=(*annotations.videos, *silent)))
    assert all(24 not in pool.videos for pool in pools.pools)


def test_frame_numbers_taken_for_seconds_are_refused_by_what_they_are() -> None:
    kitchen = {
        f"s{n}": {"duration": 100.0, "timestamps": [[10.0, 20.0], [940.0, 1280.0]], "sentences": ["a", "b"]}
        for n in range(9)
    }
    with pytest.raises(UsageError, match=r"9 of 18 moments start .*'s0#1': 940 s in 's0' of 100 s.*fps"):
        built(annotated(kitchen))


def test_one_moment_behind_the_end_among_many_is_only_dropped() -> None:
    annotations = household()
    start, end = annotations.start.copy(), annotations.end.copy()
    start[3] = end[3] = 90.0
    assert built(replace(annotations, start=start, end=end)).dropped == {NO_MOMENT: 1}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"size": 1}, "pool size 1"),
        ({"most_positives": 0}, "0 positives in pools of 50"),
        ({"most_positives": 51}, "51 positives in pools of 50"),
        ({"seed": -1}, "seed -1"),
        ({"positive": 0.4}, "thresholds 0.4 and 0.5"),
        ({"positive": 1.2}, "thresholds 1.2 and 0.5"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        PoolSettings(**settings)  # type: ignore[arg-type]


def test_equal_texts_reach_a_threshold_of_one() -> None:
    pools = built(positive=1.0)
    counts = Counter(len(pool.rows) for pool in pools.pools)
    assert max(counts) >= 3


class Brightness:
    """A visual check with known scores: s_tv is high if query and video are equal modulo 8."""

    def __init__(self, annotations: Annotations) -> None:
        self.annotations, self.pairs = annotations, 0

    def score(self, queries: NDArray[np.int64], videos: NDArray[np.int64], *, idf: bool = True) -> Scores:
        self.pairs += len(queries)
        own = self.annotations.video[queries]
        near = np.where(own % 8 == videos % 8, 0.9, 0.1 + 0.001 * (videos % 2)).astype(np.float32)
        return Scores(near, near, near)


def test_the_visual_check_takes_away_what_it_does_not_see() -> None:
    annotations = household()
    similarity = VectorSimilarity.of(annotations.queries, WordEncoder())
    settings = PoolSettings(size=6, most_positives=4, negative=0.8)
    scorer = Brightness(annotations)
    pools = build_pools(annotations, similarity, settings, scorer, frames="made")
    assert pools.visual is not None
    assert pools.visual.least_positive == pytest.approx(0.9, abs=1e-6)
    assert 0.1 < pools.visual.most_negative < 0.101
    for pool in pools.pools:
        own = pool.videos[0]
        near = [video for video in pool.videos[1:] if thing_of(pools, video) == thing_of(pools, own)]
        assert len(near) == 2 and all(video % 8 == own % 8 for video in near)  # of 5 near by words
        assert all(video % 2 == 0 for video in pool.videos if thing_of(pools, video) != thing_of(pools, own))
    assert pools.about()["visual check"]["frames"] == "made"
    assert built().about()["visual check"] == "none: the query check alone"


@given(st.data())
def test_what_passes_first_is_what_a_plain_walk_finds(data: st.DataObject) -> None:
    draw = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    count = data.draw(st.integers(1, 6))
    orders = [draw.permutation(40)[: draw.integers(0, 40)] for _ in range(count)]
    wanted = draw.integers(0, 9, count)
    good = draw.random((50, 40)) < data.draw(st.sampled_from([0.0, 0.1, 0.6, 1.0]))
    queries = draw.choice(50, count, replace=False).tolist()
    found = first_passing(queries, orders, wanted, lambda q, v: good[q, v])
    for query, order, most, chosen in zip(queries, orders, wanted.tolist(), found, strict=True):
        assert chosen == [video for video in order.tolist() if good[query, video]][:most]


def test_only_as_many_pairs_are_scored_as_are_needed() -> None:
    looked = []

    def passes(queries: NDArray[np.int64], videos: NDArray[np.int64]) -> NDArray[np.bool_]:
        looked.append(len(videos))
        return np.ones(len(videos), bool)

    first_passing([0, 1], [np.arange(4000), np.arange(4000)], np.array([5, 3]), passes)
    assert looked == [14 + 10]


def test_blocks_do_not_change_what_the_query_check_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = np.random.default_rng(0).uniform(-1, 1, (28, 28)).astype(np.float32)
    described = described_by(household())
    whole = query_distance(GivenSimilarity(matrix), described, 28, Thresholds())
    monkeypatch.setattr("whenabouts_bench.relevance.similarity._QUERIES_AT_ONCE", 5)
    parts = query_distance(GivenSimilarity(matrix), described, 28, Thresholds())
    for name in ("far", "starts", "column", "similarity"):
        assert (getattr(whole, name) == getattr(parts, name)).all(), name


def test_equality_passes_in_the_paper_and_not_as_released() -> None:
    values = np.array([0.9, 0.5, 0.7, np.nan], np.float32)
    paper, released = Thresholds(), RELEASED
    assert paper.reached(values).tolist() == [True, False, False, False]
    assert paper.avoided(values).tolist() == [False, True, False, False]
    assert not released.reached(values).any() and not released.avoided(values).any()
    # A cosine of 1 is reached despite rounding.
    assert Thresholds(positive=1.0).reached(np.array([0.9999999], np.float32)).all()


def test_as_released_only_twenty_candidates_are_looked_at_the_own_video_among_them() -> None:
    crowd = household(120)
    wanted = {"size": 60, "most_positives": 40}
    assert {sum(thing_of(p, v) == thing_of(p, pool.videos[0]) for v in pool.videos)
            for p in [built(crowd, **wanted)] for pool in p.pools} == {30}  # fmt: skip
    released = built(crowd, **wanted, rules=AsReleased)
    found = {
        sum(thing_of(released, v) == thing_of(released, pool.videos[0]) for v in pool.videos)
        for pool in released.pools
    }
    assert found == {20, 21}
