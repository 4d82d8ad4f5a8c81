"""Queries of a split answered from the pools of another file: which query is which, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.ranking.toy_split import ToySplit, judgements

from whenabouts.types import UsageError
from whenabouts_systems.ranking.split import pooled_split

OWN = {"7": [("v01", 0.0, 2.0)], "8": [("v01", 2.0, 4.0)], "9": [("v02", 0.0, 2.0)]}
WORDS = {"7": "A dog runs.", "8": "a dog runs", "9": "A dog runs."}


@pytest.fixture
def split(toy: Callable[..., Any]) -> ToySplit:
    return ToySplit(toy(queries=3), judgements(OWN, WORDS))


def test_queries_are_matched_by_their_ids(split: ToySplit) -> None:
    pools = judgements({"9": OWN["9"], "7": OWN["7"]}, WORDS, {"9": ["v02", "v03"], "7": ["v01"]})
    found = pooled_split(split, pools)
    assert [query.id for query in found.queries] == ["9", "7"]
    assert found.rows.tolist() == [2, 0]
    found.query_batch(np.array([1, 0]))
    assert split.asked == [0, 2]


def test_queries_counted_another_way_are_matched_by_video_and_words_in_their_order(split: ToySplit) -> None:
    theirs = {"v02#0": OWN["9"], "v01#0": OWN["7"], "v01#1": OWN["8"]}
    words = {"v02#0": "a  dog runs", "v01#0": "A DOG runs.", "v01#1": "a dog runs."}
    found = pooled_split(split, judgements(theirs, words, {name: ["v01", "v02"] for name in theirs}))
    assert dict(zip([query.id for query in found.queries], found.rows.tolist(), strict=True)) == {
        "v02#0": 2,
        "v01#0": 0,
        "v01#1": 1,
    }


def test_a_query_without_a_pool_is_left_out_and_keeps_its_place_in_the_count(split: ToySplit) -> None:
    theirs, words = {"v01#0": OWN["7"], "v01#1": OWN["8"]}, {"v01#0": "a dog runs", "v01#1": "a dog runs"}
    found = pooled_split(split, judgements(theirs, words, {"v01#1": ["v01"]}))
    assert ([query.id for query in found.queries], found.rows.tolist()) == (["v01#1"], [1])


def test_another_system_reads_the_same_queries(split: ToySplit, toy: Callable[..., Any]) -> None:
    other = ToySplit(toy(queries=3, seed=1), judgements(OWN, WORDS))
    found = pooled_split(split, judgements({"9": OWN["9"]}, WORDS, {"9": ["v02"]})).beside(other)
    found.query_batch(np.array([0]))
    assert (split.asked, other.asked) == ([], [2])


def test_a_file_without_pools_is_refused(split: ToySplit) -> None:
    with pytest.raises(UsageError, match=r"pools\.json: has no pools"):
        pooled_split(split, judgements(OWN, WORDS, name="pools.json"))


def test_a_pool_with_an_unknown_video_is_refused(split: ToySplit) -> None:
    pools = judgements(OWN, WORDS, {"7": ["v01", "v77"]}, "pools.json")
    with pytest.raises(UsageError, match=r"query '7' names video 'v77', which is not among the 13 videos"):
        pooled_split(split, pools)


def test_a_query_without_a_positive_is_refused(split: ToySplit) -> None:
    pools = judgements({**OWN, "8": []}, WORDS, {"8": ["v01", "v02"]}, "pools.json")
    with pytest.raises(UsageError, match=r"pools\.json: query '8' has a pool but no positive"):
        pooled_split(split, pools)


def test_a_query_that_the_split_does_not_have_is_refused(split: ToySplit) -> None:
    theirs = {"v01#0": OWN["7"], "v01#1": OWN["8"], "v01#2": OWN["8"]}
    words = dict.fromkeys(theirs, "a dog runs")
    with pytest.raises(UsageError, match=r"query 'v01#2' \('a dog runs' in video 'v01'\) is not among the 3"):
        pooled_split(split, judgements(theirs, words, {name: ["v01"] for name in theirs}))


def test_equal_ids_of_other_words_are_refused(split: ToySplit) -> None:
    pools = judgements(OWN, {**WORDS, "8": "a cat sleeps"}, {name: ["v01"] for name in OWN})
    with pytest.raises(UsageError, match="query '8' is 'a cat sleeps' there and 'a dog runs'"):
        pooled_split(split, pools)
