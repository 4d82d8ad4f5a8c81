"""Have annotators check MVMR pools (`relevance/people.py`), as a task set of `whenabouts judge`.

Each task shows a query and a whole video that was added to the query's pool. Positives and negatives look
the same. Annotators grade whether the video contains the moment, and set the moment's borders.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from whenabouts.types import Moment, UsageError, Video
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.tasks import Task, TaskSet
from whenabouts_bench.relevance.people import Answer, drawn_pairs

IS_IN = 3
"""The lowest grade that means that the video contains the moment."""
GUIDELINE = """\
# Is there a moment in this video that the sentence describes?

You see a sentence and a whole video. If the moment is there, set its borders with [ and ] first.

| grade | when |
| --- | --- |
| 4 | It is there. |
| 3 | It is there, with a detail that differs. |
| 2 | Something like it is there, but not what the sentence says. |
| 1 | Only persons or things of the sentence are there. |
| 0 | Nothing of it is there. |
"""


def write_check(
    annotations: Annotations, folder: Path, videos: Mapping[str, Video], *, queries: int = 100, seed: int = 0
) -> TaskSet:
    """Write a task set about the videos that were added to the pools of `queries` randomly drawn queries.

    `videos` gives the recording and the duration of each video of the pools. Raises UsageError if there are
    no pools or a video has no duration.
    """
    pairs = drawn_pairs(annotations, queries, seed)
    digits = len(str(len(pairs)))
    tasks = []
    for number, (query, video_id) in enumerate(pairs, 1):
        duration = videos[video_id].duration
        if not duration:
            raise UsageError(f"video {video_id!r}: its duration is unknown; give --videos or --corpus")
        span = Moment(video_id, 0.0, duration)
        tasks.append(Task(f"t{number:0{digits}}", query.id, query.text, span, duration))
    paths = {video_id: videos[video_id].path for _, video_id in pairs}
    made = TaskSet(folder, folder.resolve().name, tuple(tasks), paths, made={"pools": annotations.name})
    made.write(guideline=GUIDELINE)
    return made


def answers_of(folder: Path) -> list[Answer]:
    """The annotators' answers to a task set of `write_check`, with the borders that they set."""
    task_set, answers = TaskSet.open(folder), []
    for task_id, _, answer in Journal.open(task_set).state().rows():
        task = task_set.task(task_id)
        moved = answer.start is not None and (answer.start, answer.end) != (0.0, task.moment.end)
        span = (answer.start, answer.end) if moved else (None, None)
        assert answer.grade is not None
        answers.append(Answer(task.query_id, task.moment.video_id, answer.grade >= IS_IN, *span))
    return answers
