"""How sure a trained system's answer is: a calibration that is kept in the checkpoint's folder.

The confidence of an answer is the probability that its first moment is right (that it shares enough with a
positive), told from one raw number (`trials.py`) by a calibrator (`calibrators.py`). It was fitted to queries
of a validation split, each asked twice, with its positives and without them: it holds where as many questions
have an answer as do not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts.confidence.chance import Thresholds
from whenabouts.confidence.outcomes import Outcome, risk_coverage
from whenabouts.formats.files import FormatError, json_error, read_json, write_atomically
from whenabouts.models.trained import CALIBRATION
from whenabouts.ranking.calibrators import (
    Bin,
    Calibrator,
    Method,
    area_under_curve,
    calibrator_from,
    expected_calibration_error,
    fit,
    reliability,
)
from whenabouts.ranking.trials import DEFINITIONS, Background, Definition, Trials
from whenabouts.types import UsageError

Floats = NDArray[np.float64]

FILE = CALIBRATION
FORMAT = 1
FALSE_ALARMS = 0.1
"""The share of queries without an answer that may be called a match, and of others that may be missed."""
ENOUGH_TO_BEND = 1000
"""With fewer answers a curve of two numbers is surer than one that bends as it must."""
_ACCEPTED = "what `whenabouts calibrate --checkpoint RUN` writes"


@dataclass(frozen=True)
class TrainedConfidence:
    """The calibration of one checkpoint.

    `fingerprint` is the checkpoint's (`Trained.fingerprint`), `iou` what a right moment shares at least with
    a positive, `unrelated` the sentences that say what chance scores, `thresholds` part "match", "unsure" and
    "no match". `about` says what it was measured on and how good it is: plain values.
    """

    fingerprint: str
    system: str
    definition: Definition
    calibrator: Calibrator
    iou: float
    unrelated: tuple[str, ...]
    thresholds: Thresholds
    about: Mapping[str, Any] = field(default_factory=dict)

    def of_scores(self, scores: ArrayLike, background: Background | None) -> Floats:
        """Confidences of answers by their scores; `background` is what unrelated queries score there.

        Raises ValueError where the definition needs a background and there is none.
        """
        if self.definition == "top":
            return self.calibrator(scores)
        if background is None:
            raise ValueError("a margin is told from what unrelated queries score; there is no background")
        return self.calibrator(background.margin(np.asarray(scores, np.float64)))

    def to_json(self) -> dict[str, Any]:
        """Plain values, as they are kept."""
        return {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "system": self.system,
            "definition": self.definition,
            "calibrator": self.calibrator.to_json(),
            "iou": self.iou,
            "thresholds": self.thresholds.to_json(),
            "about": dict(self.about),
            "unrelated": list(self.unrelated),
        }

    def save(self, folder: str | Path) -> Path:
        """Write it beside a checkpoint's weights, whole or not at all; the path."""
        path = Path(folder) / FILE
        with write_atomically(path) as stream:
            stream.write((json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n").encode())
        return path


def load_confidence(folder: str | Path, fingerprint: str) -> TrainedConfidence | None:
    """The calibration of the checkpoint in a folder; None where there is none.

    Raises FormatError for a file that is none, UsageError for the calibration of another checkpoint.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        return None
    return _checked(path, read_json(path), fingerprint)


def confidence_of(name: str | Path, calibration: bytes | None, fingerprint: str) -> TrainedConfidence | None:
    """The calibration that came with a trained system (`Trained.calibration`), also from a hub.

    `name` is how messages call the system. Raises as `load_confidence`.
    """
    if calibration is None:
        return None
    path = Path(name) / FILE
    try:
        told = json.loads(calibration)
    except ValueError as error:
        raise json_error(path, error, None, _ACCEPTED) from None
    return _checked(path, told, fingerprint)


def _checked(path: Path, told: Any, fingerprint: str) -> TrainedConfidence:
    """What a file says, refused where it is no calibration or that of another checkpoint."""
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        found = told.get("format") if isinstance(told, dict) else type(told).__name__
        raise FormatError(path, f"is of format {found!r}", accepted=f"format {FORMAT}, {_ACCEPTED}")
    again = f"run `whenabouts calibrate --checkpoint {path.parent}` again, or remove that file"
    missing = next((key for key in _KEYS if key not in told), None)
    if missing is not None:
        raise FormatError(
            path, "is missing in this calibration", field=missing, accepted=f"{_ACCEPTED}; {again}"
        )
    try:
        kept = _from_json(told)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise FormatError(path, f"is no calibration ({what})", accepted=f"{_ACCEPTED}; {again}") from None
    if kept.fingerprint != fingerprint:
        raise UsageError(
            f"{path}: is the calibration of another checkpoint (fingerprint {kept.fingerprint}; the one "
            f"beside it has {fingerprint}); {again}"
        )
    return kept


_KEYS = (*("fingerprint", "system", "definition", "calibrator", "iou", "thresholds", "about", "unrelated"),)


def _from_json(told: Mapping[str, Any]) -> TrainedConfidence:
    if told["definition"] not in DEFINITIONS:
        raise ValueError(f"definition {told['definition']!r}; accepted: {', '.join(DEFINITIONS)}")
    unrelated = tuple(told["unrelated"])
    if not all(isinstance(text, str) for text in unrelated):
        raise ValueError("unrelated sentences are text")
    if not isinstance(told["about"], dict) or not isinstance(told["about"].get("split"), str):
        raise ValueError("about says no split on which it was measured")
    iou, thresholds = float(told["iou"]), Thresholds.from_json(told["thresholds"])
    if not 0 < iou <= 1:
        raise ValueError(f"iou {iou:g}; accepted: above 0, at most 1")
    if not 0 <= thresholds.no_match_below <= thresholds.match_at <= 1:
        raise ValueError(
            f"thresholds: no match below {thresholds.no_match_below:g}, a match at {thresholds.match_at:g}; "
            "accepted: shares from 0 to 1, the first no greater than the second"
        )
    return TrainedConfidence(
        str(told["fingerprint"]),
        str(told["system"]),
        told["definition"],
        calibrator_from(told["calibrator"]),
        iou,
        unrelated,
        thresholds,
        dict(told["about"]),
    )


@dataclass(frozen=True, eq=False)
class TrainedReport:
    """A calibration and what it was told by.

    Every number is of answers judged by a calibrator that was fitted to other videos' queries. `auroc` tells
    for each definition of the raw number how often a query with its answer scores above one without.
    """

    confidence: TrainedConfidence
    outcomes: tuple[Outcome, ...]
    bins: tuple[Bin, ...]
    auroc: Mapping[str, float]

    @property
    def error(self) -> float:
        """The expected calibration error."""
        return expected_calibration_error(self.bins)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        curve = risk_coverage(self.outcomes)
        return {
            **{key: value for key, value in self.confidence.to_json().items() if key != "unrelated"},
            "reliability": [one.to_json() for one in self.bins],
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
        told = ", ".join(f"{value:.3f} by {name}" for name, value in self.auroc.items())
        yield (
            f"right first answers: {about['right']:.1%} (IoU {kept.iou:g} or more); AUROC of answerable "
            f"against unanswerable {told}"
        )
        yield (
            f"{kept.calibrator.to_json()['method']} on {kept.definition}: expected calibration error "
            f"{self.error:.3f}; a match from {kept.thresholds.match_at:.1%}, no match below "
            f"{kept.thresholds.no_match_below:.1%}"
        )
        yield "reliability: first answers by their confidence, and how many of them were right"
        yield f"  {'confidence':<12} {'its mean':>9} {'right':>7} {'answers':>8}"
        for one in self.bins:
            span = f"{one.low:>4.0%} to {one.high:<4.0%}"
            yield f"  {span} {one.confidence:9.1%} {one.right:7.1%} {one.count:8,}"
        curve = risk_coverage(self.outcomes)
        if curve is not None:
            yield "risk and coverage: if only the surest answers are given, how many of these are wrong"
            yield "   given  wrong"
            for share in (0.1, 0.25, 0.5, 0.75, 1.0):
                yield f"  {share:>6.0%} {curve.risk_at(share):6.1%}"
            yield f"  area under the curve {curve.area:.3f}; {curve.ideal:.3f} in the best order"


def calibrated(
    trials: Trials,
    fingerprint: str,
    system: str,
    *,
    split: str,
    iou: float,
    method: Method | None = None,
    definition: Definition = "margin",
) -> TrainedReport:
    """A calibration from trials, and how good it is on videos that it did not see.

    For the report queries are parted by their video in two halves, each judged by what was fitted to the
    other; what is kept is fitted to all. Without a `method` it is isotonic from `ENOUGH_TO_BEND` answers on.
    Raises UsageError where no first answer is right, or all are.
    """
    raw, right, group, kinds = _answers(trials, definition)
    method = method or ("isotonic" if len(raw) >= ENOUGH_TO_BEND else "temperature")
    confidence = _crossed(raw, right, group, method)
    outcomes = tuple(
        Outcome("known" if kind == "known" else "taken_out", float(sure), True, bool(good), False, False, own)
        for kind, sure, good, own in zip(kinds, confidence, right, group, strict=True)
    )
    calibrator = fit(method, raw, right)
    auroc: dict[str, float] = {name: _auroc(trials, name) for name in DEFINITIONS}
    thresholds = _thresholds(calibrator(raw[kinds == "known"]), calibrator(raw[kinds == "taken_out"]))
    bins = tuple(reliability(confidence, right))
    curve = risk_coverage(outcomes)
    about = {
        "split": split,
        "answerable": int((kinds == "known").sum()),
        "unanswerable": int((kinds == "taken_out").sum()),
        "pool_size": float(np.median(trials.pool_sizes)),
        "right": float(trials.right.mean()),
        "auroc": auroc,
        "expected_calibration_error": expected_calibration_error(bins),
        "risk_coverage_area": None if curve is None else curve.area,
        "risk_coverage_ideal": None if curve is None else curve.ideal,
    }
    kept = TrainedConfidence(
        fingerprint, system, definition, calibrator, iou, trials.unrelated, thresholds, about
    )
    return TrainedReport(kept, outcomes, bins, auroc)


def _answers(
    trials: Trials, definition: Definition
) -> tuple[Floats, NDArray[np.bool_], list[str], NDArray[np.str_]]:
    """Raw numbers, whether right, own videos and kinds: of all queries, then with positives taken out.

    Trials without a raw number are left out.
    """
    raw = trials.raw(definition)
    numbers = np.concatenate([raw["in"], raw["out"]])
    right = np.concatenate([trials.right, np.zeros(len(trials.right), bool)])
    kinds = np.repeat(["known", "taken_out"], len(trials.right))
    told = np.isfinite(numbers)
    group = [name for name, there in zip(trials.group * 2, told.tolist(), strict=True) if there]
    return numbers[told], right[told], group, kinds[told]


def _crossed(raw: Floats, right: NDArray[np.bool_], group: list[str], method: Method) -> Floats:
    """Confidences, each by a calibrator fitted to the other half of the videos."""
    names = sorted(set(group))
    half = {name: number % 2 for number, name in enumerate(names)}
    side = np.array([half[name] for name in group])
    if len(names) < 2 or any(len(set(right[side == own].tolist())) < 2 for own in (0, 1)):
        raise UsageError(
            f"{len(names)} videos: too few to calibrate on one half of them and check on the other; both "
            "halves need right and wrong first answers"
        )
    confidence = np.zeros(len(raw))
    for own in (0, 1):
        confidence[side == own] = fit(method, raw[side != own], right[side != own])(raw[side == own])
    return confidence


def _auroc(trials: Trials, definition: Definition) -> float:
    raw = trials.raw(definition)
    return area_under_curve(*(raw[side][np.isfinite(raw[side])] for side in ("in", "out")))


def _thresholds(known: Floats, taken_out: Floats) -> Thresholds:
    """A match is what at most `FALSE_ALARMS` of queries without an answer reach, no match what at most so
    many with one stay below; never above a match."""
    match_at = _reached_by_few(taken_out) if len(taken_out) else 0.5
    return Thresholds(match_at, min(match_at, float(np.quantile(known, FALSE_ALARMS, method="lower"))))


def _reached_by_few(confidence: Floats) -> float:
    """The lowest confidence, of those told, that at most `FALSE_ALARMS` of the answers reach.

    A curve of steps gives many answers the same confidence: then fewer reach it. Where the highest step has
    too many, it lies just above that.
    """
    rising = np.sort(confidence)
    too_low = rising[len(rising) - 1 - int(FALSE_ALARMS * len(rising))]
    higher = rising[rising > too_low]
    return float(higher[0]) if len(higher) else min(1.0, float(np.nextafter(too_low, np.inf)))
