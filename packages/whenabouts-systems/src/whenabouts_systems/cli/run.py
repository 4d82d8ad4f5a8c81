"""`whenabouts run`: write a trained system's answers to the queries of a split, as a file to evaluate."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.options import add_force, add_format, add_verb
from whenabouts_systems.cli.options import add_split

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

The checkpoint determines which files of --features are read, and how spans become moments; options change it
for this run. See docs/running.md. exit codes: 0 written, 2 wrong use or bad input"""


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
    add_split(parser, required=True)
    add("--out", metavar="FILE", required=True, help="file to write: run.jsonl, or submission.json (TVR)")
    add_force(parser)
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
    _add_decoding(parser)
    add_format(parser)


def _add_retriever(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--retriever",
        metavar="RUN",
        help="another trained system that chooses the videos, or a run file that ranks them, or HERO's LMDB "
        "of lists (default: the staged run's retriever)",
    )
    add("--retriever-features", metavar="DIR", help="its feature files (default: --features)")
    add(
        "--retriever-scores",
        choices=("stored", "log"),
        default="stored",
        help="if --retriever is a file: use its scores unchanged (default), or their logarithms",
    )
    add(
        "--video-weight",
        metavar="W",
        type=float,
        help="weight of the video's score in a moment's score (default: the checkpoint's)",
    )
    add(
        "--segments",
        metavar="SECONDS",
        type=float,
        help="for long videos: the retriever chooses segments of this length, neighbouring ones are joined, "
        "and the localizer searches them with 8 s on both sides (SPR: 4)",
    )


def _add_decoding(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("decoding, in place of the checkpoint's settings")
    add = group.add_argument
    add(
        "--decoding",
        choices=("inclusive", "exclusive", "as-released"),
        help="whether the last clip of a span belongs to the moment",
    )
    add("--min-clips", metavar="N", type=int, help="shortest moment, in clips")
    add("--max-clips", metavar="N", help="longest moment, in clips; none for any length")
    add(
        "--top-videos", metavar="N", type=int, help="number of videos in which a query's moments are searched"
    )
    add("--spans", metavar="N", type=int, help="number of moments written for a query")
    add(
        "--nms",
        metavar="IOU",
        help="drop moments that overlap a better one of their video by more than this; or none "
        "(default: the checkpoint's; with --pools 0.5 if it has none)",
    )


def run(options: argparse.Namespace) -> int:
    """Answer the queries of the split and write the answers."""
    from whenabouts_systems.cli.work import run  # imports PyTorch

    return run.run(options)
