"""Error rates, calibration error and risk-coverage curve of a search, from questions with known answers.

There are three kinds of questions. *Unrelated* ones have no answer in the corpus. *Known* ones have an answer
at a known moment. *Taken-out* ones are known questions searched without their true video: they have no answer
either, but are about the corpus's topics, so they are harder than unrelated ones. A taken-out question whose
words all occur near the best moment of another video is not counted, because its answer may be there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.confidence.probability import (
    FIXED,
    PROBABLE,
    Adjustment,
    Probability,
    Thresholds,
    adjusted,
    answer_for,
    log_odds,
    with_adjustment,
)
from whenabouts.confidence.rates import Rate, rate_of
from whenabouts.types import Answer

Kind = Literal["unrelated", "known", "taken_out"]
KINDS: tuple[Kind, ...] = ("unrelated", "known", "taken_out")

BINS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Edges of the bins of confidence in which right first answers are counted."""

TAKEN_OUT_WORTH = 0.15
"""Weight of a taken-out question when probabilities are learned; others weigh 1, because users mostly ask for
existing moments. `learned.json` was fitted with it too."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one question.

    - `confidence`: the probability that the best moment is right; None without calibration or moments.
    - `right`: the best moment overlaps the true one; for a question made from a passage, also if `near`.
    - `literal`: the answer is never "no match", because a stream's best moment has every word, the score
      stands out, or nothing was compared by meaning.
    - `near`: every word occurs in a stream's best moment or around it.
    - `name`: the question is a name or a rare term that is said in the best moment.
    - `in_five`: the probability that one of the first five moments is right, None if unknown.
    - `group`: the true video, or the number of an unrelated question.
    """

    kind: Kind
    confidence: float | None
    has_moment: bool
    right: bool
    literal: bool
    near: bool
    group: str
    name: bool = False
    in_five: float | None = None

    def answer(self, thresholds: Thresholds = FIXED) -> Answer:
        """The answer that a search gives: match, unsure or no match."""
        return answer_for(
            self.confidence,
            has_moments=self.has_moment,
            never_no_match=self.literal,
            is_name=self.name,
            in_five=self.in_five,
            thresholds=thresholds,
        )

    @property
    def sureness(self) -> float:
        """The confidence; 0 without one."""
        return self.confidence or 0.0

    @property
    def is_stated(self) -> bool:
        """Whether there is a confidence, or no moment was found."""
        return self.confidence is not None or not self.has_moment

    @property
    def counts(self) -> bool:
        """Whether the right answer is known, so that the outcome may be counted."""
        return not (self.kind == "taken_out" and self.near)


@dataclass(frozen=True, slots=True)
class Rates:
    """How often the three answers are wrong.

    - `unrelated`, `taken_out`: share of questions without an answer that were called a match (false alarms).
    - `missed`, `unsure`: share of known questions that were called no match, or unsure.
    - `right`: of the known questions that were called a match, the share whose first moment is right.
    """

    unrelated: Rate
    taken_out: Rate
    missed: Rate
    unsure: Rate
    right: Rate

    def to_json(self) -> dict[str, Any]:
        return {
            "false_alarm_rate": self.unrelated.to_json(),
            "false_alarm_rate_taken_out": self.taken_out.to_json(),
            "miss_rate": self.missed.to_json(),
            "unsure_rate": self.unsure.to_json(),
            "right_when_match": self.right.to_json(),
        }

    def lines(self) -> list[str]:
        return [
            f"false alarms  {self.unrelated}  unrelated questions called a match",
            f"              {self.taken_out}  known questions called a match with their video taken out",
            f"misses        {self.missed}  known questions called no match",
            f"unsure        {self.unsure}  known questions called unsure",
            f"right         {self.right}  first moments of known questions called a match",
        ]


def rates_of(outcomes: Sequence[Outcome], thresholds: Thresholds = PROBABLE) -> Rates:
    """How often the answers are wrong at some thresholds."""
    judged = [(outcome, outcome.answer(thresholds)) for outcome in outcomes]
    matched = [outcome for outcome, answer in judged if outcome.kind == "known" and answer == "match"]
    return Rates(
        _rate_of_answer(judged, "unrelated", "match"),
        _rate_of_answer(judged, "taken_out", "match"),
        _rate_of_answer(judged, "known", "no_match"),
        _rate_of_answer(judged, "known", "unsure"),
        _rate(matched, lambda outcome: outcome.right),
    )


def adjustment_of(outcomes: Iterable[Outcome], prior: Probability) -> Adjustment:
    """The adjustment of a corpus, from the outcomes of known and taken-out questions.

    Their confidences must be those of `prior` without an adjustment. Questions about one video are dependent,
    so they are weighted down to their effective number (`rates.py`).
    """
    counted = [
        outcome
        for outcome in outcomes
        if outcome.kind != "unrelated" and outcome.counts and outcome.confidence is not None
    ]
    if not counted:
        return Adjustment()
    hits = _rate(counted, lambda outcome: outcome.right)
    worth = hits.effective / hits.of
    return adjusted(
        [log_odds(outcome.sureness) for outcome in counted],
        [outcome.right for outcome in counted],
        [worth * (TAKEN_OUT_WORTH if outcome.kind == "taken_out" else 1.0) for outcome in counted],
        prior,
    )


def adjusted_by_halves(outcomes: Sequence[Outcome], prior: Probability) -> tuple[Outcome, ...]:
    """The outcomes with adjusted confidences; each half of the videos is adjusted by the other half."""
    groups = sorted({(outcome.kind == "unrelated", outcome.group) for outcome in outcomes})
    half_of = {group: number % 2 for number, group in enumerate(groups)}
    sides = [half_of[outcome.kind == "unrelated", outcome.group] for outcome in outcomes]
    pairs = list(zip(outcomes, sides, strict=True))
    learned = [adjustment_of((outcome for outcome, side in pairs if side != half), prior) for half in (0, 1)]
    return tuple(_adjusted(outcome, learned[side]) for outcome, side in pairs)


def _adjusted(outcome: Outcome, adjustment: Adjustment) -> Outcome:
    if outcome.confidence is None:
        return outcome
    in_five = None if outcome.in_five is None else with_adjustment(outcome.in_five, adjustment)
    return replace(outcome, confidence=with_adjustment(outcome.confidence, adjustment), in_five=in_five)


def _rate_of_answer(judged: Iterable[tuple[Outcome, Answer]], kind: Kind, answer: Answer) -> Rate:
    counted = [(outcome, given) for outcome, given in judged if outcome.kind == kind and outcome.counts]
    return rate_of([given == answer for _, given in counted], [outcome.group for outcome, _ in counted])


def _rate(outcomes: Sequence[Outcome], holds: Callable[[Outcome], bool]) -> Rate:
    return rate_of([holds(outcome) for outcome in outcomes], [outcome.group for outcome in outcomes])


class Bin(NamedTuple):
    """First answers with a confidence in [`low`, `high`), or 1 in the last: mean, and rate of right ones."""

    low: float
    high: float
    stated: float
    right: Rate


def _with_confidence(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The outcomes that are `is_stated`; [] if none of them has a confidence."""
    stated = [outcome for outcome in outcomes if outcome.is_stated]
    return stated if any(outcome.confidence is not None for outcome in stated) else []


def bins(outcomes: Sequence[Outcome]) -> list[Bin]:
    """The bins of the first answers to known questions, without empty ones."""
    filled, answers = [], _with_confidence(outcome for outcome in outcomes if outcome.kind == "known")
    for low, high in itertools.pairwise(BINS):
        limit = math.inf if high == BINS[-1] else high
        inside = [outcome for outcome in answers if low <= outcome.sureness < limit]
        if inside:
            stated = sum(outcome.sureness for outcome in inside) / len(inside)
            filled.append(Bin(low, high, stated, _rate(inside, lambda outcome: outcome.right)))
    return filled


class Reliability(NamedTuple):
    """Expected calibration error over `BINS`, AUROC of right against wrong first answers; None: unknown."""

    error: float | None
    auroc: float | None

    def to_json(self) -> dict[str, float | None]:
        return {"expected_calibration_error": self.error, "auroc": self.auroc}


def reliability_of(outcomes: Sequence[Outcome]) -> Reliability:
    """Calibration error and AUROC of the confidences of first answers to known questions."""
    rows = bins(outcomes)
    total = sum(row.right.of for row in rows)
    if not total:
        return Reliability(None, None)
    error = sum(row.right.of * abs(row.stated - (row.right.share or 0.0)) for row in rows) / total
    answered = _with_confidence(outcome for outcome in outcomes if outcome.kind == "known")
    right = [outcome.sureness for outcome in answered if outcome.right]
    wrong = sorted(outcome.sureness for outcome in answered if not outcome.right)
    if not (right and wrong):
        return Reliability(error, None)
    # The mean of both places counts ties by half.
    below = sum(np.searchsorted(wrong, right, side).mean() for side in ("left", "right")) / 2
    return Reliability(error, float(below / len(wrong)))


@dataclass(frozen=True, slots=True, eq=False)
class RiskCoverage:
    """Risk (n,) against coverage (n,) if only the surest questions are answered; both in [0, 1].

    Known and taken-out questions count; an answer to a taken-out one is always wrong. `area` is the mean risk
    over all coverages, the smaller the better; `ideal` is the area of a perfect order of the same answers.
    """

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    area: float
    ideal: float

    def to_json(self) -> dict[str, Any]:
        return {
            "coverage": self.coverage.tolist(),
            "risk": self.risk.tolist(),
            "area": self.area,
            "ideal": self.ideal,
        }

    def risk_at(self, coverage: float) -> float:
        """The risk if at least this share of the questions is answered."""
        return float(self.risk[min(int(np.searchsorted(self.coverage, coverage)), len(self.risk) - 1)])


def risk_coverage(outcomes: Iterable[Outcome]) -> RiskCoverage | None:
    """The risk-coverage curve, ties together; None if no known or taken-out question has a confidence."""
    counted = _with_confidence(each for each in outcomes if each.kind != "unrelated" and each.counts)
    if not counted:
        return None
    sure = np.array([outcome.sureness for outcome in counted])
    wrong = np.array([not outcome.right for outcome in counted])
    order = np.argsort(-sure, kind="stable")
    last = np.append(np.diff(sure[order]) != 0, True)
    answered = np.arange(1, len(counted) + 1)
    risk = np.cumsum(wrong[order]) / answered
    # Ties share their mean.
    runs = np.searchsorted(np.flatnonzero(last), np.arange(len(counted)))
    ideal = np.cumsum(np.sort(wrong)) / answered
    return RiskCoverage(
        answered[last] / len(counted), risk[last], float(risk[last][runs].mean()), float(ideal.mean())
    )


def charts(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The reliability diagram and the risk-coverage curve as lines for a terminal."""
    rows = bins(outcomes)
    if rows:
        yield "reliability: right first answers to known questions, by confidence (|: as stated)"
    for bin_ in rows:
        span = f"{100 * bin_.low:g} to {100 * bin_.high:g} %"
        yield f"  {span:>15} {_bar(bin_.right.share, bin_.stated)} {_percent(bin_.right)}"
    error, auroc = reliability_of(outcomes)
    if error is not None:
        ranked = "" if auroc is None else f"; a right answer stands above a wrong one in {auroc:.0%} of pairs"
        yield f"  expected calibration error {error:.3f}{ranked}"
    curve = risk_coverage(outcomes)
    if curve is not None:
        yield "risk and coverage: how many of the surest answers are wrong (all those without their video)"
        for share in (0.1, 0.25, 0.5, 0.75, 1.0):
            risk = curve.risk_at(share)
            yield f"  {share:>15.0%} {_bar(risk)} {risk:.1%}"
        yield f"  area under the curve {curve.area:.3f}; {curve.ideal:.3f} in the best order"


def _bar(share: float | None, mark: float | None = None, width: int = 30) -> str:
    cells = ["#"] * math.floor((share or 0.0) * width + 0.5)
    cells += ["."] * (width - len(cells))
    if mark is not None:
        cells[min(width - 1, math.floor(mark * width))] = "|"
    return "".join(cells)


def _percent(rate: Rate) -> str:
    low, high = rate.interval
    return f"{rate.share or 0.0:.1%} ({low:.0%} to {high:.0%}, {rate.of} questions)"
