"""`whenabouts watch`: index files as they appear, change or go in some folders."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from whenabouts.cli.options import add_corpus, add_format, add_verb, open_corpus
from whenabouts.cli.terminal import for_terminal, print_json, print_lines, wants_json
from whenabouts.watching import watch

_EPILOG = """\
examples:
  whenabouts index ~/Videos --corpus my.corpus      (chooses what is indexed, such as pictures)
  whenabouts watch ~/Videos --corpus my.corpus"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "watch",
        run,
        description="Follow folders until Ctrl-C: the corpus follows within seconds when a file appears, "
        "changes, moves or is deleted. New files get the streams that the corpus has; half-copied ones are "
        "waited for. If a folder is missing or empty, perhaps for want of its disk, its videos stay.",
        epilog=_EPILOG,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help="folders")
    add_corpus(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Say what came of each change, until Ctrl-C."""
    import watchfiles  # noqa: F401 (where it is missing, say so before the corpus is opened)

    corpus = open_corpus(options)
    line = f"watching {', '.join(map(str, options.paths))}; Ctrl-C ends"
    print(for_terminal(line), file=sys.stderr, flush=True)
    for summary in watch(corpus, options.paths):
        if wants_json(options):
            print_json(summary.to_json())
        else:
            print_lines(summary.lines())
        sys.stdout.flush()
    return 0
