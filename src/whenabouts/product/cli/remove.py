"""`whenabouts remove`: take videos out of a corpus; the files themselves are left alone."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.product.cli.options import add_corpus, add_format, add_verb, open_corpus, print_either


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "remove",
        run,
        description="Take videos out of a corpus by id, name or path. The files themselves are left alone; "
        "`index` takes them again only with --again.",
    )
    parser.add_argument(
        "videos", nargs="+", metavar="VIDEO", help="id, file name or path of a video in the corpus"
    )
    add_corpus(parser)
    parser.add_argument("--wait", action="store_true", help="wait while an indexer works on this corpus")
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Remove and say what was removed."""
    removed = open_corpus(options).remove(*options.videos, wait=options.wait)
    print_either(
        options,
        lambda: {"removed": [video.id for video in removed]},
        lambda: (f"removed {video.id} ({video.path})" for video in removed),
    )
    return 0
