"""A run with what the page shows of it (`RunPart`), and a run whose file is read only once (`KeptRun`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from whenabouts_bench.evaluation.evaluate import Evaluation
from whenabouts_bench.formats.annotations import Floats
from whenabouts_bench.formats.runs import RunBlock, RunSource, Task
from whenabouts_bench.report.diagnosis import Diagnosis
from whenabouts_bench.report.sentences import Summary

LETTERS: Final = ("A", "B")
"""The runs' names on the page."""


@dataclass(frozen=True)
class RunPart:
    """A run with its numbers, diagnosis and summary."""

    letter: str
    name: str
    source: RunSource
    evaluation: Evaluation
    diagnosis: Diagnosis
    quality: Floats
    """(Q,) answer quality from 0 to 1: nDCG, or the reciprocal rank of the first good moment."""
    summary: Summary
    weak: tuple[str, ...]

    @property
    def class_counts(self) -> list[int]:
        return [int(number) for number in self.diagnosis.class_counts]


MOST_ROWS: Final = 5_000_000
"""Longer lists (about 150 MB in memory) are read again each time."""


class KeptRun:
    """A run whose blocks stay in memory after the first reading, unless it is too long."""

    def __init__(self, source: RunSource, most_rows: int = MOST_ROWS) -> None:
        self.name: str = source.name
        self.tasks: tuple[Task, ...] = source.tasks
        self.answered = source.answered
        self._source = source
        self._most_rows = most_rows
        self._kept: dict[Task, tuple[RunBlock, ...]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        if task in self._kept:
            yield from self._kept[task]
            return
        read: list[RunBlock] = []
        rows = 0
        for block in self._source.blocks(task):
            rows += len(block.video)
            if rows <= self._most_rows:
                read.append(block)
            else:
                read.clear()
            yield block
        if rows <= self._most_rows:
            self._kept[task] = tuple(read)
