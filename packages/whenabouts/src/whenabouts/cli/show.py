"""`whenabouts show`: what is known of a video or a moment."""

from __future__ import annotations

import argparse
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
from whenabouts.times import format_time
from whenabouts.types import Video


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "show",
        run,
        description="A video's record, its words and its shots; or of one moment, VIDEO@START-END.",
    )
    parser.add_argument("what", nargs="?", metavar="VIDEO[@START-END]", help="without it: list all videos")
    parser.add_argument(
        "--language", metavar="CODE", help="the words of the subtitles in this language, such as de"
    )
    add_corpus(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Show the list, one video, or one moment."""
    corpus = open_corpus(options)
    if options.what is None:
        return _list(corpus, options)
    shown = corpus.show(options.what, options.language)
    if wants_json(options):
        print_json(shown.to_json())
        return 0
    print_lines(shown.lines())
    return 0


def _list(corpus: Any, options: argparse.Namespace) -> int:
    from whenabouts.index.absent import is_gone

    videos = corpus.videos()
    gone = {record.video_id for record in corpus.records() if is_gone(record)}
    if wants_json(options):
        print_json(
            [
                {
                    "video_id": v.id,
                    "duration": v.duration,
                    "path": v.path,
                    "metadata": dict(v.metadata),
                    "gone": v.id in gone,
                }
                for v in videos
            ]
        )
        return 0 if videos else 1
    print_lines(_row(video) + "  (gone)" * (video.id in gone) for video in videos)
    return 0 if videos else 1


def _row(video: Video) -> str:
    length = "?" if video.duration is None else format_time(video.duration)
    return f"{length:>12}  {video.id}  {video.path}"
