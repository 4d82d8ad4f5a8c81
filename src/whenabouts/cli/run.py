"""`whenabouts run`: a trained system's answers to the queries of a split, as a file to evaluate."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from whenabouts.cli.options import (
    add_data,
    add_device,
    add_format,
    add_verb,
    console,
    for_terminal,
    print_json,
    wants_json,
)
from whenabouts.cli.splits import (
    SplitOptions,
    check_localizer,
    experiment_of,
    files_of_features,
    files_of_system,
    stages_named,
)
from whenabouts.types import UsageError

if TYPE_CHECKING:
    from whenabouts.cli.splits import OpenedSystem
    from whenabouts.formats.runs import RunSource, Task
    from whenabouts.models.decoding import Decoding
    from whenabouts.models.trained import Trained
    from whenabouts.ranking.rank import Ranker
    from whenabouts.ranking.refining import SegmentRanker
    from whenabouts.ranking.split import Split, SplitRun
    from whenabouts.ranking.video_run import VideoRun
    from whenabouts.training.data import Examples
    from whenabouts.training.experiment import Experiment

POOL_NMS = 0.5
"""Moments of one video that share more than this are one answer to a pool, where nobody says otherwise."""

_MOST_WEIGHT = 1_000_000
"""Of a video's score in that of its moments; beyond that nothing of a moment's own score is left."""

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
    add("--split", metavar="NAME", default="test", help="train, validation or test (default)")
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
    add("--decoding", choices=("inclusive", "exclusive", "as-released"), help="what the last clip means")
    add("--min-clips", metavar="N", type=int, help="shortest moment")
    add("--max-clips", metavar="N", help="longest moment; none for any length")
    add("--top-videos", metavar="N", type=int, help="in how many videos a query's moments are sought")
    add("--spans", metavar="N", type=int, help="how many moments are answered")
    add(
        "--nms",
        metavar="IOU",
        help="drop moments that share more with a better one of their video; or none "
        "(default: as the checkpoint says; with --pools else 0.5)",
    )


def run(options: argparse.Namespace) -> int:
    """Rank and write."""
    from whenabouts import formats
    from whenabouts.training.devices import open_device

    name = _format(options)
    _check_weight(options.video_weight)
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
        _keep_what_is_read(options, system.experiment, (chooser, localizer))
        split = _asked(options, system.split)
        answered = _answers if options.segments is None else _answers_by_segments
        answers, by = answered(files, options, display, how, (None if alone else chooser, system), split)
        source: RunSource = answers if len(answers.tasks) == 1 else answers.in_memory()
        if options.confidence:
            source = _confident(options, answers, name)
        formats.write_run(source, options.out, name, split.annotations)
        told = _told(options, system.experiment, answers, name)
        odd = {what: times for what, times in system.split.summary.counts.items() if times}
        told |= {"system": _who(answers, by), "retriever": chooser, "odd_data": odd}
    _show(options, told)
    return 0


def _check_weight(weight: float | None) -> None:
    if weight is not None and not 0 <= weight <= _MOST_WEIGHT:
        raise UsageError(f"--video-weight {weight:g}: accepted: a number from 0 to {_MOST_WEIGHT:,}")


def _keep_what_is_read(
    options: argparse.Namespace, experiment: Experiment, systems: tuple[str | None, str]
) -> None:
    """Raise FormatError where the run would be written over anything that is read."""
    from whenabouts.formats.files import refuse_overwriting
    from whenabouts.formats.jsonl import files_of
    from whenabouts.training.run_folder import EXPERIMENT

    out, chooser = Path(options.out), systems[0]
    for place in (options.checkpoint, *systems):
        refuse_overwriting(out, *(files_of_system(place) if place else ()))
    refuse_overwriting(out, *files_of_features(experiment, options.features))
    if chooser is not None and (Path(chooser).expanduser() / EXPERIMENT).is_file():
        others = experiment_of(chooser, None, options.data)
        refuse_overwriting(out, *files_of_features(others, options.retriever_features or options.features))
    named = [_truth(options, experiment), *(Path(one) for one in (options.pools, options.retriever) if one)]
    read = [one for one in named if one.is_file() or (one / "qrels.jsonl").exists()]
    refuse_overwriting(out, *(file for one in read for file in files_of(one)))


def _truth(options: argparse.Namespace, experiment: Experiment) -> Path:
    """The annotations of the split."""
    return Path(experiment.data.folder or options.features) / str(getattr(experiment.data, options.split))


def _chooses_alone(options: argparse.Namespace, chooser: str | None) -> bool:
    """Whether a trained retriever answers by itself: videos are asked for, and no localizer is needed."""
    from whenabouts.ranking.video_run import is_run

    plain = options.task == "vr" and options.segments is None and not options.confidence
    return plain and chooser is not None and not is_run(chooser)


def _who(answers: SplitRun[Any], by: str | None) -> str:
    """What answered: what chose the videos (`by`, None where nothing else did), what found the moments."""
    own = str(answers.ranker.trained.system)
    if by is None or answers.tasks == ("SVMR",):
        return own
    return by if answers.tasks == ("VR",) else f"{by} + {own}"


def _answers(
    files: ExitStack,
    options: argparse.Namespace,
    display: _Display,
    how: SplitOptions,
    pair: tuple[str | None, OpenedSystem],
    split: Split,
) -> tuple[SplitRun[Ranker], str | None]:
    """The answers from whole videos, and the name of another system or list that chooses them."""
    from whenabouts.ranking import Ranker
    from whenabouts.ranking.pooled_split import PooledSplit
    from whenabouts.ranking.split import SplitRun

    _, system = pair
    retriever, retrieval = _retriever(files, options, display, how, pair)
    if retrieval is not None and isinstance(split, PooledSplit):
        retrieval = split.beside(retrieval)
    ranker = Ranker(
        system.trained,
        display.encode(system.trained, system.split, options.on_disk),
        decoding=_decoding(system.trained.decoding, options),
        retriever=retriever,
        video_weight=options.video_weight,
    )
    tasks = _tasks(options, ranker, pools=bool(split.annotations.pools))
    by = None if retriever is None else _name_of(retriever)
    return SplitRun(ranker, split, tasks, retrieval, display.counted("queries")), by


def _name_of(retriever: Ranker | VideoRun) -> str:
    """The name of a system, or of a file of lists."""
    from whenabouts.ranking import Ranker

    return retriever.trained.system if isinstance(retriever, Ranker) else retriever.name


def _answers_by_segments(
    files: ExitStack,
    options: argparse.Namespace,
    display: _Display,
    how: SplitOptions,
    pair: tuple[str | None, OpenedSystem],
    split: Split,
) -> tuple[SplitRun[SegmentRanker], str | None]:
    """The answers from segments of the videos: chosen, joined, and looked into by the localizer.

    And the name of the other system that chooses them, where there is one.
    """
    from whenabouts.ranking.pooled_split import PooledSplit
    from whenabouts.ranking.refining import SegmentRanker
    from whenabouts.ranking.segments import SegmentSettings
    from whenabouts.ranking.split import SplitRun
    from whenabouts.ranking.video_run import is_run

    chooser, system = pair
    for option, given in (("--on-disk", options.on_disk), ("--confidence", options.confidence)):
        if given:
            raise UsageError(f"{option} is for whole videos; leave it out, or --segments")
    if chooser is not None and is_run(chooser):
        raise UsageError(f"--segments: {chooser} ranks videos; a trained retriever chooses segments")
    elsewhere = replace(how, features=options.retriever_features or options.features)
    opened = system if chooser is None else elsewhere.retriever(files, chooser, system)
    ranker = SegmentRanker(
        (opened.trained, opened.split),
        (system.trained, system.split),
        SegmentSettings(options.segments),
        decoding=_decoding(system.trained.decoding, options),
        video_weight=options.video_weight,
        progress=display.counted("segments"),
    )
    retrieval: Split | None = None if opened is system else opened.split
    if retrieval is not None and isinstance(split, PooledSplit):
        retrieval = split.beside(retrieval)
    tasks = _tasks(options, ranker, pools=bool(split.annotations.pools))
    by = None if opened is system else opened.trained.system
    return SplitRun(ranker, split, tasks, retrieval, display.counted("queries")), by


def _decoding(decoding: Decoding, options: argparse.Namespace) -> Decoding:
    """The checkpoint's, changed by options."""
    given = {
        "ends": options.decoding,
        "min_clips": options.min_clips,
        "max_clips": _or_none(options.max_clips, int, "--max-clips"),
        "top_videos": options.top_videos,
        "spans_per_query": options.spans,
        "nms": _or_none(options.nms, float, "--nms"),
    }
    if options.pools and options.nms is None and decoding.nms is None:
        given["nms"] = POOL_NMS
    asked = {"max_clips": options.max_clips, "nms": options.nms}
    changed = {key: value for key, value in given.items() if value is not None or asked.get(key) is not None}
    if "spans_per_query" in changed:
        before_nms = max(decoding.spans_before_nms, int(changed["spans_per_query"]))
        changed["spans_before_nms"] = before_nms
    return replace(decoding, **changed)


def _or_none(text: str | None, kind: Any, option: str) -> Any:
    if text is None or text == "none":
        return None
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{option} {text!r}: accepted: a number, or none") from None


def _asked(options: argparse.Namespace, examples: Examples) -> Split:
    """The queries to answer: all of the split, or those with a pool in the file that was named."""
    from whenabouts import formats
    from whenabouts.ranking.pooled_split import pooled_split

    if options.pools is None:
        return examples
    return pooled_split(examples, formats.read_annotations(options.pools))


def _confident(options: argparse.Namespace, answers: SplitRun[Any], name: str) -> RunSource:
    """The answers, with how sure the first of each query is."""
    from whenabouts.models import staged
    from whenabouts.ranking.confidence import confidence_of, load_confidence
    from whenabouts.ranking.confident_run import ConfidentRun
    from whenabouts.ranking.rank import Ranker

    if name != "jsonl":
        raise UsageError(f"--confidence: format {name} has no place for it; write JSON lines (run.jsonl)")
    ranker = answers.ranker
    localizer: Any = ranker.trained
    # A calibration is kept with what answers by itself: not with a retriever that is named here.
    own = isinstance(ranker.retriever, Ranker) and options.retriever is None
    retriever: Any = ranker.retriever.trained if own and isinstance(ranker.retriever, Ranker) else None
    pair = staged.fingerprint_of(localizer.fingerprint, retriever and retriever.fingerprint)
    known = load_confidence(options.checkpoint, pair)
    if known is None and not Path(options.checkpoint).is_dir():  # from a hub
        known = confidence_of(options.checkpoint, localizer.calibration, pair)
    if known is None:
        raise UsageError(
            f"{options.checkpoint}: its answers are not calibrated; run `whenabouts calibrate --checkpoint "
            f"{options.checkpoint} --features DIR` first, or leave out --confidence"
        )
    return ConfidentRun.of(answers, known, of_pair=own)


def _retriever(
    files: ExitStack,
    options: argparse.Namespace,
    display: _Display,
    how: SplitOptions,
    pair: tuple[str | None, OpenedSystem],
) -> tuple[Ranker | VideoRun | None, Split | None]:
    """What chooses the videos, and the split as a system reads it; None where there is none."""
    from whenabouts import formats
    from whenabouts.ranking import Ranker
    from whenabouts.ranking.video_run import VideoRun, is_run

    chooser, localizer = pair
    of_file = chooser is not None and is_run(chooser)
    if options.retriever_scores != "stored" and not of_file:
        raise UsageError(f"--retriever-scores {options.retriever_scores} is for a --retriever that is a file")
    if chooser is None:
        return None, None
    if of_file:
        if options.task != "vr":
            check_localizer(localizer, chooser)
        return VideoRun.of(formats.open_run(chooser), logarithm=options.retriever_scores == "log"), None
    how = replace(how, features=options.retriever_features or options.features)
    opened = how.retriever(files, chooser, localizer)
    most = options.top_videos or opened.trained.decoding.top_videos
    decoding = replace(opened.trained.decoding, top_videos=most)
    encoded = display.encode(opened.trained, opened.split, None)
    return Ranker(opened.trained, encoded, decoding=decoding), opened.split


def _format(options: argparse.Namespace) -> str:
    """The format named, or that of the suffix."""
    from whenabouts import formats

    known = formats.format_names("write_run")
    if options.format and options.format not in known:
        raise UsageError(f"--format {options.format!r}: accepted: {', '.join(known)}")
    if options.format:
        return str(options.format)
    return "tvr" if options.out.removesuffix(".gz").endswith(".json") else "jsonl"


def _tasks(options: argparse.Namespace, ranker: Ranker | SegmentRanker, *, pools: bool) -> tuple[Task, ...]:
    """The lists to write: the one asked for; all in a submission; else the first that the system can do."""
    if options.task is not None:
        from whenabouts.formats.runs import Task

        return tuple(task for task in get_args(Task) if task == options.task.upper())
    if pools and "SVMR" in ranker.tasks:
        return ("VCMR",)
    return ranker.tasks if _format(options) == "tvr" else ranker.tasks[:1]


def _told(
    options: argparse.Namespace, experiment: Experiment, answers: SplitRun[Any], name: str
) -> dict[str, Any]:
    """What was done, for people and programs."""
    from whenabouts.evaluation.protocols import find_protocol, protocol_for

    split, ranker = answers.split, answers.ranker
    truth = _truth(options, experiment)
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
        "videos_not_found": ranker.unfound,
        "odd_judgements": dict(split.annotations.counts) if options.pools else {},
        "checkpoint": options.checkpoint,
        "decoding": ranker.decoding.to_json(),
        "simulated": experiment.simulated,
        "pools": options.pools,
        "segments": ranker.settings.seconds if options.segments is not None else None,
        "evaluate": shlex.join(evaluate) if truth.exists() else None,
    }


def _show(options: argparse.Namespace, told: dict[str, Any]) -> None:
    if wants_json(options):
        print_json(told)
        return
    out = console()
    simulated = " (simulated features)" if told["simulated"] else ""
    line = (
        f"{told['out']} ({told['format']}): {', '.join(told['tasks'])} of {told['queries']:,} queries among "
        f"{told['videos']:,} videos, by {told['system']}{simulated}"
    )
    out.print(for_terminal(line), markup=False, soft_wrap=True)
    notes = [f"{options.pools}: {what}: {times:,}" for what, times in told["odd_judgements"].items()]
    notes += [f"{what}: {times:,}" for what, times in told["odd_data"].items()]
    if told["segments"] not in (None, options.segments):
        notes.insert(0, f"segments are of whole clips: {told['segments']:g} s")
    if told["videos_not_found"]:
        unfound = told["videos_not_found"]
        notes.insert(0, f"videos of which nothing is read, and which are not found: {unfound:,}")
    for note in notes:
        out.print(for_terminal(note), markup=False, soft_wrap=True)
    if told["evaluate"]:
        out.print(for_terminal(told["evaluate"]), style="dim", markup=False, soft_wrap=True)


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

    def encode(self, trained: Trained, examples: Examples, folder: str | None) -> Any:
        """The videos of a split, encoded."""
        from whenabouts.ranking.split import encode_split

        return encode_split(trained, examples, folder=folder, progress=self.counted("videos"))
