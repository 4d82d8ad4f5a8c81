"""How the weights rank the validation split."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whenabouts_bench.evaluation.evaluate import Evaluation
    from whenabouts_bench.formats.runs import MemoryRun


@dataclass(frozen=True)
class Validation:
    """How the weights rank the validation split.

    `score` is the sum of the metrics of `measure`; `means` are those and the protocol's others.
    """

    score: float
    means: Mapping[str, float | None]
    measure: tuple[str, ...]
    answers: MemoryRun | None = None
    evaluation: Evaluation | None = None

    def without_answers(self) -> Validation:
        """The numbers alone."""
        return dataclasses.replace(self, answers=None, evaluation=None)
