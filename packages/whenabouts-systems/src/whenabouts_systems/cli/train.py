"""`whenabouts train`: train a system as an experiment file says."""

from __future__ import annotations

import argparse
import os
from typing import Any

from whenabouts.cli.options import add_format, add_verb
from whenabouts_systems.cli.options import add_device

_EPILOG = """\
examples:
  whenabouts train charades_sta/xml --features features --data annotations --out run
  whenabouts train my.toml --features features --out run --set training.epochs=3 --set model.hidden=64
  whenabouts train my.toml --features features --out run --resume        after Ctrl-C or a crash
  whenabouts train my.toml --features features --out runs --seeds 1,2,3  mean and deviation
  whenabouts train tvr/prem --features features --out run  two stages, one after the other

The folder of --out then holds the best system (whenabouts run --checkpoint, whenabouts search --model), all
settings, the curves, and the answers in validation with each query's values; with --seeds a folder seed-N
has them for each seed, with stages a folder for each stage. See docs/training.md.
exit codes: 0 trained, 2 wrong use, bad input (reported before the first step) or a fault of the training"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "train",
        run,
        description="Train a system with the settings of an experiment, a TOML file.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "experiment",
        metavar="EXPERIMENT",
        help="the experiment: a TOML file, or the name of one that is shipped, such as tvr/xml",
    )
    parser.add_argument("--features", metavar="DIR", required=True, help="folder of the feature files")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder of the run; made if missing")
    parser.add_argument(
        "--data", metavar="DIR", help="folder of the annotations (default: that in [data], else --features)"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="another value for a setting, such as training.epochs=3 (with stages also "
        "prem_localizer.training.epochs=3); may be repeated",
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue the training in --out that was stopped"
    )
    parser.add_argument(
        "--seeds", metavar="N,N,…", help="one training for each seed; show mean and deviation"
    )
    add_device(parser)
    parser.add_argument(
        "--processes",
        metavar="N",
        type=int,
        default=1,
        help="divide each batch among N devices, or on the CPU among N processes (needs lightning-fabric)",
    )
    parser.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        help="type of numbers in the networks (default: the experiment's)",
    )
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Train the system and show the results."""
    # PyTorch's threads wait for one another by spinning for some ms, which on a busy machine takes most of a
    # small step. GCC's library spins 1,000 turns if it knows of more threads than processors.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    from whenabouts_systems.cli.work import train  # imports PyTorch

    return train.run(options)
