"""The final grade of a moment from several annotators' grades (paper 004, section 3.2).

If the first two grades are within 1 of each other, their mean, rounded up, is final. Otherwise two more
annotators are asked, and the highest and the lowest of the four grades are dropped. If the remaining two are
within 1, their mean, rounded up, is final; otherwise the query-moment pair is discarded.

Beyond the paper, a task set may have a single annotator, whose grades are final.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from whenabouts.types import UsageError

TOLERANCE = 1
"""The largest difference between grades that agree."""
_FIRST, _ALL = 2, 4


@dataclass(frozen=True, slots=True)
class Consensus:
    """The outcome of one task.

    `grade` is the final grade, or None; `missing` is the number of annotators still needed, 0 if settled.
    A pair that is settled without a grade is discarded. `used` are the indices of the averaged grades;
    `annotators` is the number of grades considered.
    """

    grade: int | None
    missing: int = 0
    used: tuple[int, ...] = ()
    annotators: int = 0


def agree(first: int, second: int) -> bool:
    """Whether two grades are within 1 of each other."""
    return abs(first - second) <= TOLERANCE


@cache
def consensus(grades: tuple[int, ...], annotators: int = _FIRST) -> Consensus:
    """The outcome of grades in the order given; grades after the fourth are ignored.

    >>> consensus((2, 3)).grade, consensus((1, 3)).missing, consensus((1, 3, 4, 2)).grade
    (3, 2, 3)
    >>> consensus((0, 4, 0, 4))
    Consensus(grade=None, missing=0, used=(), annotators=4)
    """
    if annotators == 1 and grades:
        return Consensus(grades[0], used=(0,), annotators=1)
    if len(grades) < annotators:
        return Consensus(None, missing=annotators - len(grades))
    if agree(grades[0], grades[1]):
        return _mean(grades, (0, 1), _FIRST)
    if len(grades) < _ALL:
        return Consensus(None, missing=_ALL - len(grades))
    return _trimmed(grades)


def consensus_of_set(grades: Sequence[int]) -> Consensus:
    """The outcome of grades whose order is unknown, as in a released table sorted by annotator.

    Four grades exist only where the first two did not agree, so the highest and the lowest are dropped. A
    pair with three grades still needs one. Raises UsageError for more than four.

    >>> consensus_of_set((0, 0, 0, 2)).grade, consensus_of_set((1, 1, 3, 3)).grade
    (0, None)
    """
    if len(grades) > _ALL:
        raise UsageError(f"{len(grades)} grades of one pair; accepted: at most {_ALL}")
    if len(grades) == _ALL:
        return _trimmed(tuple(grades))
    return consensus(tuple(grades)) if len(grades) <= _FIRST else Consensus(None, missing=1)


def _trimmed(grades: tuple[int, ...]) -> Consensus:
    """The outcome of four grades without the highest and the lowest."""
    first, second = sorted(range(_ALL), key=lambda place: (grades[place], place))[1:-1]
    if agree(grades[first], grades[second]):
        return _mean(grades, (min(first, second), max(first, second)), _ALL)
    return Consensus(None, annotators=_ALL)


def _mean(grades: tuple[int, ...], used: tuple[int, int], annotators: int) -> Consensus:
    rounded_up = (grades[used[0]] + grades[used[1]] + 1) // 2
    return Consensus(rounded_up, used=used, annotators=annotators)
