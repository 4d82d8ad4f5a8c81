"""The probability that the first moment of an answer is right, learned from answers with known truth.

An answer has features that need no truth: its score above that of unrelated sentences, its lead over the
next, how much of the query is said there word for word (`Features`). A logistic curve over them was fitted to
the answers to thousands of questions over many corpora (`learned.json`; by `benchmarks/answers.py`, which
also measures it on recordings and sets it was not fitted on).

Questions with known answers on one corpus move the curve there (`Adjustment`). Without them the curve holds
as it is, and the interval says how far corpora differ. A query in another language than the words shares few
words with them; an adjustment for that was learned for sentence models by name (`benchmarks/languages.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.confidence.chance import Thresholds

Floats = NDArray[np.float64]

PROBABLE = Thresholds(match_at=0.75, no_match_below=0.15)
"""A match from three in four on; over all answers above that, more are right."""

NAME_RARITY = 5.0
"""A name or a term counts from this rarity (nats) on: one passage in 150."""

# Probabilities are clipped: some questions are answered elsewhere than where annotators looked.
_LEAST, MOST = 0.002, 0.98
_TWO_SIDED = 1.96


@dataclass(frozen=True, slots=True)
class Features:
    """Features of the first moment of an answer that need no truth.

    - `surprise`: the root of its score in units of `Chance.surprise`.
    - `lead`: its lead over the fifth after it (in these units, at most `MOST_LEAD`); `lead_of_video`: the
      root of its lead over the first in another video.
    - `crowd`: logarithm of the number of moments with about the same score.
    - `same_video`: share of the five after it that are in its video.
    - `spoken`: summed rarity of the query's words that are said there (nats; a word of one passage in a
      hundred counts 4.6), as log(1 + sum).
    - `words`: logarithm of the number of words in the query.
    - `length`: log(1 + hours) of the moment's video, because a longer one has more competing places; 0 if the
      query is said as a phrase.
    - `nearer`: log(1 + n) for n clips of the corpus nearer to the query in meaning.
    - `name`: 1 if the query is a name or a rare term and is said there.
    """

    surprise: float
    lead: float
    lead_of_video: float
    crowd: float
    same_video: float
    spoken: float
    words: float
    length: float
    nearer: float
    name: float

    def values(self) -> Floats:
        """(F,) in the order of `NAMES`."""
        return np.array([getattr(self, name) for name in NAMES], np.float64)


NAMES = tuple(field.name for field in fields(Features))

MOST_LEAD = 12.0

RISING = dict.fromkeys(("surprise", "lead", "lead_of_video", "spoken", "name"), 1)
RISING |= dict.fromkeys(("crowd", "length", "nearer"), -1)
"""Features constrained to raise (1) or lower (-1) the probability."""

OWN = ("surprise", "spoken", "length", "nearer", "name")
"""Features of a single moment; the others depend on the list."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A logistic curve over features: log odds = intercept + weights @ features."""

    intercept: float
    weights: Mapping[str, float]

    def log_odds_of(self, features: Features) -> float:
        """The log odds that the moment is right."""
        terms = (weight * float(getattr(features, name)) for name, weight in self.weights.items())
        return self.intercept + sum(terms)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Curve:
        return cls(float(value["intercept"]), {name: float(w) for name, w in value["weights"].items()})


@dataclass(frozen=True, slots=True)
class Adjustment:
    """The learned correction of the curve on one corpus: log odds = shift + slope * log odds.

    `questions` is the number of independent questions behind it; 0: nothing is known of this corpus.
    """

    shift: float = 0.0
    slope: float = 1.0
    questions: float = 0.0

    def after(self, first: Adjustment) -> Adjustment:
        """Compose two adjustments, `first` first; `questions` comes from self."""
        return Adjustment(self.shift + self.slope * first.shift, self.slope * first.slope, self.questions)

    def to_json(self) -> dict[str, float]:
        return {"shift": self.shift, "slope": self.slope, "questions": self.questions}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Adjustment:
        return cls(float(value["shift"]), float(value["slope"]), float(value["questions"]))


UNADJUSTED = Adjustment()


@dataclass(frozen=True, slots=True)
class Probability:
    """The learned curves, as they hold on one corpus.

    - `words`, `others`: for moments with words, and without (pictures), over the features that these have.
    - `words_five`, `others_five`: for one of the first five being right.
    - `later`: log odds by which a later moment is less likely; `gap`: the same per unit of score below the
      first.
    - `between`, `slopes`: standard deviation of the intercept and of the slope between corpora, in log odds.
    - `across`: by the name of a sentence model, the adjustment for a query in another language than the
      words.
    """

    words: Curve
    others: Curve
    words_five: Curve
    others_five: Curve
    later: float
    gap: float
    between: float
    slopes: float
    adjustment: Adjustment = UNADJUSTED
    across: Mapping[str, Adjustment] = field(default_factory=dict)

    def across_languages(self, model: str) -> Probability:
        """The curves for a query in another language than the words, with a model of `across`."""
        return replace(self, adjustment=self.adjustment.after(self.across[model]))

    def of_first(self, features: Features, *, has_words: bool) -> float:
        """The probability that the first moment is right."""
        return with_adjustment(
            share_of((self.words if has_words else self.others).log_odds_of(features)), self.adjustment
        )

    def of_five(self, first: Features, *, has_words: bool) -> float:
        """The probability that one of the first five moments is right, from the features of the first."""
        curve = self.words_five if has_words else self.others_five
        return with_adjustment(share_of(curve.log_odds_of(first)), self.adjustment)

    def of_later(self, first: Features, probability: float, later: Features, *, has_words: bool) -> float:
        """The probability of a later moment, from the first one's and the difference of their features."""
        weights = (self.words if has_words else self.others).weights
        differs = sum(weights.get(name, 0.0) * (getattr(later, name) - getattr(first, name)) for name in OWN)
        below = self.later + self.gap * (first.surprise - later.surprise)
        return min(probability, share_of(log_odds(probability) + self.adjustment.slope * differs - below))

    def interval(self, probability: float, clips: int) -> tuple[float, float]:
        """The 95 % interval of a probability on a corpus of `clips` clips, by the scatter of the curve.

        Corpora differ by `between`; questions with known answers narrow the interval, few clips widen it.
        """
        scatter = self.between**2 / (1 + self.adjustment.questions * self.between**2 / _VARIANCE_OF_ANSWER)
        width = _TWO_SIDED * math.sqrt(scatter + _FEW_CLIPS / max(1, clips))
        middle = log_odds(probability)
        return share_of(middle - width), share_of(middle + width)


# Variance of log odds near one half: the information of one known answer about an intercept.
_VARIANCE_OF_ANSWER = 4.0
# Variance that few clips add: at ten clips it equals the difference between two corpora.
_FEW_CLIPS = 5.0


def share_of(log_odds: float) -> float:
    """The probability of log odds, clipped to [0.002, 0.98]."""
    return min(MOST, max(_LEAST, 1 / (1 + math.exp(-max(-30.0, min(30.0, log_odds))))))


def log_odds(probability: float) -> float:
    """Log odds, with the probability clipped to [0.002, 0.98]."""
    share = min(MOST, max(_LEAST, probability))
    return math.log(share / (1 - share))


def with_adjustment(probability: float, adjustment: Adjustment) -> float:
    """A probability of the general curve, adjusted to a corpus."""
    if adjustment == UNADJUSTED:
        return probability
    return share_of(adjustment.shift + adjustment.slope * log_odds(probability))


@cache
def learned() -> Mapping[str, Any]:
    """The fitted numbers that come with the package, with the data they were fitted on."""
    text = files("whenabouts.confidence").joinpath("learned.json").read_text(encoding="utf-8")
    value: Mapping[str, Any] = json.loads(text)
    return value


def general(adjustment: Adjustment = UNADJUSTED) -> Probability:
    """The curves learned over many corpora, adjusted to one."""
    return from_json(learned(), adjustment)


def from_json(value: Mapping[str, Any], adjustment: Adjustment = UNADJUSTED) -> Probability:
    """The curves of `learned.json`, or of a fit of the same form."""
    return Probability(
        Curve.from_json(value["words"]),
        Curve.from_json(value["others"]),
        Curve.from_json(value["words_five"]),
        Curve.from_json(value["others_five"]),
        float(value["later"]),
        float(value["gap"]),
        float(value["between"]),
        float(value["slopes"]),
        adjustment,
        {name: Adjustment.from_json(fact) for name, fact in value.get("across", {}).items()},
    )


def adjusted(
    general_log_odds: Sequence[float], right: Sequence[bool], weights: Sequence[float], prior: Probability
) -> Adjustment:
    """The maximum a posteriori adjustment from answers on one corpus.

    `general_log_odds` are those of the general curve, `weights` the number of independent questions that each
    answer is worth. The priors are normal: shift with mean 0 and deviation `between`, slope with mean 1 and
    deviation `slopes` (Newton's method; the loss is convex).
    """
    if not len(general_log_odds):
        return UNADJUSTED
    x = np.stack([np.ones(len(general_log_odds)), np.asarray(general_log_odds, np.float64)], axis=1)
    truth, worth = np.asarray(right, np.float64), np.asarray(weights, np.float64)
    precision = np.array([prior.between**-2, prior.slopes**-2])
    mean = np.array([0.0, 1.0])
    value = mean.copy()

    def loss(at: Floats) -> float:
        odds = x @ at
        off = at - mean
        return float((worth * (np.logaddexp(0, odds) - truth * odds)).sum() + off @ (precision * off) / 2)

    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ value, -30, 30)))
        gradient = x.T @ (worth * (p - truth)) + precision * (value - mean)
        curvature = (x.T * (worth * p * (1 - p))) @ x + np.diag(precision)
        step = np.linalg.solve(curvature, gradient)
        # Far from even odds the curve is flat, and a whole step would overshoot the minimum.
        while np.abs(step).max() >= 1e-9 and loss(value - step) > loss(value):
            step = step / 2
        value = value - step
        if np.abs(step).max() < 1e-9:
            break
    # The slope stays positive, so that a corpus never reverses the order of answers.
    return Adjustment(float(value[0]), max(0.1, float(value[1])), float(worth.sum()))
