"""`whenabouts doctor`: what is installed and usable; why a moment was found or not. `cli.main` loads it."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.configuration import configuration_files
from whenabouts.cli.options import add_corpus, add_format, add_verb, keep_outer, open_corpus
from whenabouts.cli.terminal import print_either


def add_parser(verbs: Any) -> None:
    """Declare the verb and its inner verb `why`."""
    parser = add_verb(
        verbs,
        "doctor",
        run,
        description="Show what is installed and which encoders work offline. `doctor why` explains one "
        "answer.",
    )
    add_corpus(parser)
    add_format(parser)
    topics = parser.add_subparsers(dest="topic", metavar="why")
    why = topics.add_parser(
        "why",
        help="why a known moment was or was not found",
        description="Explain one answer step by step: the rank of the video, the moment found in it, and the "
        "moments that ranked higher.",
    )
    why.add_argument("query", metavar="QUERY", help="the query that was searched")
    why.add_argument("moment", metavar="VIDEO@START-END", help="the moment that should have been found")
    add_corpus(why)
    add_format(why)
    keep_outer(why)
    why.add_argument(
        "-k", type=int, default=10, metavar="N", help="length of the list that should contain it (default 10)"
    )
    why.set_defaults(run=run_why)


def run(options: argparse.Namespace) -> int:
    """Print the state of the installation, and of the corpus if one is named."""
    from whenabouts.diagnosis import examine

    report = examine(options.corpus, [] if options.no_config else configuration_files())
    print_either(options, report.to_json, report.lines)
    return 0 if report.healthy else 2


def run_why(options: argparse.Namespace) -> int:
    """Explain one answer. Returns 1 if the moment is not in the list."""
    from whenabouts.why import why

    answer = why(open_corpus(options), options.query, options.moment, options.k)
    print_either(options, answer.to_json, answer.lines)
    return 0 if answer.is_listed else 1
