"""Names of metrics: "R@10,IoU=0.5", "SVMR R@1,IoU=0.7", "VR R@100", "nDCG@20,IoU=0.7", "mAP"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from whenabouts.types import UsageError

if TYPE_CHECKING:  # the command line lists metrics and protocols without loading NumPy
    from whenabouts.formats.runs import Task

Measure = Literal["R", "nDCG", "mAP", "mIoU", "Hit"]
Length = Literal["short", "middle", "long"]

LENGTHS: dict[str, tuple[float, float]] = {"short": (0, 10), "middle": (10, 30), "long": (30, 150)}
"""Seconds of the judged moments of a class: more than the first and at most the second (QVHighlights)."""

ACCEPTED = (
    '"R@10,IoU=0.5", "SVMR R@1,IoU=0.7", "VR R@100", "nDCG@20,IoU=0.7", "mAP", "mAP,IoU=0.5", '
    '"mAP,length=short", "mIoU", "HL mAP,saliency=4", "HL Hit@1,saliency=4"'
)

_SHAPE = re.compile(
    r"(?:(?P<task>VCMR|SVMR|VMR|VR|HL)\s+)?(?P<measure>R|Recall|nDCG|mAP|mIoU|Hit)(?:@(?P<k>\d+))?"
    r"(?P<settings>(?:\s*,\s*[A-Za-z]+\s*=\s*[^,\s]+)*)",
    re.IGNORECASE,
)
_MEASURES: dict[str, Measure] = {name.lower(): name for name in get_args(Measure)} | {"recall": "R"}


@dataclass(frozen=True)
class Metric:
    """One metric. `name` is how it is written everywhere.

    `task` is the list of the run it reads, or HL for the scores of clips. `k` is the rank at which it stops
    (None: everywhere), `iou` the least overlap of a hit (None where the metric has none or takes the mean
    over 0.5, 0.55 ... 0.95), `length` the class of judged moments, `saliency` the least grade of a clip.
    """

    measure: Measure
    task: Task | Literal["HL"] = "VCMR"
    k: int | None = None
    iou: float | None = None
    length: str | None = None
    saliency: int | None = None

    @property
    def name(self) -> str:
        """As it is written on the command line, in Python and in tables."""
        task = "" if self.task == "VCMR" else f"{self.task} "
        depth = "" if self.k is None else f"@{self.k}"
        settings = {"IoU": self.iou, "length": self.length, "saliency": self.saliency}
        written = "".join(f",{key}={value}" for key, value in settings.items() if value is not None)
        return f"{task}{self.measure}{depth}{written}"


def parse_metric(text: str) -> Metric:
    """The metric of that name; case and blanks do not matter.

    >>> parse_metric("svmr r@5, iou=0.7").name
    'SVMR R@5,IoU=0.7'

    Raises UsageError, naming what is wrong and what is accepted.
    """
    found = _SHAPE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is no metric; accepted: {ACCEPTED}")
    task = (found["task"] or "VCMR").upper()
    settings = _settings(text, found["settings"])
    metric = Metric(
        measure=_MEASURES[found["measure"].lower()],
        task="SVMR" if task == "VMR" else task,  # type: ignore[arg-type]
        k=None if found["k"] is None else int(found["k"]),
        iou=_number(text, settings, "iou", 1.0),
        length=settings.get("length"),
        saliency=None if "saliency" not in settings else int(_number(text, settings, "saliency", 4.0) or 0),
    )
    _check(text, metric)
    return metric


def _settings(text: str, written: str) -> dict[str, str]:
    pairs = [part.split("=") for part in written.split(",") if part.strip()]
    settings = {key.strip().lower(): value.strip() for key, value in pairs}
    unknown = set(settings) - {"iou", "length", "saliency"}
    if unknown or len(settings) < len(pairs):
        what = f"no setting {sorted(unknown)[0]!r}" if unknown else "a setting given twice"
        raise UsageError(f"metric {text!r}: {what}; accepted: {ACCEPTED}")
    return settings


def _number(text: str, settings: dict[str, str], key: str, most: float) -> float | None:
    if key not in settings:
        return None
    try:
        value = float(settings[key])
    except ValueError:
        value = -1.0
    if not 0 < value <= most:
        raise UsageError(
            f"metric {text!r}: {key} {settings[key]!r} must be a number above 0, at most {most:g}; "
            f"accepted: {ACCEPTED}"
        )
    return value


def _check(text: str, metric: Metric) -> None:
    """Refuse what has no meaning: a metric must say all it needs and nothing that it ignores."""
    problem = ""
    if metric.k == 0:
        problem = "K begins at 1"
    elif (metric.task == "HL") != (metric.saliency is not None):
        problem = "HL metrics, and only they, need saliency=1 ... 4"
    elif metric.task == "HL" and not (
        (metric.measure == "Hit" and metric.k == 1) or (metric.measure == "mAP" and metric.k is None)
    ):
        problem = "HL knows mAP and Hit@1"
    elif metric.measure == "Hit" and metric.task != "HL":
        problem = "Hit@1 is a metric of HL"
    elif metric.length is not None and (metric.measure not in ("mAP", "R") or metric.length not in LENGTHS):
        problem = f"length is for R and mAP, one of {', '.join(LENGTHS)}"
    elif metric.measure in ("R", "nDCG") and metric.k is None:
        problem = f"{metric.measure} needs a rank, as in {metric.measure}@10"
    elif metric.task == "VR" and (metric.measure != "R" or metric.iou is not None):
        problem = "VR knows R@K, without IoU"
    elif metric.task != "VR" and metric.measure in ("R", "nDCG") and metric.iou is None:
        problem = f"{metric.measure} of moments needs an IoU, as in {metric.measure}@10,IoU=0.5"
    elif metric.measure == "mIoU" and (metric.iou is not None or metric.k not in (None, 1)):
        problem = "mIoU is the mean IoU of the first moment; it takes no IoU and no other rank"
    if problem:
        raise UsageError(f"metric {text!r}: {problem}; accepted: {ACCEPTED}")
