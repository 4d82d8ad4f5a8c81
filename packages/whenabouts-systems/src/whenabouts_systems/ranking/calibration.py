"""Calibrate a trained system by its answers to queries with and without a right video in the pool.

`whenabouts calibrate --checkpoint` calls `calibrated` with the result of `measure_answerability`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.confidence.outcomes import Outcome, risk_coverage
from whenabouts.confidence.probability import Thresholds
from whenabouts.types import UsageError, number_of
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
"""The share of unanswerable queries that may reach "match", and of answerable ones below "no match"."""
ENOUGH_FOR_ISOTONIC = 1000
"""With fewer answers, a logistic curve (two parameters) is more reliable than an isotonic one."""


@dataclass(frozen=True, eq=False)
class TrainedReport:
    """A calibration (`confidence`) and how good it is.

    `outcomes` and `bins` are cross-validated: their calibrators were fitted to queries of other videos.
    `auroc` maps each definition of the raw number to how often an answerable query has a higher one.
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
        """The report as plain values."""
        curve = risk_coverage(self.outcomes)
        return {
            **{key: value for key, value in self.confidence.to_json().items() if key != "unrelated"},
            "reliability": [part.to_json() for part in self.bins],
            "risk_coverage": None if curve is None else curve.to_json(),
        }

    def lines(self) -> Iterator[str]:
        """The report as lines of text."""
        kept, about = self.confidence, self.confidence.about
        yield (
            f"{kept.system}: {about['answerable']:,} queries of {about['split']} with their answer, "
            f"{about['unanswerable']:,} with all judged videos removed; "
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
        yield "reliability: first answers by their confidence, and the share of them that was right"
        yield f"  {'confidence':<12} {'its mean':>9} {'right':>7} {'answers':>8}"
        for part in self.bins:
            span = f"{part.low:>4.0%} to {part.high:<4.0%}"
            yield f"  {span} {part.confidence:9.1%} {part.right:7.1%} {part.count:8,}"
        curve = risk_coverage(self.outcomes)
        if curve is not None:
            yield "risk and coverage: if only the most confident answers are given, how many are wrong"
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
    """Fit a calibration, and measure it on videos that it was not fitted to.

    For the report, the queries are divided by video into two halves, and each half is judged by a calibrator
    fitted to the other. The returned calibration is fitted to all. `method` None is "isotonic" from
    `ENOUGH_FOR_ISOTONIC` answers on, else "temperature". Raises UsageError if no first answer is right, or
    all are, or if a half lacks right or wrong ones.
    """
    raw, right, group, kinds = _answers(measured, definition)
    method = method or ("isotonic" if len(raw) >= ENOUGH_FOR_ISOTONIC else "temperature")
    confidence = _crossed(raw, right, group, method)
    outcomes = tuple(
        Outcome(
            "known" if kind == "known" else "taken_out", float(share), True, bool(good), False, False, video
        )
        for kind, share, good, video in zip(kinds, confidence, right, group, strict=True)
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
    """Raw numbers, whether right, own videos and kinds: all queries, then all without their positives.

    Queries without a raw number are skipped.
    """
    raw = measured.raw(definition)
    numbers = np.concatenate([raw["in"], raw["out"]])
    right = np.concatenate([measured.right, np.zeros(len(measured.right), bool)])
    kinds = np.repeat(["known", "taken_out"], len(measured.right))
    finite = np.isfinite(numbers)
    group = [name for name, is_finite in zip(measured.group * 2, finite.tolist(), strict=True) if is_finite]
    return numbers[finite], right[finite], group, kinds[finite]


def _crossed(raw: Floats, right: NDArray[np.bool_], group: list[str], method: Method) -> Floats:
    """Cross-validated confidences: each half of the videos by a calibrator fitted to the other half."""
    names = sorted(set(group))
    half = {name: number % 2 for number, name in enumerate(names)}
    side = np.array([half[name] for name in group])
    if len(names) < 2 or any(len(set(right[side == number].tolist())) < 2 for number in (0, 1)):
        raise UsageError(
            f"{number_of(len(names), 'video')} with answers to measure: to calibrate on one half of "
            "them and check on the other, each half needs a right and a wrong first answer; give more videos"
        )
    confidence = np.zeros(len(raw))
    for number in (0, 1):
        fitted = fit(method, raw[side != number], right[side != number])
        confidence[side == number] = fitted(raw[side == number])
    return confidence


def _auroc(measured: Answerability, definition: Definition) -> float | None:
    """AUROC of answerable against unanswerable queries; None if one kind has no raw numbers."""
    raw = measured.raw(definition)
    answered, others = (raw[side][np.isfinite(raw[side])] for side in ("in", "out"))
    numbers = np.concatenate([answered, others])
    value = auroc(numbers, np.arange(len(numbers)) < len(answered), np.ones(len(numbers)))
    return None if np.isnan(value) else value


def _thresholds(answerable: Floats, taken_out: Floats) -> Thresholds:
    """The thresholds of "match" and "no match".

    At most `FALSE_ALARMS` of the unanswerable queries reach "match", and at most `FALSE_ALARMS` of the
    answerable ones lie below "no match", which is never above "match".
    """
    match_at = _reached_by_few(taken_out) if len(taken_out) else 0.5
    return Thresholds(match_at, min(match_at, float(np.quantile(answerable, FALSE_ALARMS, method="lower"))))


def _reached_by_few(confidence: Floats) -> float:
    """The lowest of the confidences that at most `FALSE_ALARMS` of the answers reach.

    A step function gives many answers the same confidence, so fewer may reach it. If too many answers have
    the highest confidence, the result lies just above it.
    """
    rising = np.sort(confidence)
    too_low = rising[len(rising) - 1 - int(FALSE_ALARMS * len(rising))]
    higher = rising[rising > too_low]
    return float(higher[0]) if len(higher) else min(1.0, float(np.nextafter(too_low, np.inf)))
