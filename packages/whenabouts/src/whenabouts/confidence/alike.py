"""The probability that two similar frames come from the same video, from their cosine.

`learned.json` has one logistic curve per network, which `benchmarks/likeness.py` fitted and measures on other
videos. A network without a curve has no probabilities, because cosines differ between networks.
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
        """The probability that a frame with this cosine to an example comes from its video."""
        return share_of(self.intercept + self.weight * cosine)


def curves() -> Mapping[str, Alike]:
    """The curve of each network that has one, by the network's name."""
    return {
        name: Alike(float(curve["intercept"]), float(curve["weight"]))
        for name, curve in learned()["alike"].items()
    }
