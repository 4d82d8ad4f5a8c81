"""`whenabouts convert`: write judgements or a run in another format."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.options import add_force, add_format, add_verb
from whenabouts.cli.terminal import print_either
from whenabouts_bench.formats.conversion import convert


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "convert",
        run,
        description="Write judgements or a run in another format. The content of the file says what it "
        "holds and in which format; what the new format cannot say is reported. "
        "Names that end in .gz are compressed.",
    )
    parser.add_argument("source", metavar="IN", help="file of judgements or of a run")
    parser.add_argument(
        "target",
        metavar="OUT",
        help="file to write; a folder for all of our JSON lines (qrels, queries, ...)",
    )
    parser.add_argument(
        "--to",
        required=True,
        metavar="FORMAT",
        help="jsonl, trec, tvr, qvhighlights, tvr-ranking, or (judgements only) mvmr",
    )
    parser.add_argument(
        "--from", dest="from_", metavar="FORMAT", help="the format of IN (default: by content)"
    )
    parser.add_argument(
        "--truth", metavar="FILE", help="judgements a run answers: some formats carry their texts and videos"
    )
    add_force(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Convert the file; print the written parts, and those that the new format loses."""
    kept = {"from_": options.from_, "truth": options.truth, "force": options.force}
    done = convert(options.source, options.target, options.to, **kept)
    print_either(options, done.to_json, done.lines)
    return 0
