"""How likely an unrelated sentence scores this high.

A raw score says little: nonsense may score higher on one corpus than the right answer does on another. So a
bank of sentences about all sorts of subjects (`background.py`) is searched in the corpus itself. A score's
percentile is the share of these sentences whose best score is lower.

The share is read off a Gumbel distribution, the law of the largest of many scores, fitted to the quartiles. A
few sentences that the corpus does answer do not affect quartiles, but would cap an empirical share.
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
"""Percentile from which a score stands out, and counts as a match without measured probabilities."""

NO_MATCH_BELOW = 0.75

LEAST_IN_FIVE = 0.2
"""The answer is "no match" if the probability that one of the first five moments is right is lower."""

_EULER_LOG2 = math.log(math.log(2.0))
_QUARTILE_SPAN = math.log(math.log(4.0)) - math.log(math.log(4.0 / 3.0))


@dataclass(frozen=True, slots=True)
class Chance:
    """Best scores of unrelated sentences in one stream of a corpus: location and scale of a Gumbel
    distribution.
    """

    place: float
    scale: float

    def confidence(self, score: float) -> float:
        """Share of unrelated sentences whose best score is below `score`, in [0, 1]."""
        height = (score - self.place) / self.scale
        return math.exp(-math.exp(-max(-30.0, min(height, 700.0))))

    def surprise(self, score: float) -> float:
        """-log of the probability that an unrelated sentence reaches `score`.

        It grows with the score without a bound, and so orders moments of different streams.
        """
        height = (score - self.place) / self.scale
        # -log(1 - exp(-exp(-h))): for large h this is h to machine precision.
        if height > 30:
            return height
        return -math.log(-math.expm1(-math.exp(-max(-30.0, height))) or 5e-324)

    def to_json(self) -> dict[str, Any]:
        return {"place": self.place, "scale": self.scale}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Chance:
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
    """Confidences that separate the answers: "match" from `match_at` on, "no match" below
    `no_match_below`.
    """

    match_at: float = MATCH_AT
    no_match_below: float = NO_MATCH_BELOW

    def to_json(self) -> dict[str, float]:
        return {"match_at": self.match_at, "no_match_below": self.no_match_below}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Thresholds:
        return cls(float(value["match_at"]), float(value["no_match_below"]))


FIXED = Thresholds()
"""For trained systems whose calibration has no thresholds."""


def stands_out(percentile: float | None) -> bool:
    """Whether hardly any unrelated sentence scores as high."""
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
    """The answer from the confidence of the best moment; "unsure" without one.

    A name or a rare term that is said in the best moment (`is_name`) is a match. `in_five` is the probability
    that one of the first five is right; if known, it decides on "no match". "No match" is not given if every
    word of the query occurs in a stream's best moment, or hardly any unrelated sentence scores as high
    (`stands_out`).
    """
    if not has_moments:
        return "no_match"
    if confidence is None:
        return "unsure"
    if is_name or confidence >= thresholds.match_at:
        return "match"
    is_unlikely = confidence < thresholds.no_match_below if in_five is None else in_five < LEAST_IN_FIVE
    return "no_match" if is_unlikely and not stands_out else "unsure"
