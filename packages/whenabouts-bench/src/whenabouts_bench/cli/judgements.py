"""`whenabouts judgements`: what the grades of a task set came to, out to files and in from elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.cli.options import add_format, add_verb, print_either, print_notes
from whenabouts.types import UsageError, number_of

if TYPE_CHECKING:
    from whenabouts_bench.judging.journal import Journal
    from whenabouts_bench.judging.qrels import Judged

_EPILOG = """\
examples:
  whenabouts judgements judging                                    how far it is, and how well people agree
  whenabouts judgements judging --out qrels.jsonl                  the final grades, to evaluate with
  whenabouts judgements second --with qrels --out both             two rounds as one
  whenabouts judgements judging --at 2026-05-31T18:00Z --out old.jsonl     as they were then
  whenabouts judgements judging --label-studio tasks.json          judge in Label Studio (and tasks.xml)
  whenabouts judgements judging --import export.json               its answers, or the journal of a copy

--import comes first, so that what is written holds what was imported.
exit codes: 0 done, 2 wrong use or bad input"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "judgements",
        run,
        description="Say what the judgements of a task set (`whenabouts build judging`) came to; write and "
        "import them.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="the task set")
    add("--at", metavar="N|TIME", help="as it was after event N of the journal, or at a time (UTC)")
    add(
        "--out",
        metavar="PATH",
        help="write the final grades: FILE.jsonl, or a folder (with queries)",
    )
    add(
        "--with", dest="rounds", metavar="FILE", action="append", default=[],
        help="with --out: judgements of earlier rounds, written with these; may be given again",
    )  # fmt: skip
    add("--agreement", metavar="DIR", help="write figure 5 of TVR-Ranking and the raw grades (grades.csv)")
    add("--exam", metavar="FILE.jsonl", help="write what several annotators graded as an exam for others")
    add("--label-studio", metavar="FILE.json", help="write the tasks for Label Studio, and FILE.xml to paste")
    add(
        "--video-url",
        metavar="URL",
        help="where Label Studio finds a video, with {file} or {video_id} (default: folder videos of its "
        "local storage)",
    )
    add(
        "--import",
        dest="answers",
        metavar="FILE",
        help="take in answers: Label Studio's export (JSON or JSON-MIN), or the journal.jsonl of a copy",
    )
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Import, write, and say how far it is."""
    from whenabouts_bench.judging.events import State, until
    from whenabouts_bench.judging.journal import Journal
    from whenabouts_bench.judging.qrels import Judged
    from whenabouts_bench.judging.tasks import TASKS, TaskSet

    if options.answers and options.at:
        raise UsageError("--import adds to the journal as it is now; leave out --at, or run it afterwards")
    if options.video_url and not options.label_studio:
        raise UsageError("--video-url goes with --label-studio")
    if options.rounds and not options.out:
        raise UsageError("--with goes with --out: what is written has the judgements of all rounds")
    if options.out and (Path(options.out) / TASKS).exists():
        raise UsageError(
            f"--out {options.out}: is a task set, whose files would be replaced; name a folder of its own"
        )
    task_set = TaskSet.open(options.folder)
    journal = Journal.open(task_set)
    imported = _import(journal, Path(options.answers)) if options.answers else {}
    events = until(journal.events(), _place(options.at))
    judged = Judged.of(task_set, State.of(events))
    files = [str(path) for path in _write(options, judged)]
    print_notes(journal.notes)
    set_back = sum(bool(event.clock) for event in events)
    report = {"files": files, **imported, **_report(judged), "events with a clock set back": set_back}
    print_either(options, lambda: report, lambda: _lines(report))
    return 0


def _place(text: str | None) -> int | str | None:
    """A sequence number or a time, as it was given."""
    return int(text) if text is not None and text.isdecimal() else text


def _import(journal: Journal, path: Path) -> dict[str, Any]:
    from whenabouts_bench.judging.importing import import_answers

    return {"imported": asdict(import_answers(journal, path))}


def _write(options: argparse.Namespace, judged: Judged) -> Iterator[Path]:
    """Write what was asked for; the files, as they are written."""
    from whenabouts.intake.files import refuse_overwriting
    from whenabouts_bench.formats import read_annotations
    from whenabouts_bench.formats.jsonl import write_annotations
    from whenabouts_bench.judging.agreement import write_agreement
    from whenabouts_bench.judging.exam import reference_exam
    from whenabouts_bench.judging.label_studio import VIDEO_URL, write_label_studio
    from whenabouts_bench.judging.qrels import joined
    from whenabouts_bench.judging.tasks import write_exam

    if options.out:
        out = Path(options.out)
        refuse_overwriting(out, *options.rounds)
        own = judged.annotations
        if options.rounds:
            own = joined([*map(read_annotations, options.rounds), own])
        if not out.name.removesuffix(".gz").endswith(".jsonl"):
            out.mkdir(parents=True, exist_ok=True)
        write_annotations(own, out)
        yield out
    if options.agreement:
        yield from write_agreement(judged, Path(options.agreement))
    if options.exam:
        write_exam(reference_exam(judged.task_set, judged.state), Path(options.exam))
        yield Path(options.exam)
    if options.label_studio:
        path = Path(options.label_studio)
        yield path
        yield write_label_studio(judged.task_set, path, options.video_url or VIDEO_URL)


def _report(judged: Judged) -> dict[str, Any]:
    from whenabouts_bench.judging.agreement import between_annotators, exam_results, with_consensus
    from whenabouts_bench.judging.assignment import progress
    from whenabouts_bench.relevance.imprecise.statistics import table

    task_set, state = judged.task_set, judged.state
    own = {name: asdict(progress(task_set, state, name)) for name in state.annotators()}
    return {
        "event": state.seq,
        "time": state.time,
        **judged.counts(),
        "set": table(judged.annotations) if len(judged.annotations.query) else None,
        "annotators": own,
        "agreement": [asdict(each) for each in (*between_annotators(judged), *with_consensus(judged))],
        "exam": list(exam_results(task_set, state)),
    }


def _lines(report: dict[str, Any]) -> Iterator[str]:
    """The report for people."""
    from whenabouts_bench.judging.agreement import Agreement
    from whenabouts_bench.relevance.imprecise.statistics import line_of

    yield from (f"written: {file}" for file in report["files"])
    if "imported" in report:
        yield "imported: {new:,} new answers, {changed:,} changed, {same:,} were here already".format(
            **report["imported"]
        )
    if not report["event"]:
        yield f"nobody has judged yet; {number_of(report['presented'], 'task')}"
        return
    yield f"event {report['event']:,}, {report['time']}"
    yield (
        f"{report['settled']:,} of {number_of(report['presented'], 'task')} are settled: "
        f"{report['agreed']:,} agreed on ({report['agreed with more than two annotators']:,} by four "
        f"annotators), {report['discarded']:,} discarded"
    )
    if report["events with a clock set back"]:
        count = report["events with a clock set back"]
        yield f"{number_of(count, 'event was', 'events were')} written with a clock set back"
    for missing, count in report["needs more annotators"].items():
        yield f"  {number_of(count, 'task needs', 'tasks need')} {number_of(missing, 'more annotator')}"
    if report["final grades"]:
        yield "final grades: " + ", ".join(f"{g}: {n:,}" for g, n in report["final grades"].items())
    if (numbers := report["set"]) is not None:
        batches = (numbers[f"queries judged in {count}"] for count in ("one batch", "two batches"))
        yield line_of("judged", numbers) + "; queries judged in one and in two batches: {:,}, {:,}".format(
            *batches
        )
    for name, own in report["annotators"].items():
        exam = f", exam {own['exam_right']} of {own['exam_tasks']}" if own["exam_tasks"] else ""
        yield f"{name}: {own['judged']:,} judged, {own['left']:,} left{exam}"
    for each in report["agreement"]:
        yield Agreement(**each).line()
    for each in report["exam"]:
        yield "exam: " + Agreement(**each["agreement"]).line()
