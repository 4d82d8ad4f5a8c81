"""Turn raw numbers into probabilities (calibrators), and measure how good these are (reliability bins).

- *Temperature*: the logistic curve p = 1 / (1 + exp(-(raw - offset) / temperature)), fitted by maximum
  likelihood (Platt, 1999; the offset is needed because a raw score is not a log-odds). It has two parameters
  and suits few queries.
- *Isotonic*: the best-fitting rising step function, by pooling adjacent violators (Ayer et al., 1955), with
  linear interpolation between the steps. It can take any rising shape and needs many queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts.types import UsageError

Floats = NDArray[np.float64]
Method = Literal["temperature", "isotonic"]
METHODS: tuple[Method, ...] = ("temperature", "isotonic")

# The largest slope of a logistic curve, which is then a step: a threshold separates right from wrong answers.
_STEEPEST = 1e6
_ROUNDS = 100


class Calibrator(Protocol):
    """Maps raw numbers to probabilities and never falls."""

    def __call__(self, raw: ArrayLike) -> Floats:
        """Probabilities in [0, 1], of the shape of `raw`."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a file."""


@dataclass(frozen=True)
class Temperature:
    """A logistic curve: 0.5 at `offset`, flatter with a higher `temperature` (above 0)."""

    offset: float
    temperature: float

    def __call__(self, raw: ArrayLike) -> Floats:
        """Probabilities of raw numbers."""
        height = (np.asarray(raw, np.float64) - self.offset) / self.temperature
        share: Floats = np.where(height >= 0, 1.0, np.exp(-np.abs(height))) / (1 + np.exp(-np.abs(height)))
        return share

    def to_json(self) -> dict[str, Any]:
        """The calibrator as plain values."""
        return {"method": "temperature", "offset": self.offset, "temperature": self.temperature}


@dataclass(frozen=True)
class Isotonic:
    """Linear interpolation between rising points: probability `share[i]` at `at[i]`, constant outside."""

    at: tuple[float, ...]
    share: tuple[float, ...]

    def __call__(self, raw: ArrayLike) -> Floats:
        """Probabilities of raw numbers."""
        return np.asarray(np.interp(np.asarray(raw, np.float64), self.at, self.share), np.float64)

    def to_json(self) -> dict[str, Any]:
        """The calibrator as plain values."""
        return {"method": "isotonic", "at": list(self.at), "share": list(self.share)}


def calibrator_from(value: Mapping[str, Any]) -> Calibrator:
    """A calibrator from plain values. Raises ValueError or KeyError if they are not one."""
    if value["method"] == "temperature":
        curve = Temperature(float(value["offset"]), float(value["temperature"]))
        if not (math.isfinite(curve.offset) and 0 < curve.temperature < math.inf):
            raise ValueError(f"offset {curve.offset}, temperature {curve.temperature}: not a logistic curve")
        return curve
    if value["method"] == "isotonic":
        at, share = (tuple(float(number) for number in value[name]) for name in ("at", "share"))
        rising = all(np.all(np.diff(numbers) >= 0) for numbers in (at, share))
        if not at or len(at) != len(share) or not rising or share[0] < 0 or share[-1] > 1:
            raise ValueError("the points of the isotonic curve do not rise within 0 to 1")
        return Isotonic(at, share)
    raise ValueError(f"method {value['method']!r}; accepted: {', '.join(METHODS)}")


def fit(method: Method, raw: ArrayLike, right: ArrayLike) -> Calibrator:
    """Fit a calibrator to raw numbers `raw` (N,) and whether answers are `right` (N,) bool.

    Raises UsageError if a number is not finite, if there are no answers, or if all are right or all wrong.
    """
    numbers, truth = np.asarray(raw, np.float64), np.asarray(right, bool)
    if not np.isfinite(numbers).all():
        raise UsageError(
            "a raw score is not finite: the system's weights or the features hold NaN or infinity; train the "
            "system again, or extract the features again"
        )
    if not truth.any() or truth.all():
        many = "all" if truth.size and truth.all() else "none"
        raise UsageError(
            f"first answers that are right: {many} of {truth.size}; a calibration needs at least one right "
            "and one wrong answer: give more queries, or another split"
        )
    return _fit_temperature(numbers, truth) if method == "temperature" else _fit_isotonic(numbers, truth)


def _fit_temperature(raw: Floats, right: NDArray[np.bool_]) -> Temperature:
    """The logistic curve of maximum likelihood, by Newton's method with a step that never lowers it.

    If a threshold separates right from wrong answers, no maximum exists. So targets are moved off 1 and 0, to
    (n+ + 1) / (n+ + 2) and 1 / (n- + 2) (Platt, 1999). A falling fit is replaced by the flattest rising one.
    """
    place, spread = float(np.median(raw)), float(raw.std()) or 1.0
    x = (raw - place) / spread
    positives = int(right.sum())
    target = np.where(right, (positives + 1) / (positives + 2), 1 / (len(right) - positives + 2))
    slope, shift = 0.0, math.log((positives + 1) / (len(right) - positives + 1))
    value = _loss(x, target, slope, shift)
    for _ in range(_ROUNDS):
        p = 1 / (1 + np.exp(-(slope * x + shift)))
        weight = p * (1 - p) + 1e-12
        gradient = np.array([((p - target) * x).sum(), (p - target).sum()])
        curvature = np.array(
            [[(weight * x * x).sum(), (weight * x).sum()], [(weight * x).sum(), weight.sum()]]
        )
        step = np.linalg.solve(curvature + 1e-12 * np.eye(2), gradient)
        size = 1.0
        while size > 1e-6:
            tried = (slope - size * float(step[0]), shift - size * float(step[1]))
            if (loss := _loss(x, target, *tried)) <= value:
                break
            size /= 2
        else:
            break
        done = value - loss <= 1e-12 * len(x)
        slope, shift, value = *tried, loss
        if done:
            break
    slope = min(max(slope, 1 / _STEEPEST), _STEEPEST)
    return Temperature(place - spread * shift / slope, spread / slope)


def _loss(x: Floats, target: Floats, slope: float, shift: float) -> float:
    """The negative log-likelihood of targets in [0, 1]."""
    height = slope * x + shift
    return float((np.logaddexp(0.0, height) - target * height).sum())


def _fit_isotonic(raw: Floats, right: NDArray[np.bool_]) -> Isotonic:
    """Pool adjacent violators; equal raw numbers are one point, and each level keeps its two ends."""
    values, inverse, counts = np.unique(raw, return_inverse=True, return_counts=True)
    starts, levels = _pooled(np.bincount(inverse[right], minlength=len(values)).tolist(), counts.tolist())
    last = [*(start - 1 for start in starts[1:]), len(values) - 1]
    share_at = dict(zip([*starts, *last], levels * 2, strict=True))
    ends = sorted(share_at)
    return Isotonic(tuple(values[ends].tolist()), tuple(share_at[end] for end in ends))


def _pooled(hits: list[int], counts: list[int]) -> tuple[list[int], list[float]]:
    """The start of each step of the best rising fit, and its share of hits; shares are compared exactly."""
    steps: list[tuple[int, int, int]] = []
    for place, (hit, count) in enumerate(zip(hits, counts, strict=True)):
        start = place
        while steps and steps[-1][1] * count >= hit * steps[-1][2]:
            start, earlier, before = steps.pop()
            hit, count = hit + earlier, count + before
        steps.append((start, hit, count))
    return [start for start, _, _ in steps], [hit / count for _, hit, count in steps]


@dataclass(frozen=True)
class Bin:
    """Answers whose confidence is at least `low` and below `high` (the last bin includes it)."""

    low: float
    high: float
    count: int
    confidence: float
    """The mean confidence of the answers."""
    right: float
    """The share of right answers."""

    def to_json(self) -> dict[str, Any]:
        """The bin as plain values."""
        return {
            "from": self.low,
            "to": self.high,
            "count": self.count,
            "confidence": self.confidence,
            "right": self.right,
        }


def reliability(confidence: ArrayLike, right: ArrayLike, bins: int = 10) -> list[Bin]:
    """Confidences and the share of right answers in bins of equal width, without empty bins."""
    claimed, truth = np.asarray(confidence, np.float64), np.asarray(right, np.float64)
    place = np.minimum((claimed * bins).astype(np.int64), bins - 1)
    filled = []
    for number in range(bins):
        in_bin = place == number
        if in_bin.any():
            mean, share = float(claimed[in_bin].mean()), float(truth[in_bin].mean())
            filled.append(Bin(number / bins, (number + 1) / bins, int(in_bin.sum()), mean, share))
    return filled


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """ECE: the mean distance of confidence and share of right answers, weighted by the answers of a bin."""
    total = sum(part.count for part in bins)
    if not total:
        return float("nan")
    return sum(part.count * abs(part.confidence - part.right) for part in bins) / total
