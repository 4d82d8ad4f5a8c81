"""Judgements of a task set: final grades with their moments, and the annotators' raw grades."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from whenabouts.export.csv import defused
from whenabouts.intake.files import write_atomically
from whenabouts.types import Moment, UsageError
from whenabouts_bench.formats.annotations import (
    AnnotationBuilder,
    Annotations,
    caption_fields,
    judgement_rows,
)
from whenabouts_bench.formats.json_writing import write_lines
from whenabouts_bench.judging.assignment import Openings, outcome
from whenabouts_bench.judging.consensus import Consensus
from whenabouts_bench.judging.events import State
from whenabouts_bench.judging.tasks import HIGHEST, Source, Task, TaskSet
from whenabouts_bench.relevance.imprecise.statistics import agreement


@dataclass(frozen=True, slots=True)
class Uncounted:
    """A grade that does not count towards the outcome of its task, and why."""

    annotator: str
    task_id: str
    grade: int
    why: str

    def line(self) -> str:
        """One line of text."""
        return f"does not count: {self.annotator} gave {self.task_id} a {self.grade}; {self.why}"


@dataclass(frozen=True)
class Judged:
    """The outcomes of the presented tasks of a set."""

    task_set: TaskSet
    state: State
    outcomes: Sequence[tuple[Task, Consensus]]

    @classmethod
    def of(cls, task_set: TaskSet, state: State) -> Judged:
        openings = Openings(task_set, state)
        opened = (task for task in task_set.tasks if openings.is_open(task))
        return cls(task_set, state, [(task, outcome(task_set, state, task.id)) for task in opened])

    @cached_property
    def annotations(self) -> Annotations:
        """The settled judgements, including grade 0; discarded and unsettled tasks are left out.

        Queries and videos of all presented tasks are included, so that a query without consensus appears
        with no judgements. `most_grade` is the highest grade of the scale.
        """
        builder = AnnotationBuilder(self.task_set.name)
        builder.most_grade = float(HIGHEST)
        for task, _ in self.outcomes:
            builder.add_video(task.moment.video_id, task.duration)
            builder.add_query(task.query_id, task.text)
        sources = self.task_set.sources()
        for task, final in self.outcomes:
            if final.grade is not None:
                moment, source = self.moment(task, final), sources.get(task.id, Source())
                about: dict[str, Any] = {"similarity": source.similarity, "caption": source.caption}
                builder.judge(task.query_id, moment.video_id, moment.start, moment.end, final.grade, **about)
        return builder.annotations()

    def write_sources(self, path: Path) -> None:
        """Write the rank of each settled moment in each run, for tasks whose source is known."""
        sources = self.task_set.sources()
        lines = (
            {"query_id": t.query_id, **asdict(self.moment(t, final)), "ranks": sources[t.id].ranks}
            for t, final in self.outcomes
            if final.grade is not None and t.id in sources
        )
        write_lines(path, lines)

    def moment(self, task: Task, final: Consensus) -> Moment:
        """The moment of a settled task: mean borders of the annotators whose grades were averaged.

        If none of these annotators moved the borders, the original ones stay, as in paper 004. An annotator
        who moved none counts with the original borders.
        """
        answers = [answer for _, answer in self.state.graded(task.id)]
        used, original = [answers[place] for place in final.used], (task.moment.start, task.moment.end)
        spans = [original if a.start is None or a.end is None else (a.start, a.end) for a in used]
        if all(span == original for span in spans):  # imported answers have the original borders
            return task.moment
        start, end = (sum(times) / len(spans) for times in zip(*spans, strict=True))
        return Moment(task.moment.video_id, round(start, 3), round(end, 3))

    def uncounted(self) -> list[Uncounted]:
        """The grades of tasks that are not presented, and those given after a task was settled."""
        outcomes = {task.id: final for task, final in self.outcomes}
        uncounted = []
        for task in self.task_set.tasks:
            final = outcomes.get(task.id)
            if final is None:
                why = f"batch {task.batch} of query {task.query_id} is not open"
                late = self.state.graded(task.id)
            else:
                why = "the task was settled without it"
                late = [] if final.missing else self.state.graded(task.id)[final.annotators :]
            uncounted += [Uncounted(name, task.id, a.grade, why) for name, a in late if a.grade is not None]
        return uncounted

    def counts(self) -> dict[str, Any]:
        """Progress counts, and agreement of annotators (paper 004, section 3.4)."""
        raw = [self.state.grades(task.id)[: final.annotators] for task, final in self.outcomes]
        missing = Counter(final.missing for _, final in self.outcomes if final.missing)
        return {
            "tasks": len(self.task_set.tasks),
            "presented": len(self.outcomes),
            "grades": sum(1 for _ in self.state.rows()),
            "needs more annotators": dict(sorted(missing.items())),
            **agreement(raw, [final.grade for _, final in self.outcomes]),
        }


def joined(rounds: Sequence[Annotations]) -> Annotations:
    """The merged judgements of several rounds; a moment keeps the caption and similarity it had first.

    Judgements without times are dropped. Raises UsageError if a query has two texts, or a moment two grades.
    """
    builder = AnnotationBuilder("+".join(each.name for each in rounds))
    builder.most_grade = max(
        (each.most_grade for each in rounds if each.most_grade is not None), default=None
    )
    grades: dict[tuple[str, Moment], float] = {}
    about: dict[tuple[str, Moment], dict[str, Any]] = {}
    for each in rounds:
        for video in each.videos:
            builder.add_video(video.id, video.duration, **video.metadata)
        for query in each.queries:
            if not builder.add_query(query.id, query.text, **query.metadata):
                raise UsageError(
                    f"{each.name}: query {query.id!r} has another text than in the rounds before"
                )
        for row, fields in zip(judgement_rows(each), caption_fields(each), strict=True):
            number, place, start, end, grade = row
            if start < end:  # a judgement without times is of a whole video
                query_id, moment = each.queries[number].id, Moment(each.videos[place].id, start, end)
                about.setdefault((query_id, moment), fields)
                earlier = grades.setdefault((query_id, moment), grade)
                if earlier != grade:
                    where = f"{moment.video_id} {moment.start:g}-{moment.end:g} s"
                    raise UsageError(
                        f"{each.name}: query {query_id!r}, {where} "
                        f"has grade {grade:g}, and {earlier:g} in the rounds before; keep one of them"
                    )
    for (query_id, moment), grade in grades.items():
        fields = about[query_id, moment]
        builder.judge(query_id, moment.video_id, moment.start, moment.end, grade, **fields)
    return builder.annotations()


def write_grades(state: State, path: Path) -> None:
    """Write raw grades in TVR-Ranking's format: CSV of pair_id, worker, relevance.

    Ids and names are escaped, so that spreadsheets do not run them as formulas.
    """
    rows = ((defused(task_id), defused(name), answer.grade) for task_id, name, answer in state.rows())
    write_table(path, ("pair_id", "worker", "relevance"), rows)


def write_table(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows((head, *rows))
    with write_atomically(path) as stream:
        stream.write(text.getvalue().encode())
