"""Detectors of potentially relevant pairs: what of two captions is compared (paper 000, section 4.1).

Two captions are relevant where any part of the one has a cosine of at least theta with any part of the other
(equation 7). The caption itself is always the first part; Phi_np-vp keeps it too, for the paper has clauses
take the place of verb phrases "instead of solely using VPs in addition to the original sentence".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from whenabouts.relevance.phrases.protocol import Phrases
from whenabouts.types import UsageError


@dataclass(frozen=True)
class Detector:
    """A name, what it says on the command line, and the parts beside the caption itself, None for none."""

    name: str
    summary: str
    parts: Callable[[Phrases], tuple[str, ...]] | None


DETECTORS = {
    detector.name: detector
    for detector in (
        Detector("sent", "whole captions", None),
        Detector("vp", "captions and their verb phrases", lambda phrases: phrases.verb),
        Detector("np-vp", "captions and their clauses of noun and verb", lambda phrases: phrases.clauses),
    )
}


def detector_of(name: str) -> Detector:
    """The detector of that name, also with an underscore. Raises UsageError with the names that there are."""
    found = DETECTORS.get(name.lower().replace("_", "-"))
    if found is None:
        raise UsageError(f"{name!r}: no such detector; known: {', '.join(DETECTORS)}")
    return found
