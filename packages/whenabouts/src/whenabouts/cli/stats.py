"""`whenabouts stats`: what a corpus contains and how much disk it takes. Loaded by `cli.main`."""

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
        description="Show videos, hours, streams with their encoders, disk space, and failed files.",
    )
    add_corpus(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Print the statistics."""
    stats = open_corpus(options).stats()
    print_either(options, stats.to_json, stats.lines)
    return 0
