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
        metavar="C",
        help="cosine from which two frames count as the same (default: 0.7, see docs/likeness.md)",
    )
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Print the repeats. Returns 1 if there are none."""
    corpus = open_corpus(options)
    least = LEAST if options.least is None else options.least
    repeats = duplicates(corpus, options.videos, least=least)
    names = {record.video_id: record.path.rsplit("/", 1)[-1] for record in corpus.records()}

    def lines() -> list[str]:
        rows = [
            f"{_named(names, repeat.moment)}  is seen in  {_named(names, repeat.again)}"
            f"  (alike by {repeat.similarity:.2f})"
            for repeat in repeats
        ]
        return rows or ["nothing is seen again in another video"]

    print_either(options, lambda: {"repeats": [repeat.to_json() for repeat in repeats]}, lines)
    return 0 if repeats else 1


def _named(names: dict[str, str], moment: Moment) -> str:
    name = names.get(moment.video_id) or moment.video_id
    return f"{name}@{format_time(moment.start)}-{format_time(moment.end)}"
