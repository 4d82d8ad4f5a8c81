"""`whenabouts duplicates`: which parts of videos appear again in other videos. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.options import add_corpus, add_format, add_verb, open_corpus
from whenabouts.cli.terminal import print_either
from whenabouts.duplicates import LEAST, duplicates
from whenabouts.times import format_time
from whenabouts.types import Moment


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "duplicates",
        run,
        description="Find parts of videos that appear again in another video: copied, cut, scaled or "
        "re-encoded. Needs frames to compare (index --likeness).",
    )
    parser.add_argument(
        "videos", nargs="*", metavar="VIDEO", help="look only for these videos (default: all)"
    )
    add_corpus(parser)
    parser.add_argument(
        "--least",
        type=float,
        default=LEAST,
        metavar="C",
        help="cosine from which two frames count as the same (default: 0.7, see docs/likeness.md)",
    )
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Print the repeats. Returns 1 if there are none."""
    corpus = open_corpus(options)
    repeats = duplicates(corpus, options.videos, least=options.least)
    lines = [
        f"{_named(repeat.moment)}  is seen in  {_named(repeat.again)}  (alike by {repeat.similarity:.2f})"
        for repeat in repeats
    ] or ["nothing is seen again in another video"]
    print_either(options, lambda: {"repeats": [repeat.to_json() for repeat in repeats]}, lambda: lines)
    return 0 if repeats else 1


def _named(moment: Moment) -> str:
    # By the id, because a copy often has the file name of its original.
    return f"{moment.video_id}@{format_time(moment.start)}-{format_time(moment.end)}"
