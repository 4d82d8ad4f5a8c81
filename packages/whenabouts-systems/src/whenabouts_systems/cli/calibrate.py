"""`whenabouts calibrate --checkpoint`: measure how often a trained system's answers are wrong."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.options import add_seed
from whenabouts.types import UsageError
from whenabouts_systems.cli.options import add_split

_EXAMPLES = """

  whenabouts calibrate --checkpoint runs/xml --features features
  whenabouts calibrate --checkpoint runs/xml --features features --pools pools.json --out figures
the calibration of a checkpoint is kept in its folder; `search --model` and `run --confidence` use it"""

_USUAL: dict[str, Any] = {
    **dict.fromkeys(("features", "data", "experiment", "pools", "pool_size", "method")),
    "split": "validation",
    "raw": "margin",
    "iou": 0.5,
}
"""The options that only a checkpoint has, with their defaults."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of a trained system."""
    parser.epilog = (parser.epilog or "") + _EXAMPLES
    group = parser.add_argument_group("a trained system, in place of a corpus")
    add = group.add_argument
    add(
        "--checkpoint",
        metavar="RUN",
        help="folder of a trained system or of a staged run, whose answers are calibrated",
    )
    add_split(group, usual=_USUAL["split"])
    add(
        "--pools", metavar="FILE", help="pools of the split's queries: an MVMR file (`whenabouts build mvmr`)"
    )
    add(
        "--pool-size",
        metavar="N",
        type=int,
        help="without --pools: number of videos drawn for each query (default: 50)",
    )
    add(
        "--method",
        choices=("temperature", "isotonic"),
        help="the curve from --raw to confidence (default: isotonic from 1,000 answers on, else temperature)",
    )
    add(
        "--raw",
        choices=("margin", "top"),
        default=_USUAL["raw"],
        help="the number that becomes confidence: how far the best moment scores above chance (margin, "
        "the default), or its score (top)",
    )
    add(
        "--iou",
        metavar="IOU",
        type=float,
        default=_USUAL["iou"],
        help="how much a first moment must share with a true one to be right (default: 0.5)",
    )
    add_seed(group)


def run(options: argparse.Namespace) -> int | None:
    """Calibrate a trained system; None without --checkpoint, which leaves the work to the verb."""
    if options.checkpoint:
        from whenabouts_systems.cli.work import calibrate  # imports PyTorch

        return calibrate.run(options)
    for name, usual in _USUAL.items():
        if getattr(options, name) != usual and name not in options.from_files:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} is for the calibration of a --checkpoint, which is missing")
    return None
