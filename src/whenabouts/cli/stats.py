"""`whenabouts stats`: what a corpus holds and how much room it takes."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.options import add_corpus, add_format, open_corpus, print_json, print_lines, wants_json


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "stats",
        help="what a corpus holds",
        description="Videos, hours, streams and their encoders, disk, and the files that failed.",
    )
    add_corpus(parser)
    add_format(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the numbers."""
    stats = open_corpus(options).stats()
    if wants_json(options):
        print_json(stats.to_json())
    else:
        print_lines(stats.lines())
    return 0
