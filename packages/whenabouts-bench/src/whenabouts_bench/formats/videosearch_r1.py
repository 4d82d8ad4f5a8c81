"""Predictions of VideoSearch-R1's evaluation: JSON lines with the turns of its search and the last answer.

A line has `qid`, `query`, the true video and moment (`gt_pos_doc_id`, `gt_start`, `gt_end`), and of the last
turn `final_top1_doc_id`, `final_answer` ("matched", "not_matched", "unknown") with `final_pred_start` and
`final_pred_end` in seconds. Its ids belong to its own files, so queries are found by their sentence
(`sentence_ids`).

The program keeps one video a query, so R@5 and more equal R@1 here; its own video recall beyond 1 comes from
the true video's rank (`final_rank`), which no list can be made from. A moment counts only after "matched";
else the line names a video without a moment. When a line of a query comes again, after a resumed run, the
last one counts, as in its program.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from whenabouts.intake.files import Sign
from whenabouts_bench.formats.json_records import Finite, Id, Text, Words, read_records
from whenabouts_bench.formats.runs import (
    RANKED_CORPUS,
    RunBlock,
    RunBlockBuilder,
    RunRow,
    Task,
    check_task,
    refuse_empty,
)
from whenabouts_bench.formats.sentence_ids import DescribedQuery, video_name

NAME = "videosearch-r1"
SUMMARY = "VideoSearch-R1's predictions, one video a query; queries are found by sentence"
KEEPS: frozenset[str] = frozenset()
SIGNS = {"open_run": (Sign("qid gt_pos_doc_id final_top1_doc_id"),)}

_log = logging.getLogger("whenabouts")


class _Line(msgspec.Struct):
    qid: Id
    query: Words
    gt_pos_doc_id: Words
    gt_start: Finite
    gt_end: Finite
    final_top1_doc_id: Text
    final_answer: Text
    final_pred_start: Finite | None = None
    final_pred_end: Finite | None = None
    index: int | None = None


def open_run(path: Path) -> VideoSearchRun:
    """The last answer of each query."""
    return VideoSearchRun(path, str(path))


@dataclass
class VideoSearchRun:
    """A file of predictions."""

    path: Path
    name: str
    tasks: tuple[Task, ...] = ("VCMR",)
    answered: Mapping[Task, Task] = field(default_factory=lambda: RANKED_CORPUS)
    _is_logged: bool = field(default=False, init=False)

    def described(self) -> Mapping[str, DescribedQuery]:
        """Query id in the file -> video, sentence and true moment."""
        return {
            own: DescribedQuery(video_name(line.gt_pos_doc_id), line.query, line.gt_start, line.gt_end)
            for own, line in self._lines().items()
        }

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """One row a query, with the score 1; without a moment unless the model says that it matched."""
        check_task(self, task)
        lines = self._lines()
        refuse_empty(self.path, bool(lines))
        if not self._is_logged:
            _log.warning("%s: has one video a query: R@5 and more equal R@1", self.path)
        self._is_logged = True
        builder = RunBlockBuilder()
        for own, line in lines.items():
            builder.add(own, _rows(line))
        yield builder.block()

    def _lines(self) -> dict[str, _Line]:
        """Query id -> its last line, in the order of first lines.

        Lines are told apart by `index`, as in the program: several may have the `qid` of one sentence.
        """
        lines: dict[str, _Line] = {}
        for origin, fields in read_records(self.path):
            line = origin.convert(fields, _Line)
            lines[f"{line.qid}" if line.index is None else f"{line.qid}@{line.index}"] = line
        return lines


def _rows(line: _Line) -> list[RunRow]:
    if not line.final_top1_doc_id:
        return []
    start, end = line.final_pred_start, line.final_pred_end
    if line.final_answer != "matched" or start is None or end is None:
        return [(video_name(line.final_top1_doc_id), math.nan, math.nan, 1.0)]
    # A model may state times before the start of the video, or the end first.
    first, last = sorted((max(0.0, start), max(0.0, end)))
    return [(video_name(line.final_top1_doc_id), first, last, 1.0)]
