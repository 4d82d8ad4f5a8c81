"""Turns a moment's score into the probability that the moment is right, and into match, unsure or no match.

`Chance` is the distribution of the best scores of unrelated sentences on a corpus. A raw score says little:
nonsense may score higher on one corpus than the right answer does on another. So each corpus is searched with
sentences about all sorts of subjects (`background.py`). The percentile of a score is the share of these
sentences whose best score is lower. It is computed from a Gumbel distribution (the law of the largest of many
scores) through the quartiles of the best scores. A corpus may answer a few of the sentences; their high
scores hardly move the quartiles, but would lower an empirical share.

`Probability` has logistic curves over `Features`, which are computed without knowing the right answer: the
score compared with unrelated sentences, its lead over later moments, how much of the query is said, and more.
`benchmarks/any_corpus.py` fitted them to questions with known answers on several kinds of corpora
(`learned.json`), and measures them on recordings left out of the fit. Questions with known answers on one
corpus adjust them to it (`Adjustment`). For a query in another language than the corpus, which shares few
words with it, `benchmarks/languages.py` learned an adjustment.
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
"""The least number of scores of unrelated sentences for a `Chance`, which every confidence needs."""

MATCH_AT = 0.95
"""Percentile from which a score stands out; it is then a match if no probabilities were measured."""
NO_MATCH_BELOW = 0.75
"""Percentile below which a score is no match if no probabilities were measured."""
LEAST_IN_FIVE = 0.2
"""Below this probability that one of the first five moments is right, `answer_for` may say "no match"."""

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

        It grows with the score without bound, so it can rank moments of different streams together.
        """
        height = (score - self.place) / self.scale
        # -log(1 - exp(-exp(-h))): for large h this is h to machine precision.
        if height > 30:
            return height
        return -math.log(-math.expm1(-math.exp(-max(-30.0, height))))

    def to_json(self) -> dict[str, Any]:
        return {"place": self.place, "scale": self.scale}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Chance:
        return cls(float(value["place"]), float(value["scale"]))


def fit_chance(scores: Sequence[float]) -> Chance | None:
    """A Gumbel distribution through the quartiles of the finite scores; None for fewer than `FEWEST_SCORES`.

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
"""Thresholds on percentiles, for answers without measured probabilities or measured thresholds."""


def stands_out(percentile: float | None) -> bool:
    """Whether a percentile is known and at least `MATCH_AT`: hardly any unrelated sentence scores as high."""
    return percentile is not None and percentile >= MATCH_AT


def answer_for(
    confidence: float | None,
    *,
    has_moments: bool,
    never_no_match: bool = False,
    is_name: bool = False,
    in_five: float | None = None,
    thresholds: Thresholds = FIXED,
) -> Answer:
    """The answer from the confidence of the best moment, by the first rule that applies.

    1. Without moments: "no_match". Without a confidence: "unsure".
    2. If `is_name` (the best moment says the query, a name or a rare term), or from `match_at` on: "match".
    3. If `never_no_match` (a stream's best moment has every word, or the score stands out): "unsure".
    4. If `in_five` (the probability that one of the first five is right) is below `LEAST_IN_FIVE`; if it is
       None, if the confidence is below `no_match_below`: "no_match". Otherwise "unsure".
    """
    if not has_moments:
        return "no_match"
    if confidence is None:
        return "unsure"
    if is_name or confidence >= thresholds.match_at:
        return "match"
    is_unlikely = confidence < thresholds.no_match_below if in_five is None else in_five < LEAST_IN_FIVE
    return "no_match" if is_unlikely and not never_no_match else "unsure"


PROBABLE = Thresholds(match_at=0.75, no_match_below=0.15)
"""Thresholds on probabilities. If these are calibrated, over three in four answers above 0.75 are right."""

NAME_RARITY = 5.0
"""Least rarity of a name or a term, in nats (-log of the share of passages): 5.0 is one passage in 150."""

# Probabilities are clipped, because some questions have answers that annotators did not see.
_LEAST, MOST = 0.002, 0.98
_TWO_SIDED = 1.96


@dataclass(frozen=True, slots=True)
class Features:
    """Features of a moment, computed from the results and their words without knowing the right answer.

    Scores are `Chance.surprise`. The features from `lead` to `same_video` describe the first moment of the
    results, compared with those that compete with it (`answer_probability.rivals_of`).

    - `surprise`: square root of the moment's score.
    - `lead`: score above that of the fifth moment after the first, at most `MOST_LEAD`; `lead_of_video`:
      square root of the score above that of the best moment in another video.
    - `crowd`: logarithm of the number of moments with about the first's score.
    - `same_video`: share of the next five moments that are in the first's video.
    - `spoken`: log(1 + r) for the summed rarity r (nats) of the query's words said in or near the moment.
    - `words`: log(n + 0.5) for n words in the query.
    - `length`: log(1 + hours) of the moment's video (more compete in a long one); 0 if it says the query.
    - `nearer`: log(1 + n), where n clips are nearer to the query in meaning than all clips of the moment.
    - `name`: 1 if the query is a name or a rare term that is said in or near the moment, else 0.
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

    `questions` is the effective number of independent questions it was learned from, 0 if unadjusted.
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
    - `later`: log odds subtracted from each later moment; `gap`: more per unit of `surprise` below the first.
    - `between`, `slopes`: standard deviations between corpora of the intercept (log odds) and of the slope.
    - `across`: sentence model -> adjustment for queries in another language than the words.
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
        """The probability that each later moment is right, at most `probability`, which is the first's."""
        weights = (self.words if has_words else self.others).weights
        pairs, odds, shares = [(name, weights.get(name, 0.0)) for name in OWN], log_odds(probability), []
        for features in later:
            change = sum(weight * (getattr(features, name) - getattr(first, name)) for name, weight in pairs)
            below = self.later + self.gap * (first.surprise - features.surprise)
            shares.append(min(probability, share_of(odds + self.adjustment.slope * change - below)))
        return shares

    def interval(self, probability: float, clips: int) -> tuple[float, float]:
        """The 95 % interval of a probability on a corpus of `clips` clips.

        It covers the difference between corpora; known answers of this corpus narrow it, few clips widen it.
        """
        variance = self.between**2 / (1 + self.adjustment.questions * self.between**2 / _VARIANCE_OF_ANSWER)
        width = _TWO_SIDED * math.sqrt(variance + _FEW_CLIPS / max(1, clips))
        middle = log_odds(probability)
        return share_of(middle - width), share_of(middle + width)


# Inverse of the Fisher information p (1 - p) that one known answer has about the log odds, at p = 1/2.
_VARIANCE_OF_ANSWER = 4.0
# Divided by the number of clips, a variance of the log odds: at ten clips about as large as between corpora.
_FEW_CLIPS = 5.0


def share_of(log_odds: float) -> float:
    """The probability of log odds, clipped to [0.002, 0.98]."""
    return min(MOST, max(_LEAST, 1 / (1 + math.exp(-max(-30.0, min(30.0, log_odds))))))


def log_odds(probability: float) -> float:
    """Log odds, with the probability clipped to [0.002, 0.98]."""
    share = min(MOST, max(_LEAST, probability))
    return math.log(share / (1 - share))


def with_adjustment(probability: float, adjustment: Adjustment) -> float:
    """A probability by the general curve, adjusted to a corpus; unchanged if `UNADJUSTED`."""
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
