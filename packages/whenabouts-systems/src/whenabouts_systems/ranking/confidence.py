"""Give a trained system's answers confidences, by a calibration in the checkpoint's folder.

The confidence is the probability that the first moment is right: its IoU with a true moment is high enough. A
calibrator (`calibrators.py`) computes it from a raw number:

- `top`: the score of the best moment;
- `margin`: how far this score lies above the best scores of unrelated queries on the same videos,
  (top - median) / (upper quartile - lower quartile). So it means the same for few and for many videos,
  although among 20,000 every query finds something with a high score.

`calibration.py` fits the calibrator to the queries of a validation split, each answered once in a pool with
its right videos and once without them. So confidences assume that half of the queries have an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from whenabouts.confidence.probability import Thresholds
from whenabouts.intake.files import FormatError, parse_json, read_json, write_atomically
from whenabouts.types import UsageError
from whenabouts_systems.models.trained import CALIBRATION
from whenabouts_systems.ranking.calibrators import Calibrator, Floats, calibrator_from

Definition = Literal["top", "margin"]
DEFINITIONS: tuple[Definition, ...] = ("top", "margin")
FILE = CALIBRATION
FORMAT = 1
LEAST_UNRELATED = 8
"""The fewest unrelated queries for meaningful quartiles."""
# The least spread, as a share of the median (of 1 if it is smaller): below it all unrelated queries score the
# same.
_LEAST_SPREAD = 1e-6
_ACCEPTED = "what `whenabouts calibrate --checkpoint RUN` writes"


@dataclass(frozen=True)
class Background:
    """The best scores of unrelated queries on some videos: median, and distance of the quartiles."""

    median: float
    spread: float

    @classmethod
    def of(cls, scores: Sequence[float] | Floats) -> Background:
        """The background of best scores. Raises UsageError for fewer than `LEAST_UNRELATED` finite ones."""
        values = np.asarray(scores, np.float64)
        values = values[np.isfinite(values)]
        if len(values) < LEAST_UNRELATED:
            raise UsageError(
                f"only {len(values)} unrelated queries found anything; {LEAST_UNRELATED} are needed to "
                "measure what chance scores"
            )
        low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
        least = _LEAST_SPREAD * max(1.0, abs(float(median)))
        return cls(float(median), max(float(high - low), least))

    def margin(self, score: Floats | float) -> Floats:
        """How far scores lie above the median, in spreads; of the shape of `score`."""
        return np.asarray((np.asarray(score, np.float64) - self.median) / self.spread)


@dataclass(frozen=True)
class TrainedConfidence:
    """The calibration of one checkpoint.

    `fingerprint` is the checkpoint's (`Trained.fingerprint`). A moment is right from the IoU `iou` with a
    true one on. `unrelated` are the sentences that measure chance; `thresholds` separate "match", "unsure"
    and "no match". `about` holds plain values: the split it was measured on, and how good it is.
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
        """The confidences, from 0 to 1, of answers with these scores on the videos of `background`.

        Raises ValueError if the definition needs a background and there is none.
        """
        if self.definition == "top":
            return self.calibrator(scores)
        if background is None:
            raise ValueError("a margin needs a background, the scores of unrelated queries")
        return self.calibrator(background.margin(np.asarray(scores, np.float64)))

    def to_json(self) -> dict[str, Any]:
        """Plain values for the file."""
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
        """Write `calibration.json` beside a checkpoint's weights, atomically; return its path."""
        path = Path(folder).expanduser() / FILE
        with write_atomically(path) as stream:
            stream.write((json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n").encode())
        return path


def load_confidence(
    place: str | Path, fingerprint: str, of_hub: bytes | None = None
) -> TrainedConfidence | None:
    """The calibration in a checkpoint's folder, or `of_hub`, which came with one of a hub; None without one.

    Raises FormatError for a file that is not a calibration, UsageError for that of another checkpoint.
    """
    path = Path(place).expanduser() / FILE
    if path.is_file():
        return _checked(path, read_json(path), fingerprint)
    if of_hub is None or path.parent.is_dir():
        return None
    return _checked(path, parse_json(path, of_hub), fingerprint)


def how_to_calibrate(checkpoint: str | Path) -> str:
    """The command that calibrates a checkpoint; one on a hub is downloaded before."""
    if Path(checkpoint).expanduser().is_dir():
        return f"run `whenabouts calibrate --checkpoint {checkpoint} --features DIR`"
    return f"run `hf download {checkpoint} --local-dir RUN`, then `whenabouts calibrate --checkpoint RUN`"


def _checked(path: Path, content: Any, fingerprint: str) -> TrainedConfidence:
    """The calibration in a file. Raises FormatError, UsageError as `load_confidence`."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        kind = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise FormatError(path, f"is of format {kind!r}", accepted=f"format {FORMAT}, {_ACCEPTED}")
    again = f"{how_to_calibrate(path.parent)} again, or remove that file"
    missing = next((part.name for part in fields(TrainedConfidence) if part.name not in content), None)
    if missing is not None:
        raise FormatError(
            path, "is missing in this calibration", field=missing, accepted=f"{_ACCEPTED}; {again}"
        )
    try:
        kept = _from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise FormatError(path, f"is not a calibration ({what})", accepted=f"{_ACCEPTED}; {again}") from None
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
        raise ValueError("unrelated sentences must be text")
    if not isinstance(content["about"], dict) or not isinstance(content["about"].get("split"), str):
        raise ValueError("about names no split on which it was measured")
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
