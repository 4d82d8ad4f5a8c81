"""`whenabouts run`: a trained system's answers to the queries of a split, as a file to evaluate."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.cli.options import (
    add_data,
    add_device,
    add_force,
    add_format,
    add_verb,
    console,
    for_terminal,
    print_json,
    wants_json,
)
from whenabouts.types import UsageError, number_of
from whenabouts_systems.cli.splits import (
    SplitOptions,
    experiment_of,
    files_of_features,
    files_of_system,
    stages_named,
)

if TYPE_CHECKING:
    from whenabouts_bench.formats.runs import RunSource
    from whenabouts_systems.cli.splits import OpenedSystem
    from whenabouts_systems.ranking.candidates import RankedVideos
    from whenabouts_systems.ranking.split import Split, SplitRun
    from whenabouts_systems.ranking.split_run import RunOptions
    from whenabouts_systems.training.data import Examples
    from whenabouts_systems.training.experiment import Experiment

_EPILOG = """\
examples:
  whenabouts run --checkpoint runs/xml --features features --split test --out xml.run.jsonl
  whenabouts evaluate vcmr --truth features/charades_test.jsonl --run xml.run.jsonl

  whenabouts run --checkpoint runs/xml --features features --out submission.json   all tasks, TVR's file
  whenabouts run --checkpoint runs/xml --features features --out svmr.jsonl --task svmr
  whenabouts run --retriever runs/xml --localizer runs/mmn --features features --out both.jsonl
  whenabouts run --checkpoint runs/prem --features features --out prem.jsonl  a staged run: both in one
  whenabouts run --retriever hero_val_top100 --retriever-scores log --localizer runs/conquer \\
      --features features --out conquer.jsonl

  whenabouts run --retriever runs/xml --localizer runs/reloclnet --segments 4 \\
      --features features --out spr.jsonl

  whenabouts run --checkpoint runs/mmn --features features --pools pools.json --out mvmr.jsonl
  whenabouts run --checkpoint runs/mmn --features features --pools pools.json --task svmr --out vmr.jsonl
  whenabouts run --retriever runs/xml --localizer runs/mmn --top-videos 5 --features features \\
      --pools pools.json --out top5.jsonl

The checkpoint says which files of --features it reads, and how spans become moments; options change that for
this run. docs/running.md has more. exit codes: 0 written, 2 wrong use or bad input"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "run",
        run,
        description="Rank the videos and moments of a split for its queries, and write the answers.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add(
        "--checkpoint",
        "--localizer",
        metavar="RUN",
        required=True,
        help="folder of a trained system or of a staged run, or owner/name on a hub",
    )
    add("--features", metavar="DIR", required=True, help="folder of the feature files")
    add("--out", metavar="FILE", required=True, help="file to write: run.jsonl, or submission.json (TVR)")
    add_force(parser)
    add("--split", metavar="NAME", help="train, validation or test (default: test if there is one)")
    add_data(parser)
    add("--experiment", metavar="FILE", help="names the files (default: the experiment in --checkpoint)")
    add(
        "--task",
        choices=("vcmr", "svmr", "vr"),
        help="moments of all videos (vcmr), moments in each query's given video (svmr), or videos (vr); "
        "default: vcmr, or what the system can do",
    )
    add("--format", metavar="NAME", help="jsonl, tvr, trec, … (default: .json is tvr, all else jsonl)")
    _add_retriever(parser)
    add(
        "--pools",
        metavar="FILE",
        help="answer each query from its pool of videos (MVMR file, or folder with pools.jsonl)",
    )
    add(
        "--confidence",
        action="store_true",
        help="write how sure each query's first answer is (needs `whenabouts calibrate --checkpoint`)",
    )
    add("--on-disk", metavar="DIR", help="keep encoded videos in a folder, not in memory; it is made anew")
    add_device(parser)
    _add_decoding(parser)
    add_format(parser)


def _add_retriever(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--retriever",
        metavar="RUN",
        help="what chooses the videos: another trained system, a run file that ranks them, or HERO's LMDB "
        "of lists (default: the one that a staged run names)",
    )
    add("--retriever-features", metavar="DIR", help="its feature files (default: --features)")
    add(
        "--retriever-scores",
        choices=("stored", "log"),
        default="stored",
        help="scores of a --retriever that is a file: as they stand (default), or their logarithms",
    )
    add(
        "--video-weight",
        metavar="W",
        type=float,
        help="how often the video's score counts in a moment's score (default: as the checkpoint says)",
    )
    add(
        "--segments",
        metavar="SECONDS",
        type=float,
        help="for long videos: the retriever chooses segments of so many seconds, neighbours are joined, and "
        "the localizer looks into these with 8 s on both sides (SPR: 4)",
    )


def _add_decoding(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("decoding, in place of what the checkpoint says")
    add = group.add_argument
    add(
        "--decoding",
        choices=("inclusive", "exclusive", "as-released"),
        help="whether the last clip of a span belongs to the moment",
    )
    add("--min-clips", metavar="N", type=int, help="shortest moment, in clips")
    add("--max-clips", metavar="N", help="longest moment, in clips; none for any length")
    add("--top-videos", metavar="N", type=int, help="in how many videos a query's moments are sought")
    add("--spans", metavar="N", type=int, help="how many moments are written for a query")
    add(
        "--nms",
        metavar="IOU",
        help="drop moments that share more with a better one of their video; or none "
        "(default: as the checkpoint says; with --pools else 0.5)",
    )


def run(options: argparse.Namespace) -> int:
    """Rank and write."""
    from whenabouts_bench import formats
    from whenabouts_systems.ranking.split_run import run_of_split, who_answered, with_confidence
    from whenabouts_systems.training.devices import open_device

    name = _format(options)
    settings = _settings(options, name)
    chooser, localizer = stages_named(options.checkpoint, options.retriever)
    alone = _chooses_alone(options, chooser)
    device = open_device(options.device).device
    features = options.retriever_features if alone else None
    how = SplitOptions(options.split, features or options.features, options.data, device)
    with ExitStack() as files, _Display(wants_json(options)) as display:
        if alone and chooser is not None:
            system = how.opened(files, chooser)
        else:
            system = how.opened(files, localizer, options.experiment)
        truth = _truth(options, system)
        _keep_what_is_read(options, system.experiment, truth, (chooser, localizer))
        split = _answered_split(options, system.split)
        retriever = None if alone else _retriever(files, options, how, chooser, system)
        answers = run_of_split(system, split, settings, retriever, display.counted)
        source: RunSource = answers if len(answers.tasks) == 1 else answers.in_memory()
        if options.confidence:
            source = with_confidence(answers, options.checkpoint, of_pair=options.retriever is None)
        formats.write_run(source, options.out, name, split.annotations)
        report = _report(options, system.experiment, answers, name, truth)
        odd = {what: times for what, times in system.split.summary.counts.items() if times}
        report |= {"system": who_answered(answers, retriever), "retriever": chooser, "odd_data": odd}
    _show(options, report)
    return 0


def _settings(options: argparse.Namespace, name: str) -> RunOptions:
    """The options as the ranking takes them."""
    from whenabouts_systems.ranking.split_run import RunOptions

    if options.confidence and name != "jsonl":
        raise UsageError(f"--confidence: format {name} has no place for it; write JSON lines (run.jsonl)")
    if options.confidence and options.segments is not None:
        raise UsageError("--confidence is for whole videos; leave it out, or --segments")
    changes = {
        "ends": options.decoding,
        "min_clips": options.min_clips,
        "max_clips": _number(options.max_clips, int, "--max-clips"),
        "spans_per_query": options.spans,
        "nms": _number(options.nms, float, "--nms"),
    }
    named = {"max_clips": options.max_clips, "nms": options.nms}  # "none" is a value of these two
    return RunOptions(
        options.task,
        name == "tvr",
        {key: value for key, value in changes.items() if value is not None or named.get(key) is not None},
        options.top_videos,
        options.video_weight,
        options.segments,
        options.on_disk,
    )


def _number(text: str | None, kind: Any, option: str) -> Any:
    if text is None or text == "none":
        return None
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{option} {text!r}: accepted: a number, or none") from None


def _retriever(
    files: ExitStack,
    options: argparse.Namespace,
    how: SplitOptions,
    chooser: str | None,
    localizer: OpenedSystem,
) -> OpenedSystem | RankedVideos | None:
    """What chooses the videos in place of the localizer, opened; None where nothing does."""
    from whenabouts_bench import formats
    from whenabouts_systems.ranking.candidates import RankedVideos, is_run
    from whenabouts_systems.ranking.split_run import check_pair

    of_file = chooser is not None and is_run(chooser)
    if options.retriever_scores != "stored" and not of_file:
        raise UsageError(f"--retriever-scores {options.retriever_scores} is for a --retriever that is a file")
    if chooser is None:
        return None
    if of_file:
        if options.task != "vr":
            check_pair(None, localizer, chooser)
        return RankedVideos.of(formats.open_run(chooser), logarithm=options.retriever_scores == "log")
    elsewhere = replace(how, features=options.retriever_features or options.features)
    return elsewhere.retriever(files, chooser, localizer)


def _keep_what_is_read(
    options: argparse.Namespace, experiment: Experiment, truth: Path, systems: tuple[str | None, str]
) -> None:
    """Raise FormatError where the run would be written over what is read, UsageError over another."""
    from whenabouts.intake.files import refuse_overwriting
    from whenabouts.video.aside import check_free
    from whenabouts_bench.formats.jsonl import files_of
    from whenabouts_systems.training.run_folder import EXPERIMENT

    out, chooser = Path(options.out), systems[0]
    for place in (options.checkpoint, *systems):
        refuse_overwriting(out, *(files_of_system(place) if place else ()))
    refuse_overwriting(out, *files_of_features(experiment, options.features))
    if chooser is not None and (Path(chooser).expanduser() / EXPERIMENT).is_file():
        theirs = experiment_of(chooser, None, options.data)
        refuse_overwriting(out, *files_of_features(theirs, options.retriever_features or options.features))
    named = [truth, *(Path(path) for path in (options.pools, options.retriever) if path)]
    read = [path for path in named if path.is_file() or (path / "qrels.jsonl").exists()]
    refuse_overwriting(out, *(file for path in read for file in files_of(path)))
    check_free(out, force=options.force)


def _truth(options: argparse.Namespace, system: OpenedSystem) -> Path:
    """The annotations of the split."""
    data = system.experiment.data
    return Path(data.folder or options.features) / str(getattr(data, system.split.name))


def _chooses_alone(options: argparse.Namespace, chooser: str | None) -> bool:
    """Whether a trained retriever answers by itself: videos are asked for, and no localizer is needed."""
    from whenabouts_systems.ranking.candidates import is_run

    plain = options.task == "vr" and options.segments is None and not options.confidence
    return plain and chooser is not None and not is_run(chooser)


def _answered_split(options: argparse.Namespace, examples: Examples) -> Split:
    """The queries to answer: all of the split, or those with a pool in the file that was named."""
    from whenabouts_bench import formats
    from whenabouts_systems.ranking.split import pooled_split

    if options.pools is None:
        return examples
    return pooled_split(examples, formats.read_annotations(options.pools))


def _format(options: argparse.Namespace) -> str:
    """The format named, or that of the suffix."""
    from whenabouts_bench import formats

    names = formats.format_names("write_run")
    if options.format and options.format not in names:
        raise UsageError(f"--format {options.format!r}: accepted: {', '.join(names)}")
    if options.format:
        return str(options.format)
    return "tvr" if options.out.removesuffix(".gz").endswith(".json") else "jsonl"


def _report(
    options: argparse.Namespace, experiment: Experiment, answers: SplitRun, name: str, truth: Path
) -> dict[str, Any]:
    """What was done, for people and programs."""
    from whenabouts_bench.evaluation.protocols import find_protocol, protocol_for

    split, ranker = answers.split, answers.ranker
    protocol = experiment.training.protocol or protocol_for(split.annotations).name
    if options.pools:
        truth, protocol = Path(options.pools), protocol_for(split.annotations).name
    evaluate = ["whenabouts", "evaluate", protocol, "--truth", str(truth), "--run", options.out]
    if answers.tasks == ("SVMR",):  # nothing else is to be read from moments of given videos
        within = [name for name in find_protocol(protocol).metrics if name.startswith("SVMR R@1,")]
        evaluate += [part for name in within for part in ("--metric", name)]
    return {
        "out": options.out,
        "format": name,
        "tasks": list(answers.tasks),
        "queries": len(split.queries),
        "videos": len(split.videos),
        "videos_not_found": ranker.unfindable,
        "odd_judgements": dict(split.annotations.counts) if options.pools else {},
        "checkpoint": options.checkpoint,
        "decoding": ranker.decoding.to_json(),
        "simulated": experiment.simulated,
        "pools": options.pools,
        "segments": ranker.segments.settings.seconds if ranker.segments is not None else None,
        "evaluate": shlex.join(evaluate) if truth.exists() else None,
    }


def _show(options: argparse.Namespace, report: dict[str, Any]) -> None:
    if wants_json(options):
        print_json(report)
        return
    out = console()
    simulated = " (simulated features)" if report["simulated"] else ""
    line = (
        f"{report['out']} ({report['format']}): {', '.join(report['tasks'])} of "
        f"{number_of(report['queries'], 'query')} among {number_of(report['videos'], 'video')}, "
        f"by {report['system']}{simulated}"
    )
    out.print(for_terminal(line), markup=False, soft_wrap=True)
    notes = [f"{options.pools}: {what}: {times:,}" for what, times in report["odd_judgements"].items()]
    notes += [f"{what}: {times:,}" for what, times in report["odd_data"].items()]
    if report["segments"] not in (None, options.segments):
        notes.insert(0, f"segments are of whole clips: {report['segments']:g} s")
    if report["videos_not_found"]:
        silent = report["videos_not_found"]
        notes.insert(0, f"videos of which nothing is read, and which are not found: {silent:,}")
    if report["tasks"] == ["SVMR"] and options.task is None:
        notes.insert(
            0, "this system finds moments in a given video; with --retriever RUN it searches all of them"
        )
    for note in notes:
        out.print(for_terminal(note), markup=False, soft_wrap=True)
    if report["evaluate"]:
        out.print(for_terminal(report["evaluate"]), style="dim", markup=False, soft_wrap=True)


class _Display:
    """How far it is, on standard error, where somebody looks."""

    def __init__(self, quiet: bool) -> None:
        self._wanted = sys.stderr.isatty() and not quiet
        self._bar: Any = None

    def __enter__(self) -> _Display:
        if self._wanted:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def counted(self, what: str) -> Any:
        """What is called with the number done and the number of all."""
        if self._bar is None:
            return None
        job = self._bar.add_task(what, total=None)
        return lambda done, total: self._bar.update(job, completed=done, total=total)
