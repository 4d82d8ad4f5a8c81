"""`whenabouts calibrate --checkpoint`: calibrate a trained system on a split."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from whenabouts.cli.terminal import counting_bar, print_either
from whenabouts.types import UsageError
from whenabouts_bench import formats
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_systems.cli.splits import SplitOptions, stages_named
from whenabouts_systems.models import staged
from whenabouts_systems.ranking.answerability import SplitSystem, measure_answerability, with_drawn_pools
from whenabouts_systems.ranking.calibration import TrainedReport, calibrated
from whenabouts_systems.ranking.confidence_figures import write_report
from whenabouts_systems.ranking.split import pooled_split
from whenabouts_systems.training.devices import open_device

_POOL_SIZE = 50
"""Videos in a drawn pool by default, as in MVMR."""


def run(options: argparse.Namespace) -> int:
    """Calibrate a trained system on a split; write the calibration to the checkpoint's folder and show it."""
    _check(options)
    report, notes = _calibrated(options)
    files = [report.confidence.save(options.checkpoint)]  # first: a fault of --out must not lose it
    if options.out:
        files += write_report(report, Path(options.out))
    print_either(
        options,
        lambda: {**report.to_json(), "notes": notes, "files": [str(path) for path in files]},
        lambda: [*report.lines(), *notes, *(f"written: {path}" for path in files)],
    )
    return 0


def _check(options: argparse.Namespace) -> None:
    if not options.features:
        raise UsageError("--checkpoint needs --features DIR: the feature files of the split to calibrate on")
    if not Path(options.checkpoint).expanduser().is_dir():
        raise UsageError(
            f"--checkpoint {options.checkpoint}: no such folder; a calibration is kept in the folder of a "
            "trained system"
        )
    if any(getattr(options, name) and name not in options.from_files for name in ("queries", "check")):
        raise UsageError(
            "--queries and --check are for a corpus; a checkpoint is calibrated on the queries of --split"
        )
    if options.pools and options.pool_size is not None:
        raise UsageError(
            "--pool-size is for pools that are drawn; leave it out, or --pools, which names a file of pools"
        )
    if not 0 < options.iou <= 1:
        raise UsageError(f"--iou {options.iou}: accepted: a number above 0, at most 1")


def _calibrated(options: argparse.Namespace) -> tuple[TrainedReport, list[str]]:
    """The calibration, and notes on the pools."""
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
        with counting_bar("queries") as show:
            measured = measure_answerability(
                system.trained,
                split,
                iou=options.iou,
                seed=options.seed,
                retriever=chooser,
                progress=show,
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
    """Notes on pools that differ from what was asked for, or are unusual."""
    if options.pools:
        return [f"{options.pools}: {what}: {times:,}" for what, times in pools.counts.items()]
    size, videos = _pool_size(options), len(pools.videos)
    if size <= videos:
        return []
    return [
        f"pools of {size:,} videos are impossible: {options.split} has {videos:,}, and each pool held all"
    ]


def _pool_size(options: argparse.Namespace) -> int:
    return _POOL_SIZE if options.pool_size is None else int(options.pool_size)
