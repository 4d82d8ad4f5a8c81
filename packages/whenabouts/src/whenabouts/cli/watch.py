"""`whenabouts watch`: keep a corpus up to date with some folders. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

from whenabouts.cli.options import WORDS_OPTIONS, add_corpus, add_format, add_verb, add_words, open_corpus
from whenabouts.cli.terminal import for_terminal, print_either
from whenabouts.watching import watch

_EPILOG = """\
examples:
  whenabouts index ~/Videos --corpus my.corpus      (once, to choose what is indexed)
  whenabouts watch ~/Videos --corpus my.corpus"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "watch",
        run,
        description="Follow folders until Ctrl-C: seconds after a file appears, changes, moves or is "
        "deleted, the corpus is updated. New files get the streams of the corpus. Speech is recognised with "
        "--transcribe, or if it was for most files without subtitles. A file is read once it has been copied "
        "whole. If a folder is missing or empty, its videos stay: its disk may not be mounted.",
        epilog=_EPILOG,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help="folders")
    add_corpus(parser)
    add_words(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Print the result of each change, until Ctrl-C."""
    # A missing package is reported before the corpus is opened.
    import watchfiles  # noqa: F401

    corpus, words = open_corpus(options), {name: getattr(options, name) for name in WORDS_OPTIONS}
    line = f"watching {', '.join(map(str, options.paths))}; press Ctrl-C to stop"
    print(for_terminal(line), file=sys.stderr, flush=True)
    # Ctrl-C is how it ends, whether it waits, indexes or prints.
    with contextlib.suppress(KeyboardInterrupt):
        for summary in watch(corpus, options.paths, **words):
            print_either(options, summary.to_json, summary.lines)
            sys.stdout.flush()
    print("stopped; run the same command to go on watching", file=sys.stderr)
    return 0
