"""`whenabouts show`: the facts and words of a video or moment. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.options import add_corpus, add_format, add_verb, add_where, open_corpus
from whenabouts.cli.terminal import print_either
from whenabouts.search.coverage import streams_with_clips
from whenabouts.shown import indexed_at
from whenabouts.times import format_time
from whenabouts.types import Video


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "show",
        run,
        description="Show a video's record, words and shots, or those of a moment, VIDEO@START-END.",
    )
    parser.add_argument("what", nargs="?", metavar="VIDEO[@START-END]", help="without it: list all videos")
    parser.add_argument(
        "--language", metavar="CODE", help="the words of the subtitles in this language, such as de"
    )
    add_where(parser)
    parser.add_argument(
        "--sort",
        choices=("id", "name", "date", "length", "added"),
        default="id",
        help="order of the list; the newest, longest or last added first (default: id)",
    )
    add_corpus(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Print the list, one video, or one moment."""
    corpus = open_corpus(options)
    if options.what is None:
        return _list(corpus, options)
    shown = corpus.show(options.what, options.language)
    print_either(options, shown.to_json, shown.lines)
    return 0


def _list(corpus: Any, options: argparse.Namespace) -> int:
    newest_first = options.sort in ("date", "length", "added")
    videos = corpus.videos(where=options.where, sort=options.sort, descending=newest_first)
    records = {record.video_id: record for record in corpus.records()}
    gone = {name for name, record in records.items() if record.is_gone}

    def document() -> list[dict[str, Any]]:
        streams = streams_with_clips(corpus.store, list(records.values()))
        return [
            {
                "video_id": v.id,
                "duration": v.duration,
                "path": v.path,
                "metadata": dict(v.metadata),
                "gone": v.id in gone,
                "streams_indexed_at": indexed_at(records[v.id], streams[v.id]),
            }
            for v in videos
        ]

    print_either(
        options, document, lambda: (_row(video) + "  (gone)" * (video.id in gone) for video in videos)
    )
    return 0 if videos else 1


def _row(video: Video) -> str:
    length = "?" if video.duration is None else format_time(video.duration)
    return f"{length:>12}  {video.id}  {video.path}"
