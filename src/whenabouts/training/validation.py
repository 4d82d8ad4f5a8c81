"""The validation inside a training: the corpus of the split, ranked by the weights as they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whenabouts.evaluation.evaluate import evaluate
from whenabouts.types import UsageError

if TYPE_CHECKING:
    from whenabouts.evaluation.evaluate import Evaluation
    from whenabouts.formats.runs import MemoryRun
    from whenabouts.models.trained import Trained
    from whenabouts.training.data import Examples
    from whenabouts.training.experiment import TrainingSettings


@dataclass(frozen=True)
class Validation:
    """`score` is the sum of the metrics of `measure`; `means` are those and the protocol's others."""

    score: float
    means: Mapping[str, float | None]
    measure: tuple[str, ...]
    answers: MemoryRun | None = None
    evaluation: Evaluation | None = None

    def without_answers(self) -> Validation:
        """The numbers alone."""
        return replace(self, answers=None, evaluation=None)


def validate(trained: Trained, examples: Examples, settings: TrainingSettings) -> Validation:
    """Rank the videos of a split for its queries and hold the answers against its judgements."""
    from whenabouts.ranking import rank_split

    answers = rank_split(trained, examples)
    protocol = settings.protocol or None
    evaluation = evaluate(examples.annotations, answers, protocol=protocol)
    more = [name for name in settings.metrics if name not in evaluation.metrics]
    asked = [*evaluation.metrics, *more]
    if more:
        evaluation = evaluate(examples.annotations, answers, asked, protocol=protocol)
    means = {name: None if math.isnan(value) else value for name, value in evaluation.means().items()}
    return Validation(_sum(means, settings.metrics, examples), means, settings.metrics, answers, evaluation)


def _sum(means: Mapping[str, float | None], metrics: tuple[str, ...], examples: Examples) -> float:
    total = 0.0
    for name in metrics:
        value = means[name]
        if value is None:
            raise UsageError(
                f"{examples.name}: {name} applies to none of its queries, so that no training is the best; "
                "name another with --set training.metric=…"
            )
        total += value
    return total
