"""What a system finds with and without the positives, held against plain loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.ranking.test_rank import Row, by_hand
from tests.ranking.toy_split import ToySplit, judgements

from whenabouts.types import Query, UsageError, Video
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.ranking import answerability, localize
from whenabouts_systems.ranking.answerability import (
    Answerability,
    SplitSystem,
    judged_videos,
    measure_answerability,
    with_drawn_pools,
)
from whenabouts_systems.ranking.confidence import Background
from whenabouts_systems.ranking.split import pooled_split

QUERIES, IOU = 14, 0.5
JUDGED = {
    f"q{at}": [(f"v{at % 12:02d}", 0.0, 2.0), *([("v03", 0.0, 4.0)] if at % 3 == 0 else [])]
    for at in range(QUERIES)
}
# The last two queries have the words of the first.
WORDS = {"q12": "Words of q0.", "q13": "words of  q0"}
POOLS = {f"q{at}": [f"v{(at + step) % 12:02d}" for step in range(5)] for at in range(QUERIES)}
HOW = Decoding(top_videos=2, spans_per_query=3)


def system(toy: Callable[..., Any], kind: str = "borders") -> Any:
    one = toy(kind, queries=QUERIES)
    one.decoding = HOW
    return one


def split_of(one: Any) -> ToySplit:
    return ToySplit(one, judgements(JUDGED, WORDS, POOLS))


def first(one: Any, query: int, videos: list[str]) -> Row | None:
    """The best moment in some videos; of equal ones the first by video, start and end."""
    rows = [at for at, name in enumerate(one.video_ids) if name in videos]
    found = by_hand(one, query, HOW, rows, weighted=True)
    return found[0] if found else None


@pytest.fixture
def found(toy: Callable[..., Any]) -> Answerability:
    return measure_answerability(system(toy), split_of(system(toy)), iou=IOU)


def test_top_scores_are_those_of_the_whole_pool_and_of_what_is_left_of_it(
    toy: Callable[..., Any], found: Answerability
) -> None:
    one, judged = system(toy), judged_videos(split_of(system(toy)).annotations)
    for query, name in enumerate(found.query_ids):
        best = first(one, query, POOLS[name])
        assert best is not None
        assert found.top["in"][query] == best[0]
        left = first(one, query, [video for video in POOLS[name] if video not in judged[name]])
        assert left is not None
        assert found.top["out"][query] == left[0]


def test_an_answer_is_right_if_it_shares_enough_with_a_positive(
    toy: Callable[..., Any], found: Answerability
) -> None:
    one = system(toy)
    expected = []
    for query, name in enumerate(found.query_ids):
        best = first(one, query, POOLS[name])
        assert best is not None
        shares = [
            max(0.0, min(best[3], end) - max(best[2], start)) / (max(best[3], end) - min(best[2], start))
            for video, start, end in JUDGED[name]
            if video == best[1]
        ]
        expected.append(max(shares, default=0.0) >= IOU)
    assert found.right.tolist() == expected
    assert 0 < sum(expected) < QUERIES


def test_videos_judged_for_a_query_of_the_same_words_are_taken_out_too(found: Answerability) -> None:
    judged = judged_videos(judgements(JUDGED, WORDS))
    assert judged["q0"] == judged["q12"] == judged["q13"] == {"v00", "v03", "v01"}
    assert judged["q1"] == {"v01"}


@pytest.mark.slow
def test_a_margin_is_how_far_a_score_is_above_what_unrelated_queries_score_on_the_same_videos(
    toy: Callable[..., Any], found: Answerability
) -> None:
    one, judged = system(toy), judged_videos(split_of(system(toy)).annotations)
    drawn = [
        next(at for at in range(QUERIES) if WORDS.get(f"q{at}", f"words of q{at}") == text)
        for text in found.unrelated
    ]
    assert len(drawn) == 12  # each of different words
    for query, name in enumerate(found.query_ids):
        for side, gone in (("in", frozenset[str]()), ("out", judged[name])):
            best = []
            for other in drawn:
                if judged[f"q{other}"] == judged[name] and name in ("q0", "q12", "q13"):
                    continue  # the same words
                if other == query:
                    continue
                left = [v for v in POOLS[name] if v not in gone and v not in judged[f"q{other}"]]
                row = first(one, other, left)
                if row is not None:
                    best.append(row[0])
            low, middle, high = np.quantile(best, [0.25, 0.5, 0.75])
            expected = (found.top[side][query] - middle) / (high - low)
            assert found.margin[side][query] == pytest.approx(expected), (name, side)


def test_blocks_of_queries_do_not_change_what_is_found(
    toy: Callable[..., Any], found: Answerability, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answerability, "_TOGETHER", 3)
    again = measure_answerability(system(toy), split_of(system(toy)), iou=IOU)
    np.testing.assert_array_equal(again.margin["in"], found.margin["in"])
    np.testing.assert_array_equal(again.top["out"], found.top["out"])
    assert again.right.tolist() == found.right.tolist()


def test_a_pool_of_nothing_but_positives_has_no_trial_without_them(toy: Callable[..., Any]) -> None:
    one = system(toy)
    pools = {**POOLS, "q5": ["v05"]}
    found = measure_answerability(one, ToySplit(one, judgements(JUDGED, WORDS, pools)), iou=IOU)
    assert np.flatnonzero(np.isnan(found.top["out"])).tolist() == [5]
    assert np.flatnonzero(np.isnan(found.margin["out"])).tolist() == [5]
    assert np.isfinite(found.margin["in"]).all()


def test_no_margin_is_told_where_nearly_all_queries_have_their_answer_in_what_is_left(
    toy: Callable[..., Any],
) -> None:
    one = system(toy)
    judged = {name: [*rows, ("v04", 0.0, 2.0)] for name, rows in JUDGED.items() if name not in ("q5", "q6")}
    pools = {**POOLS, "q5": ["v05", "v04"]}
    told = ToySplit(one, judgements({**JUDGED, **judged}, WORDS, pools))
    found = measure_answerability(one, told, iou=IOU)
    assert np.isfinite(found.top["out"][5])
    assert np.isnan(found.margin["out"][5])


def test_too_few_queries_cannot_say_what_chance_scores(toy: Callable[..., Any]) -> None:
    one = system(toy)
    some = {name: JUDGED[name] for name in ("q0", "q1", "q2")}
    split = ToySplit(one, judgements(some, {}, {name: POOLS[name] for name in some}))
    with pytest.raises(UsageError, match="has 3 queries with different words"):
        measure_answerability(one, split, iou=IOU)
    with pytest.raises(UsageError, match="2 unrelated queries found anything"):
        Background.of([1.0, 2.0, float("-inf"), float("nan")])


def test_a_system_that_finds_no_moments_is_refused(toy: Callable[..., Any]) -> None:
    one = system(toy, "retriever")
    with pytest.raises(UsageError, match="does not find moments"):
        measure_answerability(one, split_of(one), iou=IOU)


def test_equal_scores_of_unrelated_queries_leave_a_margin_finite() -> None:
    told = Background.of([2.0] * 10)
    assert np.isfinite(told.margin(3.0))
    assert told.margin(2.0) == 0.0


def test_drawn_pools_hold_the_judged_videos_and_others(toy: Callable[..., Any]) -> None:
    annotations = split_of(system(toy)).annotations
    drawn = with_drawn_pools(annotations, 6, seed=1)
    judged = judged_videos(annotations)
    for name, pool in drawn.pools.items():
        assert pool[0] == JUDGED[name][0][0]
        assert len(pool) == len(set(pool)) == 6
        assert judged[name] <= set(pool)
    assert {len(pool) for pool in with_drawn_pools(annotations, 2).pools.values()} == {2}
    assert drawn.pools == with_drawn_pools(annotations, 6, seed=1).pools
    assert drawn.pools != with_drawn_pools(annotations, 6, seed=2).pools
    one = system(toy)
    assert len(pooled_split(ToySplit(one, annotations), drawn).queries) == QUERIES


class _CountedName(str):
    """The id of a video that counts how often names were looked up."""

    lookups = 0

    def __hash__(self) -> int:
        type(self).lookups += 1
        return str.__hash__(self)


def test_the_work_for_a_drawn_pool_does_not_grow_with_the_split() -> None:
    count, queries = 2000, 50
    videos = tuple(Video(_CountedName(f"v{at}"), 10.0) for at in range(count))
    asked = tuple(Query(f"q{at}", f"words {at}") for at in range(queries))
    rows, zeros, ones = np.arange(queries), np.zeros(queries), np.ones(queries)
    drawn = with_drawn_pools(Annotations("large", videos, asked, rows, rows, zeros, ones, ones), 6)
    assert {len(pool) for pool in drawn.pools.values()} == {6}
    assert _CountedName.lookups < queries * 100


def test_pools_cannot_be_drawn_without_positives_or_room(toy: Callable[..., Any]) -> None:
    annotations = split_of(system(toy)).annotations
    with pytest.raises(UsageError, match="a pool needs 2 or more"):
        with_drawn_pools(annotations, 1)
    with pytest.raises(UsageError, match="no query has a positive"):
        with_drawn_pools(judgements({"q0": []}), 5)


def test_a_localizer_with_a_chooser_is_tried_as_the_system_that_is_both(
    toy: Callable[..., Any], found: Answerability
) -> None:
    localizer, retriever = system(toy, "localizer"), system(toy, "retriever")
    pair = measure_answerability(
        localizer, split_of(localizer), iou=IOU, retriever=SplitSystem.encoded(retriever, split_of(retriever))
    )
    for side in ("in", "out"):
        np.testing.assert_array_equal(pair.top[side], found.top[side])
        np.testing.assert_array_equal(pair.margin[side], found.margin[side])
    alone = measure_answerability(localizer, split_of(localizer), iou=IOU)
    assert (alone.top["in"] != found.top["in"]).any()


def test_a_chooser_of_other_videos_is_refused(toy: Callable[..., Any]) -> None:
    localizer, other = system(toy, "localizer"), toy("retriever", queries=QUERIES, videos=12)
    with pytest.raises(UsageError, match="have different videos"):
        measure_answerability(
            localizer, split_of(localizer), iou=IOU, retriever=SplitSystem.encoded(other, split_of(other))
        )


@pytest.mark.parametrize("copies", [4 << 20, 1])
def test_the_best_moment_of_every_video_is_that_of_plain_loops(
    toy: Callable[..., Any], copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent video of a pool has none."""
    monkeypatch.setattr(localize, "_COPY_BYTES", {"cpu": copies})
    one = system(toy)
    split = split_of(one)
    encoded = SplitSystem.encoded(one, split)
    silent = np.isin(encoded.corpus.ids, ["v03"])
    deaf = replace(encoded, corpus=replace(encoded.corpus, silent=silent))
    best = deaf.best_of_videos(np.arange(QUERIES), [POOLS[name] for name in one.query_ids])
    for query, name in enumerate(one.query_ids):
        columns = (column[query].tolist() for column in vars(best).values())
        rows = [row for row in zip(*columns, strict=True) if row[3] > -np.inf]
        assert {encoded.corpus.ids[row] for row, *_ in rows} == set(POOLS[name]) - {"v03"}
        for row, start, end, score in rows:
            video = encoded.corpus.ids[row]
            assert first(one, query, [video]) == (score, video, start, end)


def test_a_pool_without_videos_is_refused(toy: Callable[..., Any]) -> None:
    encoded = SplitSystem.encoded(system(toy), split_of(system(toy)))
    with pytest.raises(UsageError, match="the pool of query number 1 has no videos"):
        encoded.best_of_videos(np.arange(2), [["v01"], []])
