"""`whenabouts build judging`: write a task set for people who grade how well moments answer queries."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whenabouts.cli.options import add_corpus, add_format, add_seed
from whenabouts.cli.terminal import print_either
from whenabouts.encoders import open_text_encoder
from whenabouts.types import UsageError, Video, number_of
from whenabouts_bench.cli.options import add_sentence_encoder
from whenabouts_bench.formats import open_run, read_annotations
from whenabouts_bench.formats.queries import read_queries, with_words
from whenabouts_bench.judging.candidates import (
    BATCH,
    BATCHES,
    DEPTH,
    SAME,
    Candidate,
    by_caption,
    by_runs,
    names_of_runs,
    not_judged,
    tasks_of,
)
from whenabouts_bench.judging.recordings import in_corpus, in_folder
from whenabouts_bench.judging.tasks import TaskSet, read_exam


def add_judging(kinds: Any) -> None:
    """Declare `build judging`."""
    parser = kinds.add_parser(
        "judging",
        help="a set of tasks: people grade how well moments answer queries",
        description="Write a folder of tasks, each a query and a moment: the best answers of some runs, or "
        "the moments with the most similar captions. `whenabouts judge FOLDER` opens it; `whenabouts "
        "judgements FOLDER` says what came of it. docs/judging.md has the rules.",
    )
    add = parser.add_argument
    add("--queries", metavar="FILE", help="the queries, in any format that has their words, or a .txt")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--run", metavar="FILE", action="append", dest="runs",
        help="judge the best answers of this run; may be given again: the union of them",
    )  # fmt: skip
    source.add_argument(
        "--captions", metavar="FILE",
        help="or: moments with captions (`build queries` writes DIR/all); judge the most similar ones",
    )  # fmt: skip
    add("--out", metavar="FOLDER", required=True, help="the folder to write")
    add("--depth", type=int, metavar="N", help="answers of each run to a query (default: 10)")
    add(
        "--iou",
        type=float,
        metavar="IOU",
        help="merge answers whose IoU is at least this into one task (default: 0.7)",
    )
    add(
        "--judged", metavar="FILE", action="append", default=[],
        help="with --run: judgements of an earlier round, whose moments are not judged again; may be given "
        "again",
    )  # fmt: skip
    add("--batch", type=int, metavar="N", help="moments by caption in a batch (default: 20)")
    add(
        "--batches", type=int, metavar="N",
        help="batches at most; the next one is judged if the last 5 have a mean grade of 2 (default: 2)",
    )  # fmt: skip
    add(
        "--random", type=int, metavar="N",
        help="with --captions: also judge N random moments of each query (the paper's study: 60 beside 60)",
    )  # fmt: skip
    add("--videos", metavar="DIR", help="the recordings, with the names of the videos")
    add_corpus(parser)
    add(
        "--annotators", type=int, choices=(1, 2), default=2,
        help="annotators of each task: 2, and 4 if they disagree (default), or 1",
    )  # fmt: skip
    add("--exam", metavar="FILE", help="an exam that annotators pass first (exam.jsonl)")
    add(
        "--pass-mark", type=float, default=1.0, metavar="SHARE",
        help="share of the exam that has to be right (default: 1)",
    )  # fmt: skip
    add_seed(parser)
    add_sentence_encoder(parser)
    add_format(parser)
    parser.set_defaults(run=run_judging)


def run_judging(options: argparse.Namespace) -> int:
    """Gather candidates, find their recordings, write the folder."""
    _check(options)
    exam = read_exam(Path(options.exam)) if options.exam else ()
    gathered = _by_runs(options) if options.runs else _by_caption(options)
    needed = {c.moment.video_id: gathered.videos.get(c.moment.video_id) for c in gathered.candidates}
    needed |= {item.task.moment.video_id: None for item in exam if item.task.moment.video_id not in needed}
    videos = recordings_of(options, {name: video or Video(name, None) for name, video in needed.items()})
    tasks, sources = tasks_of(gathered.candidates, videos, options.seed)
    task_set = TaskSet(
        Path(options.out), Path(options.out).resolve().name, tuple(tasks),
        {video.id: video.path for video in videos.values()}, exam, options.annotators,
        options.pass_mark, made={**gathered.made, "seed": options.seed},
    )  # fmt: skip
    task_set.write(sources)
    report = _report(task_set)
    print_either(options, lambda: report, lambda: _lines(options, report))
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse options that mean nothing together."""
    by_runs, by_caption = (options.depth, options.iou), (options.batch, options.batches)
    if options.runs and not options.queries:
        raise UsageError("--run: give the words of its queries with --queries FILE")
    if options.runs and any(value is not None for value in by_caption):
        raise UsageError("--batch and --batches go with --captions; the answers of runs are one batch")
    if options.runs and options.random is not None:
        raise UsageError("--random goes with --captions, the file that it draws moments from")
    if options.captions and options.judged:
        raise UsageError("--judged goes with --run; with --captions, the grades decide about the next batch")
    if options.captions and any(value is not None for value in by_runs):
        raise UsageError("--depth and --iou go with --run; moments by caption come in --batches of --batch")
    if not 0 <= options.pass_mark <= 1:
        raise UsageError(f"--pass-mark {options.pass_mark:g}: give a share from 0 to 1")


@dataclass(frozen=True)
class _Gathered:
    """Candidates, the known videos by id, and the settings to record in the task set."""

    candidates: list[Candidate]
    videos: Mapping[str, Video]
    made: dict[str, Any]


def _by_runs(options: argparse.Namespace) -> _Gathered:
    queries = read_queries(options.queries)
    depth = DEPTH if options.depth is None else options.depth
    same = SAME if options.iou is None else options.iou
    runs = [open_run(path, annotations=queries) for path in options.runs]
    candidates = by_runs(runs, queries.queries, depth, same)
    for path in options.judged:
        candidates = not_judged(candidates, read_annotations(path), same)
    if options.judged and not candidates:
        raise UsageError(
            f"--judged {', '.join(options.judged)}: all answers are judged there; nothing is left"
        )
    judged = [Path(path).name for path in options.judged]
    made = {"runs": names_of_runs(options.runs), "depth": depth, "iou": same, "judged before": judged}
    return _Gathered(candidates, {video.id: video for video in queries.videos}, made)


def _by_caption(options: argparse.Namespace) -> _Gathered:
    captions = with_words(read_annotations(options.captions), options.captions)
    queries = read_queries(options.queries).queries if options.queries else captions.queries
    encoder = open_text_encoder(options.encoder)
    batch = BATCH if options.batch is None else options.batch
    batches = BATCHES if options.batches is None else options.batches
    drawn = options.random or 0
    candidates = by_caption(captions, queries, encoder, batch, batches, random=drawn, seed=options.seed)
    made = {"captions": Path(options.captions).name, "encoder": encoder.fingerprint, "batch": batch}
    made |= {"random": drawn} if drawn else {}
    return _Gathered(candidates, {video.id: video for video in captions.videos}, made)


def recordings_of(options: argparse.Namespace, videos: Mapping[str, Video]) -> dict[str, Video]:
    """The videos with their recordings and durations. Raises UsageError where a recording is missing."""
    if options.videos:
        return in_folder(videos, Path(options.videos))
    return in_corpus(videos, options.corpus) if options.corpus else dict(videos)


def _report(task_set: TaskSet) -> dict[str, Any]:
    return {
        "folder": str(task_set.folder),
        "tasks": len(task_set.tasks),
        "queries": len({task.query_id for task in task_set.tasks}),
        "videos": len(task_set.videos),
        "videos without a recording": len(task_set.missing_videos()),
        "first batch": sum(task.batch == 1 for task in task_set.tasks),
        "exam": len(task_set.exam),
        "fingerprint": task_set.fingerprint,
    }


def _lines(options: argparse.Namespace, report: dict[str, Any]) -> list[str]:
    lines = [
        f"{report['folder']}: {number_of(report['tasks'], 'task')} of "
        f"{number_of(report['queries'], 'query')} in {number_of(report['videos'], 'video')}"
    ]
    if report["first batch"] < report["tasks"]:
        later = report["tasks"] - report["first batch"]
        lines.append(f"{later:,} of them are judged only if the last 5 of the batch before are relevant")
    if report["videos without a recording"]:
        lines.append(
            f"{report['videos without a recording']:,} videos have no recording here (transcripts do not "
            "count): people can only skip their moments on the page, and a model gets no words; give the "
            f"recordings with --videos, or write their paths into {report['folder']}/videos.jsonl"
        )
    return [*lines, f"edit {report['folder']}/guideline.md; then: whenabouts judge {report['folder']}"]
