"""How sure a trained system's answer is: a calibration that is kept in the checkpoint's folder.

The confidence of an answer is the probability that its first moment is right (that it shares enough with a
positive), from a raw number by a calibrator (`calibrators.py`). The raw number is one of

- `top`: the score of the best moment;
- `margin`: how far that is above what unrelated queries score best on the same videos,
  (top - median) / (upper quartile - lower quartile). It means the same among 50 videos and among 20,000,
  where every query finds something that scores high.

`calibration.py` measures it on queries of a validation split, each answered twice, with its positives and
without them: it holds where as many queries have an answer as do not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from whenabouts.confidence.probability import Thresholds
from whenabouts.intake.files import FormatError, json_error, read_json, write_atomically
from whenabouts.types import UsageError
from whenabouts_systems.models.trained import CALIBRATION
from whenabouts_systems.ranking.calibrators import Calibrator, Floats, calibrator_from

Definition = Literal["top", "margin"]
DEFINITIONS: tuple[Definition, ...] = ("top", "margin")
FILE = CALIBRATION
FORMAT = 1
LEAST_UNRELATED = 8
"""With fewer unrelated queries, quartiles say nothing."""
# Below this share of the scores' size a spread is none: unrelated queries all score the same.
_LEAST_SPREAD = 1e-6
_ACCEPTED = "what `whenabouts calibrate --checkpoint RUN` writes"
_KEYS = ("fingerprint", "system", "definition", "calibrator", "iou", "thresholds", "about", "unrelated")


@dataclass(frozen=True)
class Background:
    """What unrelated queries score best on some videos: the median, and the distance of the quartiles."""

    median: float
    spread: float

    @classmethod
    def of(cls, scores: Sequence[float] | Floats) -> Background:
        """From their best scores. Raises UsageError for fewer than `LEAST_UNRELATED`."""
        values = np.asarray(scores, np.float64)
        values = values[np.isfinite(values)]
        if len(values) < LEAST_UNRELATED:
            raise UsageError(
                f"{len(values)} unrelated queries found anything; what chance scores needs {LEAST_UNRELATED}"
            )
        low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
        least = _LEAST_SPREAD * max(1.0, abs(float(median)))
        return cls(float(median), max(float(high - low), least))

    def margin(self, score: Floats | float) -> Floats:
        """How far a score is above chance, in spreads."""
        return np.asarray((np.asarray(score, np.float64) - self.median) / self.spread)


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
            raise ValueError("a margin is above what unrelated queries score; there is no background")
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
    return _checked(path, read_json(path), fingerprint) if path.is_file() else None


def confidence_of(name: str | Path, calibration: bytes | None, fingerprint: str) -> TrainedConfidence | None:
    """The calibration that came with a trained system (`Trained.calibration`), also from a hub.

    `name` is how messages call the system. Raises as `load_confidence`.
    """
    if calibration is None:
        return None
    path = Path(name) / FILE
    try:
        content = json.loads(calibration)
    except ValueError as error:
        raise json_error(path, error, None, _ACCEPTED) from None
    return _checked(path, content, fingerprint)


def _checked(path: Path, content: Any, fingerprint: str) -> TrainedConfidence:
    """The calibration in a file, refused where it is none or that of another checkpoint."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        kind = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise FormatError(path, f"is of format {kind!r}", accepted=f"format {FORMAT}, {_ACCEPTED}")
    again = f"run `whenabouts calibrate --checkpoint {path.parent}` again, or remove that file"
    missing = next((key for key in _KEYS if key not in content), None)
    if missing is not None:
        raise FormatError(
            path, "is missing in this calibration", field=missing, accepted=f"{_ACCEPTED}; {again}"
        )
    try:
        kept = _from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise FormatError(path, f"is no calibration ({what})", accepted=f"{_ACCEPTED}; {again}") from None
    if kept.fingerprint != fingerprint:
        raise UsageError(
            f"{path}: is the calibration of another checkpoint (fingerprint {kept.fingerprint}; the one "
            f"beside it has {fingerprint}); {again}"
        )
    return kept


def _from_json(content: Mapping[str, Any]) -> TrainedConfidence:
    if content["definition"] not in DEFINITIONS:
        raise ValueError(f"definition {content['definition']!r}; accepted: {', '.join(DEFINITIONS)}")
    unrelated = tuple(content["unrelated"])
    if not all(isinstance(text, str) for text in unrelated):
        raise ValueError("unrelated sentences are text")
    if not isinstance(content["about"], dict) or not isinstance(content["about"].get("split"), str):
        raise ValueError("about says no split on which it was measured")
    iou, thresholds = float(content["iou"]), Thresholds.from_json(content["thresholds"])
    if not 0 < iou <= 1:
        raise ValueError(f"iou {iou:g}; accepted: above 0, at most 1")
    if not 0 <= thresholds.no_match_below <= thresholds.match_at <= 1:
        raise ValueError(
            f"thresholds: no match below {thresholds.no_match_below:g}, a match at {thresholds.match_at:g}; "
            "accepted: shares from 0 to 1, the first no greater than the second"
        )
    return TrainedConfidence(
        str(content["fingerprint"]),
        str(content["system"]),
        content["definition"],
        calibrator_from(content["calibrator"]),
        iou,
        unrelated,
        thresholds,
        dict(content["about"]),
    )
