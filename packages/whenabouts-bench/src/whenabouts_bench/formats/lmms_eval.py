"""Read answers of lmms-eval's tasks of temporal grounding: sentences in which a model states a time.

Two files of its tasks `temporal_grounding_charades` and `timelens_*` are read:

- the submission, an object `{"VIDEO>>>SENTENCE>>>[start, end]": "answer", ...}` (TimeLens: `[[start, end]]`);
- the samples of `--log_samples`: JSON lines that hold such an object among their metrics.

Neither has query ids, so queries are found by video and sentence (`formats/sentence_ids.py`). Every answer is
a moment of the given video. Its times are, as in TimeLens' program, the first of these that it has:

- two clock times (`01:05`);
- a range (`24.3 - 30.4`, `3 to 9.5`);
- two numbers: a single clock time `01:05` is read as 1 s and 5 s.

Reversed times are swapped, as the program of Charades-STA does. An answer without two times is an empty list,
which counts as a miss; a warning has the number of such answers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from whenabouts.intake.files import Sign, read_head, read_json
from whenabouts.types import number_of
from whenabouts_bench.formats.json_records import Origin, Text, Times, read_records
from whenabouts_bench.formats.runs import (
    BLOCK_ROWS,
    RunBlock,
    RunBlockBuilder,
    RunRow,
    Task,
    check_task,
    refuse_empty,
)
from whenabouts_bench.formats.sentence_ids import DescribedQuery, SentenceRun, video_name

NAME = "lmms-eval"
KEEPS: frozenset[str] = frozenset()
# VIDEO cannot contain ">>>", so that a file without "[" is refused in linear time.
_SUBMISSION = Sign(start=rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:[^"\\>]|\\.|>(?!>>))+>>>(?:[^"\\]|\\.)+?>>>\[')
_SAMPLES = Sign("doc_id filtered_resps")
SIGNS = {"open_run": (_SUBMISSION, _SAMPLES)}

_KEY = '"VIDEO>>>SENTENCE>>>[start, end]", seconds'
_SAMPLE = "a line of samples with a metric {VIDEO>>>SENTENCE>>>[start, end]: answer}"
_CLOCK = re.compile(r"\b(?:(\d{1,2}):)?(\d{1,2}):(\d{2}(?:\.\d+)?)\b")
_NUMBER = r"(\d+(?:\.\d+)?)"
# Linear in the answer's length: a match begins only at the first digit of a number, and a blank can match
# only one part of the pattern.
_RANGE = re.compile(rf"(?<!\d){_NUMBER}\s*(?:(?:s|secs?|seconds?)\s*)?(?:-|–|—|to)\s*{_NUMBER}")


def times_in(answer: str) -> tuple[float, float] | None:
    """The (start, end) in seconds that an answer states; None without two times.

    >>> times_in("The event happens in 24.3 - 30.4 seconds."), times_in("From 01:05 to 01:02.")
    ((24.3, 30.4), (62.0, 65.0))
    """
    text = answer.lower()
    clocks = [int(h or 0) * 3600 + int(m) * 60 + float(s) for h, m, s in _CLOCK.findall(text)]
    span = _RANGE.search(text)
    numbers = span.groups() if span else re.findall(rf"\b{_NUMBER}", text)
    stated = clocks if len(clocks) > 1 else [float(value) for value in numbers]
    if len(stated) < 2 or not all(map(math.isfinite, stated[:2])):
        return None
    first, second = stated[:2]
    return (first, second) if first <= second else (second, first)


def open_run(path: Path) -> LmmsEvalRun:
    """The answers, in the order of the file."""
    return LmmsEvalRun(path, str(path), {"SVMR": "VCMR"})  # SVMR, too, is answered by the list of VCMR


class LmmsEvalRun(SentenceRun):
    """A file of answers; each query is named by the key of its answer."""

    def described(self) -> Mapping[str, DescribedQuery]:
        return {key: query for key, query, _ in self._entries()}

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        check_task(self, task)
        builder = RunBlockBuilder()
        answered = without_times = 0
        for key, query, answer in self._entries():
            times = times_in(answer)
            rows: list[RunRow] = [(query.video_id, *times, 1.0)] if times else []
            builder.add(key, rows)
            answered, without_times = answered + 1, without_times + (not times)
            if len(builder) >= BLOCK_ROWS:
                yield builder.block()
        refuse_empty(self.path, answered > 0)
        if without_times:
            count = number_of(without_times, "answer")
            self.warn_once(f"without two times, so counted as a miss: {count} of {answered:,}")
        yield builder.block()

    def _entries(self) -> Iterator[tuple[str, DescribedQuery, str]]:
        """(key, query, answer); of repeated keys the first counts."""
        seen: set[str] = set()
        for origin, answers in self._objects():
            for key, answer in answers.items():
                if key not in seen:
                    seen.add(key)
                    yield key, _query_of_key(origin, key), origin.at(key[:80]).convert(answer, Text)

    def _objects(self) -> Iterator[tuple[Origin, Mapping[str, Any]]]:
        if not read_head(self.path).has(_SAMPLES):
            whole = Origin(self.path)
            accepted = 'an object {"VIDEO>>>SENTENCE>>>[start, end]": answer}, times in seconds'
            yield whole, whole.object(read_json(self.path), accepted)
            return
        for origin, fields in read_records(self.path):
            metrics = (value for value in fields.values() if isinstance(value, dict))
            answers = next((metric for metric in metrics if any(">>>" in key for key in metric)), None)
            if answers is None:
                raise origin.error("has no answer of temporal grounding", accepted=_SAMPLE)
            yield origin, answers


def _query_of_key(origin: Origin, key: str) -> DescribedQuery:
    video, _, described = key.partition(">>>")
    sentence, _, span = described.rpartition(">>>")
    place = origin.at(key[:80])
    if not (video and sentence):
        raise place.error("is not a key of an answer:", key, _KEY)
    try:
        value = json.loads(span)
    except (ValueError, RecursionError):
        raise place.error("has no moment:", span, _KEY) from None
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    start, end = place.convert(value, Times, _KEY)
    return DescribedQuery(video_name(video), sentence, start, end)
