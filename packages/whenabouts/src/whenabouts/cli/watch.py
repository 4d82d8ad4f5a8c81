"""`whenabouts watch`: index files as they appear, change or go in some folders."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from whenabouts.cli.options import (
    add_corpus,
    add_format,
    add_verb,
    open_corpus,
    print_json,
    print_lines,
    wants_json,
)
from whenabouts.extras import lacking
from whenabouts.types import UsageError

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
        description="Follow folders until stopped: files that appear, change, move or are deleted are "
        "indexed within seconds, as `index` did it; half-copied ones are waited for. A folder that is "
        "missing or empty takes nothing out.",
        epilog=_EPILOG,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help="folders")
    add_corpus(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Say what came of each change, until Ctrl-C."""
    try:
        import watchfiles  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(lacking(error) or str(error)) from error
    from whenabouts.watching import watch

    corpus = open_corpus(options)
    print(f"watching {', '.join(map(str, options.paths))}; Ctrl-C ends", file=sys.stderr, flush=True)
    for summary in watch(corpus, options.paths):
        if wants_json(options):
            print_json(summary.to_json())
        else:
            print_lines(summary.lines())
        sys.stdout.flush()
    return 0
