"""From a raw number to a probability, and how far such probabilities can be trusted.

Two calibrators. *Temperature*: a logistic curve, p = 1 / (1 + exp(-(raw - offset) / temperature)), fitted by
maximum likelihood (Platt, 1999; with an offset, since a raw score is no log-odds of its own). *Isotonic*: the
rising step function that fits best, by pooling neighbours that fall (Ayer et al., 1955), read between its
steps in a straight line. The first has two numbers and suits few questions, the second bends as it must.
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

# A logistic curve whose slope reaches this is a step: the questions are parted without a fault.
_STEEPEST = 1e6
_ROUNDS = 100


class Calibrator(Protocol):
    """Makes probabilities of raw numbers; the higher the number, the higher or equal the probability."""

    def __call__(self, raw: ArrayLike) -> Floats:
        """Probabilities in [0, 1], of the shape of `raw`."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a file."""


@dataclass(frozen=True)
class Temperature:
    """A logistic curve: one half at `offset`, the flatter the higher the `temperature` (above 0)."""

    offset: float
    temperature: float

    def __call__(self, raw: ArrayLike) -> Floats:
        """Probabilities of raw numbers."""
        height = (np.asarray(raw, np.float64) - self.offset) / self.temperature
        share: Floats = np.where(height >= 0, 1.0, np.exp(-np.abs(height))) / (1 + np.exp(-np.abs(height)))
        return share

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"method": "temperature", "offset": self.offset, "temperature": self.temperature}


@dataclass(frozen=True)
class Isotonic:
    """Straight lines through rising points: probability `share[i]` at raw number `at[i]`, level outside."""

    at: tuple[float, ...]
    share: tuple[float, ...]

    def __call__(self, raw: ArrayLike) -> Floats:
        """Probabilities of raw numbers."""
        return np.asarray(np.interp(np.asarray(raw, np.float64), self.at, self.share), np.float64)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"method": "isotonic", "at": list(self.at), "share": list(self.share)}


def calibrator_from(value: Mapping[str, Any]) -> Calibrator:
    """Back from plain values. Raises ValueError or KeyError for what is none."""
    if value["method"] == "temperature":
        curve = Temperature(float(value["offset"]), float(value["temperature"]))
        if not (math.isfinite(curve.offset) and 0 < curve.temperature < math.inf):
            raise ValueError(f"offset {curve.offset}, temperature {curve.temperature}: no logistic curve")
        return curve
    if value["method"] == "isotonic":
        at, share = (tuple(float(number) for number in value[name]) for name in ("at", "share"))
        rising = all(np.all(np.diff(numbers) >= 0) for numbers in (at, share))
        if not at or len(at) != len(share) or not rising or share[0] < 0 or share[-1] > 1:
            raise ValueError("the points of the isotonic curve do not rise from 0 to 1 at most")
        return Isotonic(at, share)
    raise ValueError(f"method {value['method']!r}; accepted: {', '.join(METHODS)}")


def fit(method: Method, raw: ArrayLike, right: ArrayLike) -> Calibrator:
    """The calibrator of `right` (N,) bool by `raw` (N,).

    Raises UsageError where nothing can be learned: no questions, or all of them right, or all wrong.
    """
    numbers, truth = np.asarray(raw, np.float64), np.asarray(right, bool)
    if not np.isfinite(numbers).all():
        raise UsageError("a raw score is not finite; the system's weights or the features are broken")
    if not truth.any() or truth.all():
        many = "all" if truth.size and truth.all() else "none"
        raise UsageError(
            f"first answers that are right: {many} of {truth.size}; a calibration takes at least one that is "
            "right and one that is wrong: give more queries, or another split"
        )
    return _fit_temperature(numbers, truth) if method == "temperature" else _fit_isotonic(numbers, truth)


def _fit_temperature(raw: Floats, right: NDArray[np.bool_]) -> Temperature:
    """The logistic curve of greatest likelihood, by Newton's method with a step that never loses.

    Where a threshold parts right from wrong without a fault there is no greatest one; targets are therefore
    moved a little off 0 and 1, to (n+ + 1) / (n+ + 2) and 1 / (n- + 2) (Platt, 1999). A falling curve is
    refused as a fit: the flattest rising one is taken.
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
    """Minus the log-likelihood of targets in [0, 1]."""
    height = slope * x + shift
    return float((np.logaddexp(0.0, height) - target * height).sum())


def _fit_isotonic(raw: Floats, right: NDArray[np.bool_]) -> Isotonic:
    """Pool-adjacent-violators; equal raw numbers are one point, and each level keeps its two ends."""
    values, inverse, counts = np.unique(raw, return_inverse=True, return_counts=True)
    starts, levels = _pooled(np.bincount(inverse[right], minlength=len(values)).tolist(), counts.tolist())
    last = [*(start - 1 for start in starts[1:]), len(values) - 1]
    share_at = dict(zip([*starts, *last], levels * 2, strict=True))
    ends = sorted(share_at)
    return Isotonic(tuple(values[ends].tolist()), tuple(share_at[end] for end in ends))


def _pooled(hits: list[int], counts: list[int]) -> tuple[list[int], list[float]]:
    """Where each of the closest rising steps begins, and its share of hits; compared in whole numbers."""
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
    """The mean of what was claimed."""
    right: float
    """The share that is right."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "from": self.low,
            "to": self.high,
            "count": self.count,
            "confidence": self.confidence,
            "right": self.right,
        }


def reliability(confidence: ArrayLike, right: ArrayLike, bins: int = 10) -> list[Bin]:
    """What was claimed beside what came of it, in bins of equal width; empty ones are left out."""
    claimed, truth = np.asarray(confidence, np.float64), np.asarray(right, np.float64)
    place = np.minimum((claimed * bins).astype(np.int64), bins - 1)
    filled = []
    for number in range(bins):
        own = place == number
        if own.any():
            mean, share = float(claimed[own].mean()), float(truth[own].mean())
            filled.append(Bin(number / bins, (number + 1) / bins, int(own.sum()), mean, share))
    return filled


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """ECE: the mean distance of what was claimed from what came of it, by the answers of each bin."""
    total = sum(part.count for part in bins)
    if not total:
        return float("nan")
    return sum(part.count * abs(part.confidence - part.right) for part in bins) / total
