"""`whenabouts duplicates`: which parts of videos appear again in other videos. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.options import add_corpus, add_format, add_verb, open_corpus
from whenabouts.cli.terminal import print_either, print_notes
from whenabouts.duplicates import LEAST, copies, duplicates, frames_of
from whenabouts.index.records import unambiguous
from whenabouts.times import format_time
from whenabouts.types import Moment
from whenabouts.video.files import printable
from whenabouts.video.objects import source_path


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "duplicates",
        run,
        description="List files that are copies of an indexed one, and parts of videos that appear again in "
        "another video: cut, scaled or re-encoded. The parts need frames to compare (index --likeness).",
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
    """Print the copies and repeats. Returns 1 if nothing is found."""
    corpus = open_corpus(options)
    copied = copies(corpus, options.videos)
    can_compare = frames_of(corpus) is not None
    if copied and not can_compare:
        print_notes(["only whole files are compared; to compare parts, index with --likeness"])
    repeats = duplicates(corpus, options.videos, least=options.least) if can_compare or not copied else []
    lines = [f"{printable(source_path(path))}  is a copy of  {video_id}" for path, video_id in copied.items()]
    lines += [
        f"{_named(repeat.moment)}  is seen in  {_named(repeat.again)}  (alike by {repeat.similarity:.2f})"
        for repeat in repeats
    ]
    print_either(
        options,
        lambda: {
            "copies": [{"path": unambiguous(path), "copy_of": copied[path]} for path in copied],
            "repeats": [repeat.to_json() for repeat in repeats],
        },
        lambda: lines or ["nothing is seen again in another video"],
    )
    return 0 if lines else 1


def _named(moment: Moment) -> str:
    # By the id, because a copy often has the file name of its original.
    return f"{moment.video_id}@{format_time(moment.start)}-{format_time(moment.end)}"
