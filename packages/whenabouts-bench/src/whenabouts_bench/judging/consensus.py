"""What several annotators' grades of one moment come to: paper 004, section 3.2, to the word.

Two annotators within 1 of each other agree, and the mean of their grades, rounded up, is the final grade.
Otherwise two more are asked. Of the four grades one highest and one lowest are dropped; where the other two
are within 1 of each other, their mean, rounded up, is the final grade; else the pair of query and moment is
discarded.

A task set for a single annotator, which the paper has not, takes the grade as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

TOLERANCE = 1
"""Grades that are so far apart still agree."""
_FIRST, _ALL = 2, 4


@dataclass(frozen=True, slots=True)
class Consensus:
    """The outcome for one task.

    `grade` is the final grade, None where there is none (yet); `missing` is how many more annotators are
    needed, 0 where the outcome is settled; `used` are the places of the grades that the final one is the
    mean of, `annotators` how many were looked at.
    """

    grade: int | None
    missing: int = 0
    used: tuple[int, ...] = ()
    annotators: int = 0

    @property
    def is_discarded(self) -> bool:
        """Whether four annotators were asked in vain."""
        return self.grade is None and not self.missing


def agree(first: int, second: int) -> bool:
    """Whether two grades are within 1 of each other."""
    return abs(first - second) <= TOLERANCE


@cache
def consensus(grades: tuple[int, ...], annotators: int = _FIRST) -> Consensus:
    """The outcome of grades in the order in which annotators gave them; those after the fourth do not count.

    >>> consensus((2, 3)).grade, consensus((1, 3)).missing, consensus((1, 3, 4, 2)).grade
    (3, 2, 3)
    >>> consensus((0, 4, 0, 4)).is_discarded
    True
    """
    if annotators == 1 and grades:
        return Consensus(grades[0], used=(0,), annotators=1)
    if len(grades) < annotators:
        return Consensus(None, missing=annotators - len(grades))
    if agree(grades[0], grades[1]):
        return _mean(grades, (0, 1), _FIRST)
    if len(grades) < _ALL:
        return Consensus(None, missing=_ALL - len(grades))
    first, second = sorted(range(_ALL), key=lambda place: (grades[place], place))[1:-1]
    if agree(grades[first], grades[second]):
        return _mean(grades, (min(first, second), max(first, second)), _ALL)
    return Consensus(None, annotators=_ALL)


def _mean(grades: tuple[int, ...], used: tuple[int, int], annotators: int) -> Consensus:
    rounded_up = (grades[used[0]] + grades[used[1]] + 1) // 2
    return Consensus(rounded_up, used=used, annotators=annotators)
