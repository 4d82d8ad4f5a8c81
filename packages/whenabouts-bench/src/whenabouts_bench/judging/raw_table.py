"""Compute final grades from a released table of annotators' grades: TVR-Ranking's `raw_annotation.csv`.

Each row is a pair of query and moment, an annotator and a grade. The rows of a pair are sorted by annotator,
so their order does not say who graded first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench.evaluation.ranked_figures import read_raw_table
from whenabouts_bench.judging.consensus import Consensus, consensus_of_set
from whenabouts_bench.judging.qrels import write_table
from whenabouts_bench.relevance.imprecise.statistics import agreement


@dataclass(frozen=True)
class RawTable:
    """The grades of each pair, their outcomes, and the number of annotators."""

    grades: Mapping[str, list[int]]
    outcomes: Mapping[str, Consensus]
    annotators: int

    @classmethod
    def read(cls, path: Path) -> RawTable:
        """The table of a file. Raises FormatError for a pair with more than four grades."""
        grades, workers = read_raw_table(path)
        outcomes = {}
        for pair, given in grades.items():
            try:
                outcomes[pair] = consensus_of_set(given)
            except UsageError as error:
                raise FormatError(path, f"pair {pair}: {error}") from None
        return cls(grades, outcomes, len(workers))

    def report(self) -> dict[str, Any]:
        """Counts, and how the pairs were settled (paper 004, section 3.4)."""
        settled = [pair for pair, final in self.outcomes.items() if not final.missing]
        return {
            "pairs": len(self.grades),
            "grades": sum(map(len, self.grades.values())),
            "annotators": self.annotators,
            "needs more annotators": len(self.grades) - len(settled),
            **agreement(
                [self.grades[pair] for pair in settled], [self.outcomes[pair].grade for pair in settled]
            ),
        }

    def write(self, path: Path) -> None:
        """Write the final grades as CSV of pair_id, relevance."""
        rows = [(pair, final.grade) for pair, final in self.outcomes.items() if final.grade is not None]
        write_table(path, ("pair_id", "relevance"), rows)
