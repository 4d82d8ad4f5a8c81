"""`whenabouts judgements`: report, write and import the grades of a task set."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whenabouts.cli.options import add_format, add_seed, add_verb
from whenabouts.cli.terminal import print_either, print_notes
from whenabouts.intake.files import refuse_overwriting
from whenabouts.intake.own_files import own_file
from whenabouts.times import whole_number
from whenabouts.types import UsageError, number_of
from whenabouts_bench.cli.options import make_folder
from whenabouts_bench.evaluation.comparison import names_of
from whenabouts_bench.formats import open_run, read_annotations
from whenabouts_bench.formats.jsonl import FILES, files_of, write_annotations
from whenabouts_bench.judging.agreement import (
    Agreement,
    between_annotators,
    exam_results,
    with_consensus,
    write_agreement,
)
from whenabouts_bench.judging.assignment import progress
from whenabouts_bench.judging.bias import Bias, biases
from whenabouts_bench.judging.events import State, until
from whenabouts_bench.judging.exam import DEPTH, QUERIES, reference_exam
from whenabouts_bench.judging.importing import import_answers
from whenabouts_bench.judging.journal import JOURNAL, Journal
from whenabouts_bench.judging.label_studio import VIDEO_URL, write_label_studio
from whenabouts_bench.judging.model_judge import GRADES_FILE
from whenabouts_bench.judging.model_study import judged_by, model_studies, orders_of
from whenabouts_bench.judging.pool_study import pool_study
from whenabouts_bench.judging.publish import NUMBERS, publish
from whenabouts_bench.judging.qrels import Judged, Uncounted, joined
from whenabouts_bench.judging.raw_table import RawTable
from whenabouts_bench.judging.tasks import EXAM, SETTINGS, SOURCES, TASKS, VIDEOS, TaskSet, write_exam
from whenabouts_bench.relevance.imprecise.statistics import line_of, table

_METRIC = "R@1,IoU=0.5,grade>=3"
_FILES_OF_SET = (SETTINGS, TASKS, VIDEOS, EXAM, SOURCES, JOURNAL, GRADES_FILE, NUMBERS)
_EPILOG = """\
examples:
  whenabouts judgements judging                                    how far it is, and how well people agree
  whenabouts judgements judging --out qrels.jsonl                  the final grades, to evaluate with
  whenabouts judgements second --with qrels --out both             two rounds as one
  whenabouts judgements judging --run a.jsonl --run b.jsonl --pool     what each run gave to the pool
  whenabouts judgements judging --publish mine --licence CC-BY-4.0     a data set for others
  whenabouts judgements judging --at 2026-05-31T18:00Z --out old.jsonl     as they were then
  whenabouts judgements judging --label-studio tasks.json          judge in Label Studio (and tasks.xml);
                                                                   after --import again, for second batches
  whenabouts judgements judging --import export.json               its answers, or the journal of a copy

--import comes first: files written by the same command hold the imported answers.
exit codes: 0 done, 2 wrong use or bad input"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "judgements",
        run,
        description="Show the results of the judgements of a task set (`whenabouts build judging`); write "
        "and import judgements.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("folder", metavar="FOLDER", nargs="?", help="the task set")
    add("--raw", metavar="FILE.csv", help="or: a released table of grades (pair_id, worker, relevance)")
    add("--at", metavar="N|TIME", help="as it was after event N of the journal, or at a time (UTC)")
    add("--out", metavar="PATH", help="write the final grades: FILE.jsonl, or a folder (with queries)")
    add(
        "--with", dest="rounds", metavar="FILE", action="append", default=[],
        help="with --out: judgements of earlier rounds, written with these; may be given again",
    )  # fmt: skip
    add("--truth-of", metavar="MODEL", help="with --out: the grades of a model (`judge --model`)")
    add(
        "--run", dest="runs", metavar="FILE", action="append", default=[],
        help="how models that judged order these runs, beside people (Kendall's tau); give two or more",
    )  # fmt: skip
    add("--pool", action="store_true", help="with --run: what each run gave to the pool, and what it lacks")
    add("--metric", metavar="NAME", default=_METRIC, help=f"by which runs are ordered (default: {_METRIC})")
    add(
        "--publish", metavar="DIR",
        help="write a data set for others: Parquet, JSON lines, a card, Croissant, a page; annotators' names "
        "and folders are left out, ids of videos and names of runs come from file names",
    )  # fmt: skip
    add("--licence", metavar="SPDX", help="with --publish: its licence, such as CC-BY-4.0")
    add("--agreement", metavar="DIR", help="write figure 5 of TVR-Ranking and the raw grades (grades.csv)")
    add("--exam", metavar="FILE.jsonl", help="write tasks that annotators agree on as an exam for others")
    add("--queries", type=int, metavar="N", help=f"with --exam: queries to draw (default: {QUERIES})")
    add("--depth", type=int, metavar="N", help=f"with --exam: best moments of each (default: {DEPTH})")
    add(
        "--label-studio",
        metavar="FILE.json",
        help="write the tasks that need grades now for Label Studio, and FILE.xml to paste",
    )
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
    add_seed(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Import answers, write the files asked for, and print progress and agreement."""
    if options.raw or not options.folder:
        return _run_raw(options)
    if options.answers and options.at:
        raise UsageError("--import adds to the journal as it is now; leave out --at, or run it afterwards")
    if options.video_url and not options.label_studio:
        raise UsageError("--video-url goes with --label-studio")
    if not options.exam and (options.queries, options.depth) != (None, None):
        raise UsageError("--queries and --depth go with --exam")
    if bool(options.publish) != bool(options.licence):
        raise UsageError("--publish DIR goes with --licence: give an SPDX identifier such as CC-BY-4.0")
    if options.pool and not options.runs:
        raise UsageError("--pool goes with --run: give the runs that the set was made of")
    if options.truth_of and not options.out:
        raise UsageError("--truth-of goes with --out")
    if options.rounds and not options.out:
        raise UsageError("--with goes with --out: what is written has the judgements of all rounds")
    if options.out and (Path(options.out) / TASKS).exists():
        raise UsageError(
            f"--out {options.out}: is a task set, whose files would be replaced; name a folder of its own"
        )
    task_set = TaskSet.open(options.folder)
    for target in filter(None, (options.out, options.exam, options.label_studio)):
        refuse_overwriting(Path(target), *(task_set.folder / name for name in _FILES_OF_SET))
    journal = Journal.open(task_set)
    imported = {}
    if options.answers:
        imported = {"imported": asdict(import_answers(journal, Path(options.answers)))}
    events = until(journal.events(), _place(options.at))
    judged = Judged.of(task_set, State.of(events))
    files = [str(path) for path in _write(options, judged)]
    print_notes(journal.notes)
    set_back = sum(bool(event.clock) for event in events)
    opened = [open_run(path, annotations=judged.annotations) for path in options.runs]
    runs = dict(zip(names_of(options.runs), opened, strict=True))
    orders = orders_of(judged, runs, options.metric) if runs else []
    pool = pool_study(judged, runs, options.metric) if options.pool else None
    report = {"files": files, **imported, **_report(judged), "events with a clock set back": set_back}
    studies = model_studies(judged)
    report["models"] = [study.to_json() for study in studies]
    report["orders"] = [asdict(order) for order in orders]
    report["pool"] = pool.to_json() if pool else None
    of_models = [*(line for study in studies for line in study.lines()), *(order.line() for order in orders)]
    of_pool = pool.lines() if pool else ()
    print_either(options, lambda: report, lambda: [*_lines(report), *of_models, *of_pool])
    return 0


def _run_raw(options: argparse.Namespace) -> int:
    """Print the final grades of a released table (--raw); --out writes them as CSV."""
    if options.raw is None or options.folder:
        raise UsageError("give a task set (FOLDER) or --raw FILE.csv, one of them")
    given = {"--at": options.at, "--with": options.rounds, "--agreement": options.agreement}
    given |= {"--exam": options.exam, "--label-studio": options.label_studio, "--import": options.answers}
    given |= {"--truth-of": options.truth_of, "--run": options.runs, "--video-url": options.video_url}
    given |= {"--pool": options.pool, "--publish": options.publish, "--licence": options.licence}
    given |= {"--queries": options.queries, "--depth": options.depth}
    if wrong := [name for name, value in given.items() if value]:
        raise UsageError(f"{wrong[0]} goes with a task set, not with --raw")
    raw = RawTable.read(Path(options.raw))
    files = []
    if options.out:
        refuse_overwriting(Path(options.out), options.raw)
        raw.write(Path(options.out))
        files = [str(options.out)]
    report = {"files": files, **raw.report()}
    print_either(options, lambda: report, lambda: _raw_lines(report))
    return 0


def _raw_lines(report: dict[str, Any]) -> Iterator[str]:
    yield from (f"written: {file}" for file in report["files"])
    yield (
        f"{number_of(report['pairs'], 'pair')}, {number_of(report['grades'], 'grade')} of "
        f"{number_of(report['annotators'], 'annotator')}: {report['agreed']:,} settled "
        f"({report['agreed with more than two annotators']:,} by four annotators), "
        f"{report['discarded']:,} discarded, {report['needs more annotators']:,} need more grades"
    )
    yield "final grades: " + ", ".join(f"{g}: {n:,}" for g, n in report["final grades"].items())


def _place(text: str | None) -> int | str | None:
    """The argument of --at: the number of an event, or else a time as it was written."""
    number = None if text is None else whole_number(text)
    return text if number is None else number


def _write(options: argparse.Namespace, judged: Judged) -> Iterator[Path]:
    """Write the files that the options ask for; yield the path of each."""
    if options.out:
        out = Path(options.out)
        read = [file for place in options.rounds for file in files_of(Path(place))]
        for target in [out / name for name in FILES] if out.is_dir() else [out]:
            refuse_overwriting(target, *read, *options.runs)
        graded = (judged_by(judged, options.truth_of) if options.truth_of else judged).annotations
        if options.rounds:
            graded = joined([*map(read_annotations, options.rounds), graded])
        if not len(graded.query):
            raise UsageError(f"{options.folder}: nothing is settled yet, so there is nothing to write")
        if not out.name.removesuffix(".gz").endswith(".jsonl"):
            make_folder(out)
        write_annotations(graded, out)
        if out.is_dir():
            judged.write_sources(own_file(out, SOURCES))
        yield out
    if options.publish:
        yield from publish(judged, Path(options.publish), options.licence)
    if options.agreement:
        yield from write_agreement(judged, Path(options.agreement))
    if options.exam:
        of_exam = {"queries": options.queries, "depth": options.depth, "seed": options.seed}
        given = {name: value for name, value in of_exam.items() if value is not None}
        write_exam(reference_exam(judged.task_set, judged.state, **given), Path(options.exam))
        yield Path(options.exam)
    if options.label_studio:
        path = Path(options.label_studio)
        open_tasks = [task for task, final in judged.outcomes if final.missing]
        yield path
        yield write_label_studio(judged.task_set, path, options.video_url or VIDEO_URL, open_tasks)


def _report(judged: Judged) -> dict[str, Any]:
    task_set, state = judged.task_set, judged.state
    of_each = {name: asdict(progress(task_set, state, name)) for name in state.annotators()}
    return {
        "event": state.seq,
        "time": state.time,
        **judged.counts(),
        "grades that do not count": [asdict(each) for each in judged.uncounted()],
        "set": table(judged.annotations) if len(judged.annotations.query) else None,
        "annotators": of_each,
        "agreement": [asdict(each) for each in (*between_annotators(judged), *with_consensus(judged))],
        "bias": [asdict(each) for each in biases(judged)],
        "exam": list(exam_results(task_set, state)),
    }


def _lines(report: dict[str, Any]) -> Iterator[str]:
    """The report as lines of text."""
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
    yield from (Uncounted(**each).line() for each in report["grades that do not count"])
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
    for each in report["bias"]:
        yield Bias(**each).line()
    for each in report["exam"]:
        yield "exam: " + Agreement(**each["agreement"]).line()
