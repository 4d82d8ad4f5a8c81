"""Judging in Label Studio, as paper 004 did (B.2): export tasks and labelling interface, import answers.

A task carries the query, the video's address, the moment's times, and the task set's fingerprint, so that
answers to other sets are refused; nothing shows where a moment came from. The moment is a draggable region of
the timeline, which counts frames: `RATE` per second for every video.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from whenabouts.intake.files import write_atomically
from whenabouts.types import UsageError
from whenabouts_bench.formats.json_records import Origin
from whenabouts_bench.formats.json_writing import ListWriter
from whenabouts_bench.formats.label_studio_export import only, read_export
from whenabouts_bench.judging.events import Event
from whenabouts_bench.judging.journal import LONGEST_NAME, is_name
from whenabouts_bench.judging.tasks import HIGHEST, LOWEST, Task, TaskSet

VIDEO_URL = "/data/local-files/?d=videos/{file}"
"""The address of a recording in Label Studio's local storage, whose root has a folder `videos`."""
RATE = 25
_GRADES = "\n".join(f'    <Choice value="{grade}" hotkey="{grade}"/>' for grade in range(LOWEST, HIGHEST + 1))
LABELLING = f"""\
<View>
  <Header value="How well does the moment answer the query?"/>
  <Text name="query" value="$query" valueType="text"/>
  <Text name="span" value="$span" valueType="text"/>
  <Video name="video" value="$video" frameRate="{RATE}"/>
  <TimelineLabels name="borders" toName="video">
    <Label value="moment"/>
  </TimelineLabels>
  <Choices name="grade" toName="video" choice="single" showInline="true" required="true">
{_GRADES}
  </Choices>
</View>
"""
"""The labelling interface for the project's settings; `read_answers` relies on its names."""


def write_label_studio(
    task_set: TaskSet, path: Path, url: str = VIDEO_URL, tasks: Sequence[Task] | None = None
) -> Path:
    """Write tasks (default: all) as JSON, and beside it the labelling interface (`.xml`); return its path.

    `url` contains {file}, the recording's name, or {video_id}, both percent-encoded. Exam tasks are left out,
    because Label Studio gives no feedback. Raises UsageError if there is no task.
    """
    tasks = task_set.tasks if tasks is None else tasks
    if not tasks:
        raise UsageError(f"{task_set.folder}: no task needs another grade, so there is nothing to write")
    if "{video_id}" not in url and "{file}" not in url:
        raise UsageError(f"--video-url {url!r}: has neither {{file}} nor {{video_id}}")
    interface = interface_beside(path)
    with write_atomically(path) as stream:
        stream.write(b"[")
        entries = ListWriter(stream)
        for task in tasks:
            entries.add(_task(task_set, task, url))
        stream.write(b"]\n")
    with write_atomically(interface) as stream:
        stream.write(LABELLING.encode())
    return interface


def interface_beside(path: Path) -> Path:
    """The place of the labelling interface of a file of tasks. Raises UsageError if it is the file itself."""
    if not path.name or path.suffix == ".xml":
        raise UsageError(f"{path}: the labelling interface is written there; give a name that ends in .json")
    return path.with_suffix(".xml")


def _task(task_set: TaskSet, task: Task, url: str) -> dict[str, Any]:
    start, end = _frames(task)
    video_id = task.moment.video_id
    names = {"{video_id}": video_id, "{file}": Path(task_set.videos[video_id]).name or video_id}
    for place, name in names.items():
        url = url.replace(place, quote(name, safe=""))
    region = {
        "id": task.id, "from_name": "borders", "to_name": "video", "type": "timelinelabels",
        "value": {"ranges": [{"start": start, "end": end}], "timelinelabels": ["moment"]},
    }  # fmt: skip
    return {
        "data": {
            "video": url,
            "query": task.text,
            "span": f"{task.moment.start:.1f} to {task.moment.end:.1f} s",
            "task_id": task.id,
            "task_set": task_set.fingerprint,
        },
        "predictions": [{"model_version": "borders", "result": [region]}],
    }


def _frames(task: Task) -> tuple[int, int]:
    """First and last frame of a task's moment, 1-based."""
    first = math.floor(task.moment.start * RATE + 0.5) + 1
    return first, max(first, math.floor(task.moment.end * RATE + 0.5))


def read_answers(path: Path, task_set: TaskSet) -> list[Event]:
    """The answers of an export as events, in its order; cancelled and empty ones are skipped.

    Annotators are named by their Label Studio id, or else by their address. Raises FormatError, with the
    task, if the file is not an export of this task set, for grades off the scale, and if an annotator
    contradicts themselves.
    """
    answers: dict[tuple[str, str], Event] = {}
    for place, data, entered in read_export(path):
        task = _own_task(place, data, task_set)
        for entry in entered:
            annotator = _annotator(entry.origin, entry.person)
            answer = _answer(place, task, annotator, entry.values)
            if answer is None:
                continue
            earlier = answers.setdefault((annotator, task.id), answer)
            if earlier != answer:
                accepted = "one answer of each annotator to a task; delete one of them in Label Studio"
                problem = f"annotator {annotator} contradicts an earlier answer of {earlier.grade}:"
                raise place.error(problem, answer.grade, accepted)
    return list(answers.values())


def _own_task(place: Origin, data: Mapping[str, Any], task_set: TaskSet) -> Task:
    """The task of an entry. Raises FormatError if it belongs to another set."""
    if "task_id" not in data or "task_set" not in data:
        accepted = "the tasks that `whenabouts judgements --label-studio` wrote"
        raise place.error("has no task_id and task_set", accepted=accepted)
    if data["task_set"] != task_set.fingerprint:
        accepted = f"{task_set.fingerprint}, that of {task_set.folder}"
        raise place.at("task_set").error("is another task set:", data["task_set"], accepted)
    try:
        return task_set.task(str(data["task_id"]))
    except UsageError as error:
        raise place.at("task_id").error(str(error)) from None


def _annotator(origin: Origin, value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("id", value.get("email"))
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).strip():
        raise origin.error("names no annotator:", value, "a number or an address")
    name = str(value).strip()
    if not is_name(name):
        raise origin.error(
            "is not a name of an annotator:", name, f"at most {LONGEST_NAME} printable characters"
        )
    return name


def _answer(place: Origin, task: Task, annotator: str, values: Mapping[str, Any]) -> Event | None:
    grade = only(values.get("grade"))
    if grade is None or grade == []:
        return None
    text = str(grade)
    if isinstance(grade, bool) or text not in map(str, range(LOWEST, HIGHEST + 1)):
        accepted = f"a grade from {LOWEST} to {HIGHEST}"
        raise place.error(f"annotator {annotator} gives the grade", grade, accepted)
    borders = _borders(place, task, only(values.get("borders")))
    start, end = borders or (None, None)
    return Event("grade", annotator, task.id, grade=int(text), start=start, end=end)


def _borders(place: Origin, task: Task, value: Any) -> tuple[float, float] | None:
    """(start, end) in seconds of a region of the timeline; None if it was not moved."""
    if value is None:
        return None
    ranges = only(value.get("ranges")) if isinstance(value, dict) else None
    frames = [ranges.get(key) if isinstance(ranges, dict) else None for key in ("start", "end")]
    if not all(isinstance(frame, int | float) and not isinstance(frame, bool) for frame in frames):
        raise place.error(
            "has borders that are not a range of frames:", value, "one range with start and end"
        )
    first, last = (float(frame or 0) for frame in frames)
    if (first, last) == _frames(task):
        return None
    start, end = (first - 1) / RATE, last / RATE
    end = min(end, task.duration or end)
    if not 0 <= start < end:
        raise place.error("has borders outside its video:", [first, last], "frames of the video, start first")
    return start, end
