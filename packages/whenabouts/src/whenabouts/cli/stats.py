"""`whenabouts stats`: what a corpus holds and how much room it takes."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.options import add_corpus, add_format, add_verb, open_corpus
from whenabouts.cli.terminal import print_either


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "stats",
        run,
        description="Videos, hours, streams and their encoders, disk, and the files that failed.",
    )
    add_corpus(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Show the numbers."""
    stats = open_corpus(options).stats()
    print_either(options, stats.to_json, stats.lines)
    return 0
