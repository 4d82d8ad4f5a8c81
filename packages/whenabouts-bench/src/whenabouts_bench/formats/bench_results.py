"""Read the answers in a results file of `whenabouts bench` as a run.

`{"whenabouts_bench": 1, …, "answers": {"VCMR": {query id: [[video id, start, end, score], …]}}}`, where start
and end are seconds, null in a list of videos. `clip_scores`: {query id: [score of each 2 s clip, …]}.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import numpy as np
from msgspec import Meta

from whenabouts.intake.files import Sign, read_json
from whenabouts_bench.formats.annotations import Floats
from whenabouts_bench.formats.json_records import Finite, Origin, Words
from whenabouts_bench.formats.runs import (
    RunBlock,
    RunBlockBuilder,
    Task,
    best_first,
    check_task,
    own_lists,
    refuse_empty,
)

NAME = "bench-results"
SIGNS = {"open_run": (Sign("whenabouts_bench task system"),)}
KEEPS: frozenset[str] = frozenset({"lists", "saliency"})

_Row = Annotated[
    tuple[Words, Finite | None, Finite | None, Finite], Meta(title="[video id, start, end, score]")
]
_LISTS = "an object, VCMR, SVMR or VR -> {query id: rows}"


def open_run(path: Path) -> BenchRun:
    """The answers in a results file, read into memory. Raises FormatError if it has none or invalid ones."""
    whole = Origin(path)
    fields = whole.object(read_json(path))
    at = whole.at("answers")
    lists: dict[Task, RunBlock] = {}
    for task, answers in at.object(fields.get("answers"), _LISTS).items():
        if task not in get_args(Task):
            raise at.error("is not a list of a run:", task, _LISTS)
        lists[cast(Task, task)] = _block(at.at(task), answers)
    refuse_empty(path, any(len(block) for block in lists.values()))
    at = whole.at("clip_scores")
    scores = {
        query_id: np.array(at.at(query_id).convert(values, list[Finite]), np.float64)
        for query_id, values in at.object(fields.get("clip_scores", {})).items()
    }
    return BenchRun(str(path), lists, scores)


def _block(at: Origin, answers: Any) -> RunBlock:
    builder = RunBlockBuilder()
    for query_id, entries in at.object(answers, "an object, query id -> rows").items():
        rows = at.at(query_id).convert(entries, list[_Row])
        for number, (_, start, end, _) in enumerate(rows):
            if (start is None) != (end is None):
                raise at.at(query_id, number).error("has only one of start and end:", [start, end])
            if start is not None and end is not None:
                at.at(query_id, number).check_span(start, end, empty=True)
        builder.add(
            query_id, [(video, _or_nan(start), _or_nan(end), score) for video, start, end, score in rows]
        )
    return best_first(builder.block())


@dataclass(frozen=True)
class BenchRun:
    """The lists of a system's answers in memory, and its scores of clips (a `RunSource`)."""

    name: str
    lists: Mapping[Task, RunBlock]
    clip_scores: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(self.lists)

    @property
    def answered(self) -> Mapping[Task, Task]:
        """Task -> the list that answers it: its own; without a list of videos, VCMR also answers VR."""
        lists: dict[Task, Task] = dict(own_lists(self.tasks))
        if "VCMR" in lists:
            lists.setdefault("VR", "VCMR")
        return lists

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """One task's list, as one block. Raises UsageError, on iteration, if the run has no such list."""
        check_task(self, task)
        yield self.lists[task]

    def saliency(self) -> Mapping[str, Floats]:
        """Query id -> (T,) scores of the T clips of 2 s of its video; empty if the file has none."""
        return self.clip_scores


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)
