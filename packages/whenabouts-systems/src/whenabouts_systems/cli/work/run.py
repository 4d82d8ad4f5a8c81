"""`whenabouts run`: rank the videos and moments of a split and write the answers."""

from __future__ import annotations

import argparse
import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from whenabouts.cli.terminal import console, counting_bar, for_terminal, print_json, wants_json
from whenabouts.intake.files import refuse_overwriting
from whenabouts.types import UsageError, number_of
from whenabouts.video.aside import check_free
from whenabouts_bench import formats
from whenabouts_bench.evaluation.protocols import find_protocol, protocol_for
from whenabouts_bench.formats.jsonl import files_of
from whenabouts_bench.formats.runs import RunSource
from whenabouts_systems.cli.splits import (
    OpenedSystem,
    SplitOptions,
    experiment_of,
    files_of_features,
    files_of_system,
    stages_named,
)
from whenabouts_systems.ranking.candidates import RankedVideos, is_run
from whenabouts_systems.ranking.encoded_corpus import Progress
from whenabouts_systems.ranking.split import Split, SplitRun, pooled_split
from whenabouts_systems.ranking.split_run import (
    RunOptions,
    check_pair,
    run_of_split,
    who_answered,
    with_confidence,
)
from whenabouts_systems.training.data import file_of_split
from whenabouts_systems.training.devices import open_device
from whenabouts_systems.training.experiment import Experiment
from whenabouts_systems.training.run_folder import EXPERIMENT


def run(options: argparse.Namespace) -> int:
    """Answer the queries of the split and write the answers."""
    name = _format(options)
    settings = _settings(options, name)
    chooser, localizer = stages_named(options.checkpoint, options.retriever)
    _check_retriever(options, chooser)
    alone = _chooses_alone(options, chooser)
    device = open_device(options.device).device
    features = options.retriever_features if alone else None
    how = SplitOptions(options.split, features or options.features, options.data, device)
    with ExitStack() as files, ExitStack() as bar:

        def progress(what: str) -> Progress:
            bar.close()  # one bar at a time
            return bar.enter_context(counting_bar(what))

        if alone and chooser is not None:
            system = how.opened(files, chooser)
        else:
            system = how.opened(files, localizer, options.experiment)
        truth = file_of_split(system.experiment.data, Path(how.features).expanduser(), system.split.name)
        _keep_what_is_read(options, system.experiment, truth, (chooser, localizer))
        split: Split = system.split
        if options.pools is not None:  # only the queries with a pool
            split = pooled_split(split, formats.read_annotations(options.pools))
        retriever = None if alone else _retriever(files, options, how, chooser, system)
        answers = run_of_split(system, split, settings, retriever, progress)
        source: RunSource = answers if len(answers.tasks) == 1 else answers.in_memory()
        if options.confidence:
            source = with_confidence(answers, options.checkpoint, of_pair=options.retriever is None)
        formats.write_run(source, options.out, name, split.annotations)
        report = _report(options, system.experiment, answers, name, truth)
        report |= {"system": who_answered(answers, retriever), "retriever": chooser}
        report["odd_data"] = dict(system.split.summary.counts)
    _show(options, report)
    return 0


def _settings(options: argparse.Namespace, name: str) -> RunOptions:
    """The options, converted for ranking."""
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
        number = "a whole number" if kind is int else "a number"
        raise UsageError(f"{option} {text!r}: accepted: {number}, or none") from None


def _retriever(
    files: ExitStack,
    options: argparse.Namespace,
    how: SplitOptions,
    chooser: str | None,
    localizer: OpenedSystem,
) -> OpenedSystem | RankedVideos | None:
    """Open the system or file that chooses videos for the localizer; None if there is none."""
    if chooser is None:
        return None
    if is_run(chooser):
        if options.task != "vr":
            check_pair(None, localizer, chooser)
        return RankedVideos.of(formats.open_run(chooser), logarithm=options.retriever_scores == "log")
    elsewhere = replace(how, features=options.retriever_features or options.features)
    return elsewhere.retriever(files, chooser, localizer)


def _check_retriever(options: argparse.Namespace, chooser: str | None) -> None:
    """Raise UsageError for an option that does not fit the retriever."""
    of_file = chooser is not None and is_run(chooser)
    if options.retriever_scores != "stored" and not of_file:
        raise UsageError(f"--retriever-scores {options.retriever_scores} is for a --retriever that is a file")
    if options.retriever_features and (of_file or chooser is None):
        raise UsageError("--retriever-features is for a --retriever that is trained; leave it out")


def _keep_what_is_read(
    options: argparse.Namespace, experiment: Experiment, truth: Path, systems: tuple[str | None, str]
) -> None:
    """Raise FormatError if the run would overwrite a file that is read, UsageError for another file."""
    out, chooser = Path(options.out), systems[0]
    for place in (options.checkpoint, *systems):
        refuse_overwriting(out, *(files_of_system(place) if place else ()))
    refuse_overwriting(out, *files_of_features(experiment, options.features))
    if chooser is not None and (Path(chooser).expanduser() / EXPERIMENT).is_file():
        trained_by = experiment_of(chooser, None, options.data)
        features = options.retriever_features or options.features
        refuse_overwriting(out, *files_of_features(trained_by, features))
    named = [truth, *(Path(path) for path in (options.pools, options.retriever) if path)]
    read = [path for path in named if path.is_file() or (path / "qrels.jsonl").exists()]
    refuse_overwriting(out, *(file for path in read for file in files_of(path)))
    check_free(out, force=options.force)


def _chooses_alone(options: argparse.Namespace, chooser: str | None) -> bool:
    """Whether a trained retriever answers alone: only videos are asked for, so no localizer is needed."""
    plain = options.task == "vr" and options.segments is None and not options.confidence
    return plain and chooser is not None and not is_run(chooser)


def _format(options: argparse.Namespace) -> str:
    """The format of --format, or else that of the file's suffix."""
    names = formats.format_names("write_run")
    if options.format and options.format not in names:
        raise UsageError(f"--format {options.format!r}: accepted: {', '.join(names)}")
    if options.format:
        return str(options.format)
    return "tvr" if options.out.removesuffix(".gz").endswith(".json") else "jsonl"


def _report(
    options: argparse.Namespace, experiment: Experiment, answers: SplitRun, name: str, truth: Path
) -> dict[str, Any]:
    """A summary of the run, to be printed or written as JSON."""
    split, ranker = answers.split, answers.ranker
    of_training = "" if options.pools else experiment.training.protocol
    protocol = _measuring(of_training or protocol_for(split.annotations).name, answers)
    truth = options.pools or truth
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
        "evaluate": shlex.join(evaluate),
    }


def _measuring(protocol: str, answers: SplitRun) -> str:
    """The protocol, or vcmr if it measures nothing of the run's only task."""
    chosen, (task, *others) = find_protocol(protocol), answers.tasks
    reads = task == "VCMR" or (task == "SVMR" and chosen.given_video) or bool(others)
    return protocol if reads or any(name.startswith(f"{task} ") for name in chosen.metrics) else "vcmr"


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
    out.print(for_terminal(line), soft_wrap=True)
    notes = [f"{options.pools}: {what}: {times:,}" for what, times in report["odd_judgements"].items()]
    notes += [f"{what}: {times:,}" for what, times in report["odd_data"].items()]
    if report["segments"] not in (None, options.segments):
        notes.insert(0, f"segments are of whole clips: {report['segments']:g} s")
    if silent := report["videos_not_found"]:
        notes.insert(0, f"videos without features, which are never found: {silent:,}")
    if report["tasks"] == ["SVMR"] and options.task is None:
        notes.insert(
            0, "this system finds moments in a given video; with --retriever RUN it searches all of them"
        )
    for note in notes:
        out.print(for_terminal(note), soft_wrap=True)
    out.print(for_terminal(report["evaluate"]), style="dim", soft_wrap=True)
