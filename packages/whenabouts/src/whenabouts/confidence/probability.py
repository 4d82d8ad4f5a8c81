"""Turns a moment's score into the probability that the moment is right, and into match, unsure or no match.

`Chance`: a raw score says little, because nonsense may score higher on one corpus than the right answer does
on another. So a bank of sentences about all sorts of subjects (`background.py`) is searched in the corpus
itself. A score's percentile is the share of these sentences whose best score is lower. It is read off a
Gumbel distribution, the law of the largest of many scores, fitted to the quartiles. A few sentences that the
corpus does answer do not affect quartiles, but would cap an empirical share.

`Probability`: how probable it is that the first moment is right. It is a logistic curve over `Features` that
need no truth: the score above that of unrelated sentences, the lead over the next moment, and how much of the
query is said word for word. `benchmarks/answers.py` fitted the curve to the answers to thousands of questions
over many corpora (`learned.json`), and measures it on recordings and data sets it was not fitted on.

Questions with known answers on one corpus move the curve there (`Adjustment`). Without them the curve stays
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

from whenabouts.types import Answer

Floats = NDArray[np.float64]

FEWEST_SCORES = 30
"""With fewer scores of unrelated sentences than this no chance is fitted, and there is no confidence."""

MATCH_AT = 0.95
"""Percentile from which a score stands out, and counts as a match without measured probabilities."""
NO_MATCH_BELOW = 0.75
"""Percentile below which a score counts as no match without measured probabilities."""
LEAST_IN_FIVE = 0.2
"""If the probability that one of the first five moments is right is lower, the answer is "no match"."""

_EULER_LOG2 = math.log(math.log(2.0))
_QUARTILE_SPAN = math.log(math.log(4.0)) - math.log(math.log(4.0 / 3.0))


@dataclass(frozen=True, slots=True)
class Chance:
    """A Gumbel distribution (location `place`, `scale`) of the best scores of unrelated sentences."""

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
    """Confidences that separate answers: "match" from `match_at` on, "no match" below `no_match_below`."""

    match_at: float = MATCH_AT
    no_match_below: float = NO_MATCH_BELOW

    def to_json(self) -> dict[str, float]:
        return {"match_at": self.match_at, "no_match_below": self.no_match_below}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Thresholds:
        return cls(float(value["match_at"]), float(value["no_match_below"]))


FIXED = Thresholds()
"""Thresholds on percentiles, for answers without measured probabilities or thresholds of their own."""


def stands_out(percentile: float | None) -> bool:
    """Whether a percentile is known and at least `MATCH_AT`: hardly any unrelated sentence scores as high."""
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
    """The answer from the confidence of the best moment; "unsure" without a confidence.

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


PROBABLE = Thresholds(match_at=0.75, no_match_below=0.15)
"""Thresholds on probabilities. Of all answers above 0.75, more than three in four are right."""

NAME_RARITY = 5.0
"""Least rarity (nats) of a name or a term: 5.0 is a word of one passage in 150."""

# Probabilities are clipped, because some questions have answers that annotators did not see.
_LEAST, MOST = 0.002, 0.98
_TWO_SIDED = 1.96


@dataclass(frozen=True, slots=True)
class Features:
    """Features of a moment, from the list of results and its words, without knowing the right answer.

    - `surprise`: the root of its score in units of `Chance.surprise`.
    - `lead`: its lead over the fifth after it (in these units, at most `MOST_LEAD`); `lead_of_video`: the
      root of its lead over the first in another video.
    - `crowd`: logarithm of the number of moments with about the same score.
    - `same_video`: share of the five after it that are in its video.
    - `spoken`: log(1 + summed rarity) of the query's words that are said in it (nats; a word of one passage
      in a hundred counts 4.6).
    - `words`: logarithm of the number of words in the query.
    - `length`: log(1 + hours) of the moment's video, because a longer one has more competing moments; 0 if
      the query is said as a phrase.
    - `nearer`: log(1 + n) for n clips of the corpus nearer to the query in meaning.
    - `name`: 1 if the query is a name or a rare term and is said in it, else 0.
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
"""Features of a single moment; the others depend on the list of results or the query."""


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
    """The learned correction of the curve on one corpus: new log odds = shift + slope * log odds.

    `questions` is the number of independent questions it was learned from; 0 without any.
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
    """The learned curves, with the adjustment of one corpus.

    - `words`, `others`: curves for moments with words, and for those without (pictures).
    - `words_five`, `others_five`: the same for the probability that one of the first five moments is right.
    - `later`: log odds by which a later moment is less likely; `gap`: the same per unit of `surprise` below
      the first.
    - `between`, `slopes`: standard deviation of the intercept and of the slope between corpora, in log odds.
    - `across`: the adjustment for a query in another language than the words, by name of a sentence model.
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
        """The curves for a query in another language than the words; `model` is a key of `across`."""
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

    def of_later(
        self, first: Features, probability: float, later: Sequence[Features], *, has_words: bool
    ) -> list[float]:
        """The probability of each later moment to be right, at most `probability`, that of the first."""
        weights = (self.words if has_words else self.others).weights
        worth, odds, shares = [(name, weights.get(name, 0.0)) for name in OWN], log_odds(probability), []
        for features in later:
            change = sum(weight * (getattr(features, name) - getattr(first, name)) for name, weight in worth)
            below = self.later + self.gap * (first.surprise - features.surprise)
            shares.append(min(probability, share_of(odds + self.adjustment.slope * change - below)))
        return shares

    def interval(self, probability: float, clips: int) -> tuple[float, float]:
        """The 95 % interval of a probability on a corpus of `clips` clips.

        It covers the difference between corpora; known answers of this corpus narrow it, few clips widen it.
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
    """The contents of `learned.json`: fitted numbers, and notes on the data that they were fitted on."""
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
    """The maximum a posteriori adjustment from N answers on one corpus, by Newton's method.

    For each answer: `general_log_odds` of the general curve, whether it was `right`, and `weights`, how many
    independent questions it is worth. The priors are normal: shift with mean 0 and deviation `between`, slope
    with mean 1 and deviation `slopes`. The loss is convex. A slope below 0.1 is raised to 0.1.
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
