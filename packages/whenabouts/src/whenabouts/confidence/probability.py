"""The probability that the first moment of an answer is right, learned from answers whose truth is known.

An answer has features that need no truth: how far its score stands above what unrelated sentences score, how
far above the next, how much of the query is said there word for word (`Features`). A logistic curve over them
was fitted to the answers to thousands of questions over many corpora (`learned.json`; by
`benchmarks/answers.py`, where it is also measured on recordings and sets it was not fitted on). What is
learned of one corpus moves the curve there (`Adjustment`); with nothing learned of it the curve holds as it
is, and the interval says how far corpora differ. A query in another language than the words has few words in
common with them; what that means was learned for sentence models by name (`benchmarks/languages.py`).
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
"""From three in four on it is a match; of all answers above that, more are right."""

NAME_RARITY = 5.0
"""A name or a term is looked for by itself if it is as rare (nats) as what one passage in 150 says."""

# Certainty is never claimed: some questions are answered elsewhere than where people looked.
_LEAST, MOST = 0.002, 0.98
_TWO_SIDED = 1.96


@dataclass(frozen=True, slots=True)
class Features:
    """What is known of the first moment of an answer without knowing the truth.

    `surprise`: the root of its score in units of `Chance.surprise`. `lead`: how far it stands above the fifth
    after it (in these units, at most `MOST_LEAD`); `lead_of_video`: above the first in another video (the
    root of it). `crowd`: logarithm of how many moments score about as much. `same_video`: share of the five
    after it that are in its video. `spoken`: rarity of the query's words that are said there, summed (nats; a
    word that one passage in a hundred has counts 4.6), as log(1 + sum). `words`: logarithm of how many the
    query has. `length`: log(1 + hours) of the moment's video, for in a longer one more places compete; 0
    where the query is said as a phrase. `nearer`: log(1 + n) where n clips of the corpus are nearer to the
    query in meaning. `name`: 1 where the query is a name or a rare term and said there.
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
"""Features that may only raise (1) or lower (-1) the probability, whatever the data say."""

OWN = ("surprise", "spoken", "length", "nearer", "name")
"""Features that each moment has by itself; the others are of the list."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A logistic curve over features: log odds = intercept + weights @ features."""

    intercept: float
    weights: Mapping[str, float]

    def log_odds_of(self, features: Features) -> float:
        """The logarithm of the odds that the moment is right."""
        terms = (weight * float(getattr(features, name)) for name, weight in self.weights.items())
        return self.intercept + sum(terms)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Curve:
        """Back from `learned.json`."""
        return cls(float(value["intercept"]), {name: float(w) for name, w in value["weights"].items()})


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What answers of known truth on one corpus say of the curve there: log odds = shift + slope * log odds.

    `questions` is how many independent questions it comes from; 0: nothing is known of this corpus.
    """

    shift: float = 0.0
    slope: float = 1.0
    questions: float = 0.0

    def after(self, first: Adjustment) -> Adjustment:
        """Both as one, `first` first; known of this corpus is what this one knows."""
        return Adjustment(self.shift + self.slope * first.shift, self.slope * first.slope, self.questions)

    def to_json(self) -> dict[str, float]:
        """For the corpus's description."""
        return {"shift": self.shift, "slope": self.slope, "questions": self.questions}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Adjustment:
        """Back from the corpus's description."""
        return cls(float(value["shift"]), float(value["slope"]), float(value["questions"]))


UNADJUSTED = Adjustment()


@dataclass(frozen=True, slots=True)
class Probability:
    """The learned curves, as they hold on one corpus.

    `words` is for moments with words, `others` for those without (pictures), over the features that these
    have; `words_five` and `others_five` are for one of the first five being right. A later moment is less
    likely by `later`, and by `gap` for each unit that it scores below the first. `between` is the standard
    deviation of the intercept between corpora, in log odds; `slopes` that of the slope. `across` has, by the
    name of a sentence model, what moves the curves for a query in another language than the words.
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
        """The probability of a later moment, from the first one's and by what they differ in themselves."""
        weights = (self.words if has_words else self.others).weights
        differs = sum(weights.get(name, 0.0) * (getattr(later, name) - getattr(first, name)) for name in OWN)
        below = self.later + self.gap * (first.surprise - later.surprise)
        return min(probability, share_of(log_odds(probability) + self.adjustment.slope * differs - below))

    def interval(self, probability: float, clips: int) -> tuple[float, float]:
        """The range (95 %) that is left open on a corpus of so many clips: by the curve's own scatter.

        Corpora differ by `between`; questions of known truth narrow that, few clips widen it.
        """
        scatter = self.between**2 / (1 + self.adjustment.questions * self.between**2 / _VARIANCE_OF_ANSWER)
        width = _TWO_SIDED * math.sqrt(scatter + _FEW_CLIPS / max(1, clips))
        middle = log_odds(probability)
        return share_of(middle - width), share_of(middle + width)


# One answer of known truth says so much of an intercept: the variance of log odds near one half.
_VARIANCE_OF_ANSWER = 4.0
# Variance that few clips add: what stands out among ten is as doubtful as the difference between two corpora.
_FEW_CLIPS = 5.0


def share_of(log_odds: float) -> float:
    """The probability of log odds; certainty is never claimed."""
    return min(MOST, max(_LEAST, 1 / (1 + math.exp(-max(-30.0, min(30.0, log_odds))))))


def log_odds(probability: float) -> float:
    """The logarithm of the odds; of what is never claimed, those of the last that is."""
    share = min(MOST, max(_LEAST, probability))
    return math.log(share / (1 - share))


def with_adjustment(probability: float, adjustment: Adjustment) -> float:
    """A probability of the general curve as it holds on a corpus of which something is known."""
    if adjustment == UNADJUSTED:
        return probability
    return share_of(adjustment.shift + adjustment.slope * log_odds(probability))


@cache
def learned() -> Mapping[str, Any]:
    """The numbers that come with the package, and what they were fitted on."""
    text = files("whenabouts.confidence").joinpath("learned.json").read_text(encoding="utf-8")
    value: Mapping[str, Any] = json.loads(text)
    return value


def general(adjustment: Adjustment = UNADJUSTED) -> Probability:
    """The curves as they were learned over many corpora, moved by what is known of one."""
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
        {name: Adjustment.from_json(own) for name, own in value.get("across", {}).items()},
    )


def adjusted(
    general_log_odds: Sequence[float], right: Sequence[bool], weights: Sequence[float], prior: Probability
) -> Adjustment:
    """What came of answers on one corpus, as an adjustment; drawn towards none where there are few.

    `general_log_odds` are those of the general curve, `weights` how many independent questions each answer is
    worth. The most likely shift and slope under normal priors: of mean 0 and deviation `between`, and of mean
    1 and deviation `slopes` (Newton's method; the loss is convex).
    """
    if not len(general_log_odds):
        return UNADJUSTED
    x = np.stack([np.ones(len(general_log_odds)), np.asarray(general_log_odds, np.float64)], axis=1)
    truth, worth = np.asarray(right, np.float64), np.asarray(weights, np.float64)
    precision = np.array([prior.between**-2, prior.slopes**-2])
    at_rest = np.array([0.0, 1.0])
    value = at_rest.copy()

    def lost(at: Floats) -> float:
        odds = x @ at
        off = at - at_rest
        return float((worth * (np.logaddexp(0, odds) - truth * odds)).sum() + off @ (precision * off) / 2)

    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ value, -30, 30)))
        gradient = x.T @ (worth * (p - truth)) + precision * (value - at_rest)
        curvature = (x.T * (worth * p * (1 - p))) @ x + np.diag(precision)
        step = np.linalg.solve(curvature, gradient)
        # Where most odds are far from even the curve is flat, and a whole step lands far behind the least.
        while np.abs(step).max() >= 1e-9 and lost(value - step) > lost(value):
            step = step / 2
        value = value - step
        if np.abs(step).max() < 1e-9:
            break
    # A corpus on which sure answers are wrong more often than unsure ones does not turn the order round.
    return Adjustment(float(value[0]), max(0.1, float(value[1])), float(worth.sum()))
