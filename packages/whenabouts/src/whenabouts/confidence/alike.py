"""The probability that a frame that looks like a picture is of the same video, from their cosine.

A logistic curve for each network whose frames it was learned on (`learned.json`; fitted by
`benchmarks/likeness.py`, where it is also measured on videos it was not fitted on). For other networks there
is none: a cosine means something else to each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whenabouts.confidence.probability import learned, share_of


@dataclass(frozen=True, slots=True)
class Alike:
    """A curve: log odds = intercept + weight * cosine."""

    intercept: float
    weight: float

    def of(self, cosine: float) -> float:
        """The probability that what has this cosine with an example is of the same video."""
        return share_of(self.intercept + self.weight * cosine)


def curves() -> Mapping[str, Alike]:
    """The curve of each network that has one, by its name."""
    return {
        name: Alike(float(own["intercept"]), float(own["weight"])) for name, own in learned()["alike"].items()
    }
