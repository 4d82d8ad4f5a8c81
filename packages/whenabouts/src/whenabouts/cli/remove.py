"""`whenabouts remove`: erase videos from a corpus; the files stay. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.options import add_cache, add_corpus, add_format, add_verb, add_wait, open_corpus
from whenabouts.cli.terminal import print_either, print_notes
from whenabouts.index.lance import is_remote
from whenabouts.types import UsageError, number_of
from whenabouts.video.files import with_home
from whenabouts.workplace.cached import cached_files


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "remove",
        run,
        description="Erase videos, or a stream of all videos, from a corpus. The files stay, and their "
        "paths are kept: until a file changes, `index` takes it again only with --again.",
    )
    parser.add_argument(
        "videos", nargs="*", metavar="VIDEO", help="id, file name or path of a video in the corpus"
    )
    parser.add_argument(
        "--stream", metavar="NAME", help="remove a whole stream from all videos for good, such as all faces"
    )
    add_cache(parser, "a server's folder, from which their thumbnails and clips are erased as well")
    add_corpus(parser)
    add_wait(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Remove videos or a stream, and print their names."""
    if bool(options.videos) == bool(options.stream):
        raise UsageError("what shall be removed? Give videos, or --stream NAME")
    corpus = open_corpus(options)
    if options.stream:
        corpus.remove_stream(options.stream, wait=options.wait)
        line = f"removed stream {options.stream} from all videos"
        print_either(options, lambda: {"removed_stream": options.stream}, lambda: [line])
        return 0
    corpus.cache = options.cache
    is_cache = options.cache is None or any(cached_files(with_home(options.cache)))
    removed = corpus.remove(*options.videos, wait=options.wait)
    ids = [video.id for video in removed]
    lines = [f"removed {video.id} ({video.path})" for video in removed]
    if collected := 0 if is_remote(corpus.places[0]) else corpus.collections.count_of(ids):
        lines.append(f"{number_of(collected, 'moment')} of collections still name what was removed")
    print_either(options, lambda: {"removed": ids, "collected": collected}, lambda: lines)
    print_notes([] if is_cache else [f"{options.cache} holds no files of `serve --cache`"])
    return 0
