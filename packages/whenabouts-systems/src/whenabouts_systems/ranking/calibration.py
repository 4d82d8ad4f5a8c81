"""The calibration of a trained system, from what it retrieves with the answer there and without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.confidence.outcomes import Outcome, risk_coverage
from whenabouts.confidence.probability import Thresholds
from whenabouts.types import UsageError
from whenabouts_bench.harness.rejection import auroc
from whenabouts_systems.ranking.answerability import Answerability
from whenabouts_systems.ranking.calibrators import (
    Bin,
    Floats,
    Method,
    expected_calibration_error,
    fit,
    reliability,
)
from whenabouts_systems.ranking.confidence import DEFINITIONS, Definition, TrainedConfidence

FALSE_ALARMS = 0.1
"""The share of queries without an answer that may be called a match, and of others that may be missed."""
ENOUGH_TO_BEND = 1000
"""With fewer answers a curve of two numbers is surer than one that bends as it must."""


@dataclass(frozen=True, eq=False)
class TrainedReport:
    """A calibration and what it was measured by.

    Every number is of answers judged by a calibrator that was fitted to other videos' queries. `auroc` tells
    for each definition of the raw number how often a query with its answer scores above one without.
    """

    confidence: TrainedConfidence
    outcomes: tuple[Outcome, ...]
    bins: tuple[Bin, ...]
    auroc: Mapping[str, float | None]

    @property
    def error(self) -> float:
        """The expected calibration error."""
        return expected_calibration_error(self.bins)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        curve = risk_coverage(self.outcomes)
        return {
            **{key: value for key, value in self.confidence.to_json().items() if key != "unrelated"},
            "reliability": [part.to_json() for part in self.bins],
            "risk_coverage": None if curve is None else curve.to_json(),
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        kept, about = self.confidence, self.confidence.about
        yield (
            f"{kept.system}: {about['answerable']:,} queries of {about['split']} with their answer, "
            f"{about['unanswerable']:,} with all judged videos taken out; "
            f"pools of {about['pool_size']:g} videos"
        )
        auroc = ", ".join(
            f"{'-' if value is None else f'{value:.3f}'} by {name}" for name, value in self.auroc.items()
        )
        yield (
            f"right first answers: {about['right']:.1%} (IoU {kept.iou:g} or more); AUROC of answerable "
            f"against unanswerable {auroc}"
        )
        yield (
            f"{kept.calibrator.to_json()['method']} on {kept.definition}: expected calibration error "
            f"{self.error:.3f}; a match from {kept.thresholds.match_at:.1%}, no match below "
            f"{kept.thresholds.no_match_below:.1%}"
        )
        yield "reliability: first answers by their confidence, and how many of them were right"
        yield f"  {'confidence':<12} {'its mean':>9} {'right':>7} {'answers':>8}"
        for part in self.bins:
            span = f"{part.low:>4.0%} to {part.high:<4.0%}"
            yield f"  {span} {part.confidence:9.1%} {part.right:7.1%} {part.count:8,}"
        curve = risk_coverage(self.outcomes)
        if curve is not None:
            yield "risk and coverage: if only the surest answers are given, how many of these are wrong"
            yield "   given  wrong"
            for share in (0.1, 0.25, 0.5, 0.75, 1.0):
                yield f"  {share:>6.0%} {curve.risk_at(share):6.1%}"
            yield f"  area under the curve {curve.area:.3f}; {curve.ideal:.3f} in the best order"


def calibrated(
    measured: Answerability,
    fingerprint: str,
    system: str,
    *,
    split: str,
    iou: float,
    method: Method | None = None,
    definition: Definition = "margin",
) -> TrainedReport:
    """A calibration, and how good it is on videos that it did not see.

    For the report queries are parted by their video in two halves, each judged by what was fitted to the
    other; what is kept is fitted to all. Without a `method` it is isotonic from `ENOUGH_TO_BEND` answers on.
    Raises UsageError where no first answer is right, or all are.
    """
    raw, right, group, kinds = _answers(measured, definition)
    method = method or ("isotonic" if len(raw) >= ENOUGH_TO_BEND else "temperature")
    confidence = _crossed(raw, right, group, method)
    outcomes = tuple(
        Outcome("known" if kind == "known" else "taken_out", float(sure), True, bool(good), False, False, own)
        for kind, sure, good, own in zip(kinds, confidence, right, group, strict=True)
    )
    calibrator = fit(method, raw, right)
    auroc: dict[str, float | None] = {name: _auroc(measured, name) for name in DEFINITIONS}
    thresholds = _thresholds(calibrator(raw[kinds == "known"]), calibrator(raw[kinds == "taken_out"]))
    bins = tuple(reliability(confidence, right))
    curve = risk_coverage(outcomes)
    about = {
        "split": split,
        "answerable": int((kinds == "known").sum()),
        "unanswerable": int((kinds == "taken_out").sum()),
        "pool_size": float(np.median(measured.pool_sizes)),
        "right": float(measured.right.mean()),
        "auroc": auroc,
        "expected_calibration_error": expected_calibration_error(bins),
        "risk_coverage_area": None if curve is None else curve.area,
        "risk_coverage_ideal": None if curve is None else curve.ideal,
    }
    kept = TrainedConfidence(
        fingerprint, system, definition, calibrator, iou, measured.unrelated, thresholds, about
    )
    return TrainedReport(kept, outcomes, bins, auroc)


def _answers(
    measured: Answerability, definition: Definition
) -> tuple[Floats, NDArray[np.bool_], list[str], NDArray[np.str_]]:
    """Raw numbers, whether right, own videos and kinds: of all queries, then with positives taken out.

    Queries without a raw number are left out.
    """
    raw = measured.raw(definition)
    numbers = np.concatenate([raw["in"], raw["out"]])
    right = np.concatenate([measured.right, np.zeros(len(measured.right), bool)])
    kinds = np.repeat(["known", "taken_out"], len(measured.right))
    finite = np.isfinite(numbers)
    group = [name for name, there in zip(measured.group * 2, finite.tolist(), strict=True) if there]
    return numbers[finite], right[finite], group, kinds[finite]


def _crossed(raw: Floats, right: NDArray[np.bool_], group: list[str], method: Method) -> Floats:
    """Confidences, each by a calibrator fitted to the other half of the videos."""
    names = sorted(set(group))
    half = {name: number % 2 for number, name in enumerate(names)}
    side = np.array([half[name] for name in group])
    if len(names) < 2 or any(len(set(right[side == own].tolist())) < 2 for own in (0, 1)):
        raise UsageError(
            f"videos of the split: {len(names)}, too few to calibrate on one half of them and check on the "
            "other; it takes 2 videos or more, and in each half of them a right and a wrong first answer"
        )
    confidence = np.zeros(len(raw))
    for own in (0, 1):
        confidence[side == own] = fit(method, raw[side != own], right[side != own])(raw[side == own])
    return confidence


def _auroc(measured: Answerability, definition: Definition) -> float | None:
    """None where the number is not there for queries with their answer, or for those without."""
    raw = measured.raw(definition)
    answered, others = (raw[side][np.isfinite(raw[side])] for side in ("in", "out"))
    numbers = np.concatenate([answered, others])
    value = auroc(numbers, np.arange(len(numbers)) < len(answered), np.ones(len(numbers)))
    return None if np.isnan(value) else value


def _thresholds(answerable: Floats, taken_out: Floats) -> Thresholds:
    """A match is what at most `FALSE_ALARMS` of queries without an answer reach, no match what at most so
    many with one stay below; never above a match."""
    match_at = _reached_by_few(taken_out) if len(taken_out) else 0.5
    return Thresholds(match_at, min(match_at, float(np.quantile(answerable, FALSE_ALARMS, method="lower"))))


def _reached_by_few(confidence: Floats) -> float:
    """The lowest confidence, of all, that at most `FALSE_ALARMS` of the answers reach.

    A curve of steps gives many answers the same confidence: then fewer reach it. Where the highest step has
    too many, it lies just above that.
    """
    rising = np.sort(confidence)
    too_low = rising[len(rising) - 1 - int(FALSE_ALARMS * len(rising))]
    higher = rising[rising > too_low]
    return float(higher[0]) if len(higher) else min(1.0, float(np.nextafter(too_low, np.inf)))
