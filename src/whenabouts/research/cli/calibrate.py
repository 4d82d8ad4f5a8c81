"""`whenabouts calibrate`: how often the answers are wrong, of a corpus or of a trained system."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.product.cli.options import (
    add_check,
    add_corpus,
    add_data,
    add_device,
    add_format,
    add_verb,
    open_corpus,
    opened_checker,
    print_either,
)
from whenabouts.research.cli.splits import SplitOptions, stages_named
from whenabouts.types import UsageError

if TYPE_CHECKING:
    from whenabouts.formats.annotations import Annotations
    from whenabouts.ranking.calibration import TrainedReport

POOL_SIZE = 50
"""Videos in a pool that is drawn, where nobody says otherwise: as many as in MVMR's."""

_EPILOG = """\
examples:
  whenabouts calibrate --corpus my.corpus
  whenabouts calibrate --corpus my.corpus --queries known.jsonl --out figures
a line of --queries: {"query": "a red flower opens", "video": "flower.webm", "start": 1.5, "end": 4.0}
  whenabouts calibrate --corpus my.corpus --queries known.jsonl --check http://127.0.0.1:8000/v1#qwen3-vl

  whenabouts calibrate --checkpoint runs/xml --features features
  whenabouts calibrate --checkpoint runs/xml --features features --pools pools.json --out figures
the calibration of a checkpoint is kept in its folder; `search --model` and `run --confidence` use it"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "calibrate",
        run,
        description="Measure how often the answers of a corpus are wrong, and keep the result with it: by\n"
        "unrelated sentences, and by questions whose answer is known, with and without their video in\n"
        "the corpus. Or, with --checkpoint: measure a trained system by the queries of a split, in pools\n"
        "with their answer and without, and keep with the checkpoint how sure its answers are.",
        epilog=_EPILOG,
    )
    add_corpus(parser)
    parser.add_argument(
        "--queries",
        metavar="FILE",
        help="questions and where their answers are, as JSON lines (default: made of what is said)",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="write the diagrams (SVG, PNG) and the numbers (JSON) into this folder"
    )
    add_check(
        parser, "in place of the answers, measure how often this model is wrong that looks a second time"
    )
    parser.add_argument(
        "--check-questions",
        metavar="N",
        type=int,
        default=60,
        help="without --queries: questions that are made for --check (default 60; two looks each)",
    )
    _add_checkpoint(parser)
    parser.add_argument("--wait", action="store_true", help="wait while another command writes to the corpus")
    add_format(parser)


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a trained system, in place of a corpus")
    add = group.add_argument
    add(
        "--checkpoint",
        metavar="RUN",
        help="folder of a trained system or of a staged run, whose answers are calibrated",
    )
    add("--features", metavar="DIR", help="folder of the split's feature files")
    add("--split", metavar="NAME", default="validation", help="train, validation (default) or test")
    add_data(group)
    add("--experiment", metavar="FILE", help="which files to read (default: as --checkpoint keeps it)")
    add(
        "--pools", metavar="FILE", help="pools of the split's queries: an MVMR file (`whenabouts build mvmr`)"
    )
    add(
        "--pool-size",
        metavar="N",
        type=int,
        help=f"without --pools: videos that are drawn for each query (default: {POOL_SIZE})",
    )
    add(
        "--method",
        choices=("temperature", "isotonic"),
        help="the curve from that number to confidence (default: isotonic from 1,000 answers on, with fewer "
        "temperature)",
    )
    add(
        "--raw",
        choices=("margin", "top"),
        default="margin",
        help="the number that becomes confidence: how far the best moment scores above chance (margin, "
        "the default), or its score (top)",
    )
    add(
        "--iou",
        metavar="IOU",
        type=float,
        default=0.5,
        help="how much a first moment must share with a true one to be right (default: 0.5)",
    )
    add(
        "--seed",
        metavar="N",
        type=int,
        default=0,
        help="decides which pools and which unrelated queries are drawn (default: 0)",
    )
    add_device(group)


def run(options: argparse.Namespace) -> int:
    """Measure, show, and write the figures."""
    if options.checkpoint:
        return _run_checkpoint(options)
    if options.features or options.pools:
        raise UsageError("--features and --pools are for the calibration of a --checkpoint, which is missing")
    if options.check is not None:
        return _run_check(options)
    from whenabouts.product.calibration.measuring import calibrate

    corpus = open_corpus(options)
    report = calibrate(corpus, options.queries, wait=options.wait, progress=_progress())
    written = report.write(Path(options.out)) if options.out else []
    print_either(
        options,
        lambda: {**report.to_json(), "files": [str(path) for path in written]},
        lambda: [*report.lines(), *(f"written: {path}" for path in written)],
    )
    return 0


def _run_check(options: argparse.Namespace) -> int:
    """Measure a checker on a corpus, keep and show what came of it."""
    from whenabouts.product.calibration.checks import calibrate_checker, lines_of

    if options.out:
        raise UsageError("--out writes the diagrams of answers; --check has none, leave it out")
    corpus, checker = open_corpus(options), opened_checker(options)
    assert checker is not None  # it was named
    rates, notes = calibrate_checker(
        corpus,
        checker,
        options.queries,
        count=options.check_questions,
        wait=options.wait,
        progress=_progress(),
    )
    print_either(
        options,
        lambda: {"check": checker.name, **rates.to_json(), "notes": notes},
        lambda: [*lines_of(checker, rates), *(f"note: {note}" for note in notes)],
    )
    return 0


def _run_checkpoint(options: argparse.Namespace) -> int:
    """Calibrate a trained system on a split, keep it with the checkpoint, show it."""
    _check(options)
    report, notes = _calibrated(options)
    files: list[Path] = []
    if options.out:
        from whenabouts.figures.confidence import write_report

        files = list(write_report(report, Path(options.out)))
    files = [report.confidence.save(options.checkpoint), *files]
    print_either(
        options,
        lambda: {**report.to_json(), "notes": notes, "files": [str(path) for path in files]},
        lambda: [*report.lines(), *notes, *(f"written: {path}" for path in files)],
    )
    return 0


def _check(options: argparse.Namespace) -> None:
    if not options.features:
        raise UsageError("--checkpoint needs --features DIR: the feature files of the split to calibrate on")
    if not Path(options.checkpoint).is_dir():
        raise UsageError(
            f"--checkpoint {options.checkpoint}: no such folder; a calibration is kept in the folder of a "
            "trained system"
        )
    if options.queries:
        raise UsageError("--queries are for a corpus; a checkpoint is calibrated on the queries of --split")
    if options.pools and options.pool_size is not None:
        raise UsageError(
            "--pool-size is of pools that are drawn; --pools names pools that there are: one of them"
        )
    if not 0 < options.iou <= 1:
        raise UsageError(f"--iou {options.iou}: accepted: a number above 0, at most 1")


def _calibrated(options: argparse.Namespace) -> tuple[TrainedReport, list[str]]:
    """The calibration, and notes on the pools."""
    from whenabouts import formats
    from whenabouts.models import staged
    from whenabouts.ranking.answerability import SplitSystem, measure_answerability, with_drawn_pools
    from whenabouts.ranking.calibration import calibrated
    from whenabouts.ranking.split import pooled_split
    from whenabouts.research.training.devices import open_device

    first, localizer = stages_named(options.checkpoint, None)
    how = SplitOptions(options.split, options.features, options.data, open_device(options.device).device)
    with ExitStack() as files:
        system = how.opened(files, localizer, options.experiment)
        retriever = None if first is None else how.retriever(files, first, system)
        if options.pools:
            pools = formats.read_annotations(options.pools)
        else:
            pools = with_drawn_pools(system.split.annotations, _pool_size(options), options.seed)
        split = pooled_split(system.split, pools)
        chooser = None
        if retriever is not None:
            chooser = SplitSystem.encoded(retriever.trained, split.beside(retriever.split))
        show = _progress()
        measured = measure_answerability(
            system.trained,
            split,
            iou=options.iou,
            seed=options.seed,
            retriever=chooser,
            progress=lambda done, of: show(done / of),
        )
    trained = system.trained
    report = calibrated(
        measured,
        staged.fingerprint_of(
            trained.fingerprint, None if retriever is None else retriever.trained.fingerprint
        ),
        trained.system if retriever is None else f"{retriever.trained.system} + {trained.system}",
        split=f"{options.split}, pools of {Path(options.pools).name}" if options.pools else options.split,
        iou=options.iou,
        method=options.method,
        definition=options.raw,
    )
    return report, _notes(options, pools)


def _notes(options: argparse.Namespace, pools: Annotations) -> list[str]:
    """What of the pools was not as asked, or odd."""
    if options.pools:
        return [f"{options.pools}: {what}: {times:,}" for what, times in pools.counts.items()]
    size, videos = _pool_size(options), len(pools.videos)
    if size <= videos:
        return []
    return [
        f"pools of {size:,} videos cannot be had: {options.split} has {videos:,}; all of them were in each "
        "pool"
    ]


def _pool_size(options: argparse.Namespace) -> int:
    """Videos in a pool that is drawn."""
    return POOL_SIZE if options.pool_size is None else int(options.pool_size)


def _progress() -> Any:
    """What tells people how far it is; nothing where nobody looks."""
    if not sys.stderr.isatty():
        return lambda share: None

    def tell(share: float) -> None:
        end = "\r\x1b[K" if share >= 1.0 else ""
        sys.stderr.write(f"\rasking {share:4.0%}{end}")
        sys.stderr.flush()

    return tell
