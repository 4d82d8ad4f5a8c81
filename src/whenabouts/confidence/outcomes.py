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
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.confidence.chance import FIXED, Thresholds, answer_for, choose_thresholds
from whenabouts.confidence.rates import Rate, rate_of
from whenabouts.types import Answer

Kind = Literal["unrelated", "known", "taken_out"]
KINDS: tuple[Kind, ...] = ("unrelated", "known", "taken_out")

LEVELS = (0.5, 0.75, 0.9, 0.95, 0.99)
"""Confidences at which the claim "so large a share of unrelated questions stays below" is held to account."""

BINS = (0.0, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0)
"""Bins of confidence in which right first answers are counted."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one question found: the confidence of its best moment, None where no stream is calibrated.

    `right`: the best moment shares time with the true one. `literal`: every word of the question stands in a
    stream's best moment; `near`: in it or around it. `group` is the true video, or the number of an
    unrelated question.
    """

    kind: Kind
    confidence: float | None
    has_moment: bool
    right: bool
    literal: bool
    near: bool
    group: str

    def answer(self, thresholds: Thresholds = FIXED) -> Answer:
        """The answer in one word, as a search gives it."""
        return answer_for(
            self.confidence, has_moments=self.has_moment, is_literal=self.literal, thresholds=thresholds
        )

    @property
    def sureness(self) -> float:
        """The confidence; 0 where nothing was found."""
        return self.confidence or 0.0

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


def thresholds_of(outcomes: Iterable[Outcome]) -> Thresholds:
    """The thresholds that questions without an answer call for."""
    of: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    for outcome in outcomes:
        if outcome.counts:
            of[outcome.kind].append(outcome.sureness)
    return choose_thresholds(of["unrelated"], of["taken_out"])


def rates_of(outcomes: Sequence[Outcome]) -> Rates:
    """The rates, each half of the questions judged by thresholds that were chosen on the other half.

    Questions of one video stay in one half, so that nothing is judged by what was chosen on its like.
    """
    groups = sorted({(outcome.kind == "unrelated", outcome.group) for outcome in outcomes})
    half = {group: number % 2 for number, group in enumerate(groups)}
    halves = [half[outcome.kind == "unrelated", outcome.group] for outcome in outcomes]
    pairs = list(zip(outcomes, halves, strict=True))
    chosen = [thresholds_of(outcome for outcome, side in pairs if side != own) for own in (0, 1)]
    judged = [(outcome, outcome.answer(chosen[side])) for outcome, side in pairs]
    matched = [outcome for outcome, answer in judged if outcome.kind == "known" and answer == "match"]
    return Rates(
        _share(judged, "unrelated", "match"),
        _share(judged, "taken_out", "match"),
        _share(judged, "known", "no_match"),
        _share(judged, "known", "unsure"),
        _rate(matched, lambda outcome: outcome.right),
    )


def _share(judged: Iterable[tuple[Outcome, Answer]], kind: Kind, answer: Answer) -> Rate:
    own = [(outcome, given) for outcome, given in judged if outcome.kind == kind and outcome.counts]
    return rate_of([given == answer for _, given in own], [outcome.group for outcome, _ in own])


def _rate(outcomes: Sequence[Outcome], holds: Callable[[Outcome], bool]) -> Rate:
    """How often a condition holds."""
    return rate_of([holds(outcome) for outcome in outcomes], [outcome.group for outcome in outcomes])


class Held(NamedTuple):
    """A claim and what came of it: `claimed` of the unrelated questions should stay below this confidence."""

    claimed: float
    unrelated: Rate
    taken_out: Rate


class Bin(NamedTuple):
    """First answers with a confidence of at least `low` and below `high`, and how many were right."""

    low: float
    high: float
    right: Rate


def claims(outcomes: Sequence[Outcome], levels: Sequence[float] = LEVELS) -> list[Held]:
    """The reliability of confidence: which share of questions without an answer stays below each level."""
    own = {
        kind: [outcome for outcome in outcomes if outcome.kind == kind and outcome.counts] for kind in KINDS
    }

    def below(kind: Kind, level: float) -> Rate:
        return _rate(own[kind], lambda outcome: outcome.sureness < level)

    return [Held(level, below("unrelated", level), below("taken_out", level)) for level in levels]


def bins(outcomes: Sequence[Outcome]) -> list[Bin]:
    """How many first answers to known questions are right, by how sure they were; empty bins are left out."""
    filled = []
    for low, high in itertools.pairwise(BINS):
        limit = math.inf if high == BINS[-1] else high
        own = [outcome for outcome in outcomes if outcome.kind == "known" and low <= outcome.sureness < limit]
        if own:
            filled.append(Bin(low, high, _rate(own, lambda outcome: outcome.right)))
    return filled


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
    """The curve, surest answers first; equally sure ones together. None for no known questions."""
    counted = [outcome for outcome in outcomes if outcome.kind != "unrelated" and outcome.counts]
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
    yield "reliability: of questions without an answer, how many stay below a confidence (|: as it claims)"
    for held in claims(outcomes):
        for name, rate in (("unrelated", held.unrelated), ("taken out", held.taken_out)):
            if rate.of:
                yield f"  {held.claimed:>5.0%} {name:9} {_bar(rate.share, held.claimed)} {_percent(rate)}"
    yield "right first answers to known questions, by confidence"
    for bin_ in bins(outcomes):
        yield f"  {_span(bin_):>15} {_bar(bin_.right.share)} {_percent(bin_.right)}"
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
