"""Shares of questions with confidence intervals (2 of 40: from 1 to 17 percent).

The interval is that of Clopper and Pearson (1934): exact, never too narrow for independent questions, and
defined for 0 of 40 too. Questions about one video are dependent, so the interval is computed at the effective
number of independent questions (Korn and Graubard, 1998: "Confidence intervals for proportions with small
expected number of positive counts estimated from survey data").
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whenabouts.confidence.quantiles import beta_quantile

CERTAINTY = 0.95
"""Confidence level of the intervals."""


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` of `of` questions; `effective` is the equivalent number of independent questions."""

    count: int
    of: int
    effective: float

    @property
    def share(self) -> float | None:
        """The share in [0, 1]; None without questions."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        """The confidence interval at `CERTAINTY`; all of [0, 1] without questions."""
        return exact_interval(self.effective * self.count / self.of if self.of else 0.0, self.effective)

    def __str__(self) -> str:
        if not self.of:
            return "no questions to measure it with"
        low, high = self.interval
        return f"{self.count / self.of:.1%} ({self.count} of {self.of}; {low:.1%} to {high:.1%})"

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "rate": self.share,
            "low": low,
            "high": high,
            "count": self.count,
            "of": self.of,
            "effective": self.effective,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Rate:
        return cls(int(value["count"]), int(value["of"]), float(value["effective"]))


def rate_of(hits: Sequence[bool], groups: Sequence[Hashable] = ()) -> Rate:
    """The share of `hits` that are true; questions with an equal group (a video) are dependent.

    Raises ValueError if there are groups, but not one for each question.
    """
    if groups and len(groups) != len(hits):
        raise ValueError(f"{len(groups)} groups for {len(hits)} questions")
    return Rate(sum(hits), len(hits), _effective(hits, groups) if groups else float(len(hits)))


def _effective(hits: Sequence[bool], groups: Sequence[Hashable]) -> float:
    """The effective number of independent questions: the number of questions, or less if groups differ."""
    names = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    count, number = len(hits), len(names)
    share = sum(hits) / count if count else 0.0
    if number in (0, 1, count) or not 0 < share < 1:
        # Without scatter, or with one group, the difference between groups is unknown.
        return float(count)
    sums = np.zeros(number)
    for hit, group in zip(hits, groups, strict=True):
        sums[names[group]] += hit - share
    # Variance of the mean between groups, relative to that of as many independent questions.
    between = number / (number - 1) * float(sums @ sums) / count**2
    alone = share * (1 - share) / count
    return count / max(1.0, between / alone)


def exact_interval(successes: float, count: float) -> tuple[float, float]:
    """Clopper and Pearson's interval at `CERTAINTY`; counts may be fractional.

    Raises ValueError for fewer than 0 or more than `count` successes.

    >>> low, high = exact_interval(2, 40)
    >>> f"{low:.3f} to {high:.3f}"
    '0.006 to 0.169'
    """
    if not 0 <= successes <= count:
        raise ValueError(f"{successes} of {count} is not a share")
    tail = (1 - CERTAINTY) / 2
    low = beta_quantile(successes, count - successes + 1, tail) if successes > 0 else 0.0
    high = beta_quantile(successes + 1, count - successes, 1 - tail) if successes < count else 1.0
    return low, high
