"""`whenabouts import-checkpoint`: convert a checkpoint of a released program into a trained system."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from whenabouts.cli.options import add_format, add_verb
from whenabouts.cli.terminal import print_json, print_lines, wants_json
from whenabouts.types import UsageError

_EPILOG = """\
examples:
  whenabouts import-checkpoint xml results/tvr-video_sub/model.ckpt --out xml-released
  whenabouts import-checkpoint mmn charades.pth --dataset charades --out mmn
  whenabouts import-checkpoint reloclnet model.ckpt --heads 8 --encoder query=my-bert --out reloclnet"""

_CLIP_HELP = "seconds of a clip (default: from the file, else 1.5; DETR family 2.0; mmn from --dataset)"


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "import-checkpoint",
        run,
        description="Read a checkpoint that a released program wrote and make the folder of a trained system "
        "that computes the same. No code in the file is run: only tensors and plain settings are read. "
        "Settings come from the tensors' shapes, from the file, and from the opt.json in its folder.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "program",
        metavar="PROGRAM",
        help="xml, reloclnet, mmn (also for CroCs), moment_detr, …; docs/importing.md lists all",
    )
    parser.add_argument("file", metavar="FILE", help="the checkpoint (model.ckpt)")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder to make")
    parser.add_argument(
        "--opt", metavar="FILE", help="the program's options (default: opt.json in FILE's folder)"
    )
    parser.add_argument("--heads", type=int, metavar="N", help="attention heads (default: from the file)")
    parser.add_argument("--clip-seconds", type=float, metavar="S", help=_CLIP_HELP)
    parser.add_argument(
        "--tef",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="the last two columns of each stream are a clip's start and end",
    )
    parser.add_argument(
        "--encoder",
        metavar="NAME=ENCODER",
        action="append",
        default=[],
        help="encoder of the features of NAME: query, video or sub (DETR family: query, vision or motion); "
        "may be repeated",
    )
    parser.add_argument(
        "--stream",
        metavar="NAME=WIDTH",
        action="append",
        default=[],
        help="DETR family: name and width of a stream of the features; repeat for each, in the order of "
        "their columns (default: from the file's v_feat_dirs, else guessed from the width)",
    )
    parser.add_argument(
        "--dataset", metavar="NAME", default="", help="mmn: its training data: charades, activitynet or tacos"
    )
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Import, write the folder, and print a summary."""
    from whenabouts_systems.released import importing, settings  # these import PyTorch

    out = Path(options.out)
    importing.check_free(out)
    encoders = _pairs("--encoder", options.encoder, ".+", "NAME=ENCODER, such as query=all-MiniLM-L6-v2")
    widths = _pairs("--stream", options.stream, "[1-9][0-9]{0,6}", "NAME=WIDTH, such as vision=512")
    given_streams = {name: int(width) for name, width in widths.items()}
    overrides = settings.Overrides(
        options.heads, options.clip_seconds, options.tef, encoders, options.dataset, given_streams
    )
    opt = Path(options.opt) if options.opt else None
    imported = importing.import_checkpoint(options.program, Path(options.file), overrides, opt)
    imported.write(out)
    report = {**imported.to_json(), "out": str(out)}
    if wants_json(options):
        print_json(report)
    else:
        guessed = [f"guessed: {setting}" for setting in imported.guessed]
        streams = ", ".join(f"{name} ({width})" for name, width in report["streams"].items())
        print_lines(
            [f"{out}: {report['system']}, {report['parameters']:,} parameters, streams {streams}", *guessed]
        )
    return 0


def _pairs(option: str, given: list[str], values: str, accepted: str) -> dict[str, str]:
    """The NAME=VALUE of a repeated option; `values` is a regular expression for VALUE."""
    pairs: dict[str, str] = {}
    for pair in given:
        name, _, value = pair.partition("=")
        if not (name and re.fullmatch(values, value)):
            raise UsageError(f"{option} {pair!r}: give {accepted}")
        if name in pairs:
            raise UsageError(f"{option}: {name} is given twice")
        pairs[name] = value
    return pairs
