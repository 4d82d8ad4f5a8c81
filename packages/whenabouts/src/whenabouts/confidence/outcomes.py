"""What came of questions whose truth is known: how often the answers were wrong, and how sure they were.

Three kinds of questions. *Unrelated* ones have no answer in the corpus. *Known* ones have one, at a known
place. The same with their true video *taken out* have none either, but are on the corpus's own topics, so
they are the hard ones. A taken-out question all of whose words are said in another video is left out: there
its answer may well be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.confidence.chance import FIXED, Thresholds, answer_for
from whenabouts.confidence.probability import (
    PROBABLE,
    Adjustment,
    Probability,
    adjusted,
    log_odds,
    with_adjustment,
)
from whenabouts.confidence.rates import Rate, rate_of
from whenabouts.types import Answer

Kind = Literal["unrelated", "known", "taken_out"]
KINDS: tuple[Kind, ...] = ("unrelated", "known", "taken_out")

BINS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Bins of confidence in which right first answers are counted."""

TAKEN_OUT_WORTH = 0.15
"""How much a question with its true video taken out counts beside one that has an answer, when probabilities
are learned: people mostly ask of what is there. `learned.json` was fitted with it too."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one question found: the confidence (probability that it is right) of its best moment, None where
    no stream is calibrated.

    `right`: the best moment shares time with the true one. `literal`: every word of the question stands in a
    stream's best moment, or it stands out of chance; `near`: in it or around it; `name`: it is a name or
    a rare term that is said there. `in_five`: the probability that one of its first five moments is right,
    None where that is not known. `group` is the true video, or the number of an unrelated question.
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
        """The answer in one word, as a search gives it."""
        return answer_for(
            self.confidence,
            has_moments=self.has_moment,
            stands_out=self.literal,
            is_name=self.name,
            in_five=self.in_five,
            thresholds=thresholds,
        )

    @property
    def sureness(self) -> float:
        """The confidence; 0 where nothing was found."""
        return self.confidence or 0.0

    @property
    def is_stated(self) -> bool:
        """Whether it has a confidence, or found nothing; what no stream is calibrated for states nothing."""
        return self.confidence is not None or not self.has_moment

    @property
    def counts(self) -> bool:
        """Whether it is known what the answer should be."""
        return not (self.kind == "taken_out" and self.near)


@dataclass(frozen=True, slots=True)
class Rates:
    """How often the three answers are wrong.

    `unrelated` and `taken_out`: questions without an answer that were called a match (false alarms).
    `missed`: questions with an answer that were called no match. `unsure`: of those with an answer.
    `right`: of questions with an answer that were called a match, those whose first moment is right.
    """

    unrelated: Rate
    taken_out: Rate
    missed: Rate
    unsure: Rate
    right: Rate

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "false_alarm_rate": self.unrelated.to_json(),
            "false_alarm_rate_taken_out": self.taken_out.to_json(),
            "miss_rate": self.missed.to_json(),
            "unsure_rate": self.unsure.to_json(),
            "right_when_match": self.right.to_json(),
        }

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"false alarms  {self.unrelated}  unrelated questions called a match",
            f"              {self.taken_out}  known questions called a match with their video taken out",
            f"misses        {self.missed}  known questions called no match",
            f"unsure        {self.unsure}  known questions",
            f"right         {self.right}  first moments of known questions called a match",
        ]


def rates_of(outcomes: Sequence[Outcome], thresholds: Thresholds = PROBABLE) -> Rates:
    """How often the answers, parted by some thresholds, are wrong."""
    judged = [(outcome, outcome.answer(thresholds)) for outcome in outcomes]
    matched = [outcome for outcome, answer in judged if outcome.kind == "known" and answer == "match"]
    return Rates(
        _share(judged, "unrelated", "match"),
        _share(judged, "taken_out", "match"),
        _share(judged, "known", "no_match"),
        _share(judged, "known", "unsure"),
        _rate(matched, lambda outcome: outcome.right),
    )


def adjustment_of(outcomes: Iterable[Outcome], prior: Probability) -> Adjustment:
    """What the answers to questions with an answer, and to these taken out, say of a corpus.

    Their confidences must be those of `prior` without an adjustment. Questions of one video count as so many
    as are worth as much independent ones.
    """
    own = [outcome for outcome in outcomes if outcome.kind != "unrelated" and outcome.counts]
    own = [outcome for outcome in own if outcome.confidence is not None]
    if not own:
        return Adjustment()
    hits = rate_of([outcome.right for outcome in own], [outcome.group for outcome in own])
    worth = hits.effective / hits.of
    return adjusted(
        [log_odds(outcome.sureness) for outcome in own],
        [outcome.right for outcome in own],
        [worth * (TAKEN_OUT_WORTH if outcome.kind == "taken_out" else 1.0) for outcome in own],
        prior,
    )


def adjusted_by_halves(outcomes: Sequence[Outcome], prior: Probability) -> tuple[Outcome, ...]:
    """The outcomes with the confidences that they would have on an adjusted corpus.

    Each half of the videos is judged by what came of the other, so that nothing is judged by its like.
    """
    groups = sorted({(outcome.kind == "unrelated", outcome.group) for outcome in outcomes})
    half = {group: number % 2 for number, group in enumerate(groups)}
    sides = [half[outcome.kind == "unrelated", outcome.group] for outcome in outcomes]
    pairs = list(zip(outcomes, sides, strict=True))
    learned = [adjustment_of((outcome for outcome, side in pairs if side != own), prior) for own in (0, 1)]
    return tuple(_adjusted(outcome, learned[side]) for outcome, side in pairs)


def _adjusted(outcome: Outcome, adjustment: Adjustment) -> Outcome:
    if outcome.confidence is None:
        return outcome
    in_five = None if outcome.in_five is None else with_adjustment(outcome.in_five, adjustment)
    return replace(outcome, confidence=with_adjustment(outcome.confidence, adjustment), in_five=in_five)


def _share(judged: Iterable[tuple[Outcome, Answer]], kind: Kind, answer: Answer) -> Rate:
    own = [(outcome, given) for outcome, given in judged if outcome.kind == kind and outcome.counts]
    return rate_of([given == answer for _, given in own], [outcome.group for outcome, _ in own])


def _rate(outcomes: Sequence[Outcome], holds: Callable[[Outcome], bool]) -> Rate:
    """How often a condition holds."""
    return rate_of([holds(outcome) for outcome in outcomes], [outcome.group for outcome in outcomes])


class Bin(NamedTuple):
    """First answers with a confidence of at least `low` and below `high`; `stated` is their mean."""

    low: float
    high: float
    stated: float
    right: Rate


def _stated(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The outcomes that state how sure they are; none if no answer among them has a confidence."""
    stated = [outcome for outcome in outcomes if outcome.is_stated]
    return stated if any(outcome.confidence is not None for outcome in stated) else []


def bins(outcomes: Sequence[Outcome]) -> list[Bin]:
    """How many first answers to known questions are right, by their confidence; empty bins are left out."""
    filled, answers = [], _stated(outcome for outcome in outcomes if outcome.kind == "known")
    for low, high in itertools.pairwise(BINS):
        limit = math.inf if high == BINS[-1] else high
        own = [outcome for outcome in answers if low <= outcome.sureness < limit]
        if own:
            stated = sum(outcome.sureness for outcome in own) / len(own)
            filled.append(Bin(low, high, stated, _rate(own, lambda outcome: outcome.right)))
    return filled


class Reliability(NamedTuple):
    """Of known questions: the mean difference between stated and observed shares over bins, and how surely a
    right answer has a higher confidence than a wrong one (AUROC). None: could not be measured."""

    error: float | None
    auroc: float | None

    def to_json(self) -> dict[str, float | None]:
        """For programs."""
        return {"expected_calibration_error": self.error, "auroc": self.auroc}


def reliability_of(outcomes: Sequence[Outcome]) -> Reliability:
    """How well confidences of first answers hold, and how well they part right answers from wrong ones."""
    rows = bins(outcomes)
    total = sum(row.right.of for row in rows)
    if not total:
        return Reliability(None, None)
    error = sum(row.right.of * abs(row.stated - (row.right.share or 0.0)) for row in rows) / total
    answered = _stated(outcome for outcome in outcomes if outcome.kind == "known")
    sure = np.array([outcome.sureness for outcome in answered])
    right = np.array([outcome.right for outcome in answered])
    higher = np.sign(sure[right][:, None] - sure[~right][None, :])
    return Reliability(float(error), float((higher.mean() + 1) / 2) if higher.size else None)


@dataclass(frozen=True, slots=True, eq=False)
class RiskCoverage:
    """What answering only the surest costs and saves: coverage (n,), risk (n,), both in [0, 1].

    Over known questions and the same ones with their video taken out; an answer to the latter is always
    wrong. `area` is the mean risk over all coverages, the smaller the better; `ideal` what a perfect order
    of the same answers would have.
    """

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    area: float
    ideal: float

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "coverage": self.coverage.tolist(),
            "risk": self.risk.tolist(),
            "area": self.area,
            "ideal": self.ideal,
        }

    def risk_at(self, coverage: float) -> float:
        """The risk where at least so many of the questions are answered."""
        return float(self.risk[min(int(np.searchsorted(self.coverage, coverage)), len(self.risk) - 1)])


def risk_coverage(outcomes: Iterable[Outcome]) -> RiskCoverage | None:
    """The curve, surest answers first; equally sure ones together. None if no known question is stated."""
    counted = _stated(outcome for outcome in outcomes if outcome.kind != "unrelated" and outcome.counts)
    if not counted:
        return None
    sure = np.array([outcome.sureness for outcome in counted])
    wrong = np.array([not outcome.right for outcome in counted])
    order = np.argsort(-sure, kind="stable")
    last = np.append(np.diff(sure[order]) != 0, True)
    answered = np.arange(1, len(counted) + 1)
    risk = np.cumsum(wrong[order]) / answered
    # Of equally sure answers each stands for their mean.
    runs = np.searchsorted(np.flatnonzero(last), np.arange(len(counted)))
    ideal = np.cumsum(np.sort(wrong)) / answered
    return RiskCoverage(
        answered[last] / len(counted), risk[last], float(risk[last][runs].mean()), float(ideal.mean())
    )


def charts(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The reliability diagram and the risk-coverage curve for a terminal, 72 columns wide."""
    rows = bins(outcomes)
    if rows:
        yield "reliability: right first answers to known questions, by confidence (|: as stated)"
    for bin_ in rows:
        yield f"  {_span(bin_):>15} {_bar(bin_.right.share, bin_.stated)} {_percent(bin_.right)}"
    error, auroc = reliability_of(outcomes)
    if error is not None:
        ranked = "" if auroc is None else f"; a right answer stands above a wrong one in {auroc:.0%} of pairs"
        yield f"  expected calibration error {error:.3f}{ranked}"
    curve = risk_coverage(outcomes)
    if curve is not None:
        yield "risk and coverage: of the surest answers, how many are wrong (half have their video taken out)"
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


def _span(own: Bin) -> str:
    return f"{100 * own.low:g} to {100 * own.high:g} %"


def _percent(rate: Rate) -> str:
    low, high = rate.interval
    return f"{rate.share or 0.0:.1%} ({low:.0%} to {high:.0%}, {rate.of} questions)"
