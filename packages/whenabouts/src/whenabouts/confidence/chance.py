"""How likely is it that an unrelated sentence would have scored this high? The honest half of an answer.

A raw score says little: on one corpus nonsense reaches what on another only the truth does. So a bank of
sentences about all sorts of subjects (`background.py`) is searched in the corpus itself, and their best
scores say what chance reaches there. The confidence of a moment is the share of such sentences that stay
below its score.

The share is read off a Gumbel distribution, the law of the largest of many scores, fitted to the
quartiles: a handful of bank sentences that the corpus does answer cannot spoil quartiles, while they
would cap an empirical share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whenabouts.types import Answer

FEWEST_SCORES = 30
"""With fewer background scores than this there is no confidence."""

MATCH_AT = 0.95
"""A match is what at least so large a share of unrelated sentences stays below."""

NO_MATCH_BELOW = 0.75

LEAST_IN_FIVE = 0.2
"""It is no match where one of the first five moments is right with less probability than this."""

_EULER_LOG2 = math.log(math.log(2.0))
_QUARTILE_SPAN = math.log(math.log(4.0)) - math.log(math.log(4.0 / 3.0))


@dataclass(frozen=True, slots=True)
class Chance:
    """What unrelated sentences score best on one corpus in one stream: a Gumbel's place and scale."""

    place: float
    scale: float

    def confidence(self, score: float) -> float:
        """Share of unrelated sentences whose best score stays below `score`, in [0, 1]."""
        height = (score - self.place) / self.scale
        return math.exp(-math.exp(-max(-30.0, min(height, 700.0))))

    def surprise(self, score: float) -> float:
        """`score` in units that are alike in all streams: -log of the share that chance reaches it.

        Rises with the score without a bound, so it orders moments of different streams.
        """
        height = (score - self.place) / self.scale
        # -log(1 - exp(-exp(-h))): for large h this is h to machine precision.
        if height > 30:
            return height
        return -math.log(-math.expm1(-math.exp(-max(-30.0, height))) or 5e-324)

    def to_json(self) -> dict[str, Any]:
        """For the corpus's description."""
        return {"place": self.place, "scale": self.scale}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Chance:
        """Back from the corpus's description."""
        return cls(float(value["place"]), float(value["scale"]))


def fit_chance(scores: Sequence[float]) -> Chance | None:
    """A Gumbel distribution through the quartiles of `scores`; None for fewer than `FEWEST_SCORES`.

    With quartiles q1, q2, q3: scale = (q3 - q1) / (ln ln 4 - ln ln 4/3), place = q2 + scale ln ln 2.

    >>> chance = fit_chance([i / 100 for i in range(100)])
    >>> round(chance.confidence(0.495), 2)
    0.5
    """
    values = np.asarray(scores, dtype=np.float64)
    values = values[np.isfinite(values)]
    if len(values) < FEWEST_SCORES:
        return None
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    scale = max(float(high - low) / _QUARTILE_SPAN, 1e-6 * max(1.0, abs(float(middle))))
    return Chance(float(middle) + scale * _EULER_LOG2, scale)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Confidences that part the three answers: "match" at `match_at`, "no match" below `no_match_below`."""

    match_at: float = MATCH_AT
    no_match_below: float = NO_MATCH_BELOW

    def to_json(self) -> dict[str, float]:
        """For the corpus's description."""
        return {"match_at": self.match_at, "no_match_below": self.no_match_below}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Thresholds:
        """Back from the corpus's description."""
        return cls(float(value["match_at"]), float(value["no_match_below"]))


FIXED = Thresholds()
"""Of a trained system whose calibration has none of its own."""


def stands_out(percentile: float | None) -> bool:
    """Whether hardly an unrelated sentence scores as much."""
    return percentile is not None and percentile >= MATCH_AT


def answer_for(
    confidence: float | None,
    *,
    has_moments: bool,
    stands_out: bool = False,
    is_name: bool = False,
    in_five: float | None = None,
    thresholds: Thresholds = FIXED,
) -> Answer:
    """The answer in one word, from the confidence of the best moment; "unsure" while there is none.

    A name or a rare term that is said at the best moment (`is_name`) is a match. `in_five` is the probability
    that one of the first five is right: where it is known, it and not that of the best moment decides on
    "no match". Where every word of the query stands in a stream's best moment, or hardly an unrelated
    sentence scores as much (`stands_out`), "no match" would mislead.
    """
    if not has_moments:
        return "no_match"
    if confidence is None:
        return "unsure"
    if is_name or confidence >= thresholds.match_at:
        return "match"
    is_unlikely = confidence < thresholds.no_match_below if in_five is None else in_five < LEAST_IN_FIVE
    return "no_match" if is_unlikely and not stands_out else "unsure"
