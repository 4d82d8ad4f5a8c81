"""Predictions of VideoSearch-R1's evaluation: JSON lines with the turns of its search and the last answer.

A line has `qid`, `query`, the true video and moment (`gt_pos_doc_id`, `gt_start`, `gt_end`), and of the last
turn `final_top1_doc_id`, `final_answer` ("matched", "not_matched", "unknown") with `final_pred_start` and
`final_pred_end` in seconds. Its ids belong to its own files, so queries are found by their sentence
(`sentence_ids`).

The file keeps one video for each query, so R@5 and more equal R@1 here. The program computes its own recall
at 5 from the rank of the true video (`final_rank`), which does not say which videos came first. A moment
counts only after "matched"; otherwise the line names a video without a moment. A resumed run may write a
query twice; the last line counts, as in the program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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
from whenabouts_bench.formats.sentence_ids import DescribedQuery, SentenceRun, video_name

NAME = "videosearch-r1"
KEEPS: frozenset[str] = frozenset()
SIGNS = {"open_run": (Sign("index qid gt_pos_doc_id final_top1_doc_id"),)}


class _Line(msgspec.Struct):
    index: int
    qid: Id
    query: Words
    gt_pos_doc_id: Words
    gt_start: Finite
    gt_end: Finite
    final_top1_doc_id: Text
    final_answer: Text
    final_pred_start: Finite | None = None
    final_pred_end: Finite | None = None


def open_run(path: Path) -> VideoSearchRun:
    """The last answer of each query."""
    return VideoSearchRun(path, str(path), RANKED_CORPUS)


class VideoSearchRun(SentenceRun):
    """A file of predictions; its name for a query is `qid@index`."""

    def described(self) -> Mapping[str, DescribedQuery]:
        return {
            name: DescribedQuery(video_name(line.gt_pos_doc_id), line.query, line.gt_start, line.gt_end)
            for name, line in self._lines().items()
        }

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        check_task(self, task)
        lines = self._lines()
        refuse_empty(self.path, bool(lines))
        self.warn_once("has one video for each query, so R@5 and more equal R@1")
        builder = RunBlockBuilder()
        for name, line in lines.items():
            builder.add(name, _rows(line))
        yield builder.block()

    def _lines(self) -> dict[str, _Line]:
        """Name of a query -> its last line. Lines differ by `index`: several may have the `qid` of one
        sentence.
        """
        lines: dict[str, _Line] = {}
        for origin, fields in read_records(self.path):
            line = origin.convert(fields, _Line)
            lines[f"{line.qid}@{line.index}"] = line
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
