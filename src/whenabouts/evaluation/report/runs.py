"""A run as the page shows it: its numbers, its diagnosis, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from whenabouts.evaluation.evaluate import Evaluation
from whenabouts.evaluation.report.diagnosis import Diagnosis
from whenabouts.evaluation.report.sentences import Summary
from whenabouts.formats.annotations import Floats
from whenabouts.formats.runs import RunSource

LETTERS: Final = ("A", "B")
"""What the page calls the runs."""


@dataclass(frozen=True)
class RunPart:
    """A run: its numbers, its diagnosis, and what they come to."""

    letter: str
    name: str
    source: RunSource
    evaluation: Evaluation
    diagnosis: Diagnosis
    quality: Floats
    """(Q,) how well each query is answered, 0 to 1: nDCG, or one over the rank of the first good moment."""
    summary: Summary
    weak: tuple[str, ...]

    @property
    def class_counts(self) -> list[int]:
        """How many queries are of each class."""
        return [int(number) for number in self.diagnosis.class_counts]
