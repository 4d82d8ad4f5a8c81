"""Consensus (section 3.2 of paper 004), against a second implementation."""

from __future__ import annotations

import math
from itertools import product

import pytest

from whenabouts_bench.judging.consensus import Consensus, consensus


@pytest.mark.parametrize(
    ("grades", "final"),
    [
        ((2, 2), 2),
        ((2, 3), 3),  # the mean, 2.5, rounded up
        ((0, 1), 1),
        ((0, 2, 1, 1), 1),
        ((0, 4, 2, 3), 3),
        ((4, 1, 4, 4), 4),
        ((1, 3, 3, 0), None),  # 1 and 3 are left
    ],
)
def test_examples(grades: tuple[int, ...], final: int | None) -> None:
    assert consensus(grades).grade == final


def by_hand(grades: tuple[int, ...]) -> int | None:
    """The final grade of four annotators, by removing grades from a list as in the paper."""
    if abs(grades[0] - grades[1]) in (0, 1):
        return math.ceil((grades[0] + grades[1]) / 2)
    left = list(grades)
    left.remove(max(left))
    left.remove(min(left))
    return math.ceil(sum(left) / 2) if abs(left[0] - left[1]) in (0, 1) else None


def test_every_four_grades_come_to_what_the_paper_says() -> None:
    for grades in product(range(5), repeat=4):
        outcome = consensus(grades)
        assert outcome.grade == by_hand(grades)
        assert outcome.missing == 0


def test_too_few_annotators_are_counted() -> None:
    for count in range(4):
        for grades in product(range(5), repeat=count):
            missing = consensus(grades).missing
            if count < 2:
                assert missing == 2 - count
            else:
                assert missing == (0 if abs(grades[0] - grades[1]) <= 1 else 4 - count)


def test_annotators_beyond_those_needed_change_nothing() -> None:
    for grades in product(range(5), repeat=4):
        for more in ((0,), (4, 0)):
            assert consensus(grades + more) == consensus(grades)


def test_the_used_grades_are_those_whose_mean_is_final() -> None:
    for grades in product(range(5), repeat=4):
        outcome = consensus(grades)
        if outcome.grade is not None:
            first, second = (grades[place] for place in outcome.used)
            assert outcome.grade == math.ceil((first + second) / 2)


def test_a_single_annotator_is_believed_where_the_set_says_so() -> None:
    assert consensus((3,), annotators=1) == Consensus(3, used=(0,), annotators=1)
    assert consensus((), annotators=1).missing == 1
    assert consensus((3, 0), annotators=1).grade == 3
