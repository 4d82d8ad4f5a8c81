"""`whenabouts search --highlights`: show the parts of a video that are most worth seeing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from whenabouts.cli.opened import encoded_with
from whenabouts.cli.options import open_corpus
from whenabouts.cli.terminal import print_either, print_notes
from whenabouts.times import format_time
from whenabouts.types import UsageError, number_of
from whenabouts.video.aside import check_free

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whenabouts_systems.highlights import Highlights

_OTHERS = (
    "queries", "stream", "like", "all", "skip", "min_confidence", "after", "before", "where", "retriever",
    "segments", "literal", "check", "rerank", "rewrite",
)  # fmt: skip


_EXAMPLE = """
the best moments of a video without a question, and its highlight curve:
  whenabouts search --highlights --within holiday.mp4 --corpus my.corpus --model qd -k 5 --out curve.csv"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add --highlights to `whenabouts search`."""
    parser.epilog = (parser.epilog or "") + _EXAMPLE
    parser.add_argument(
        "--highlights",
        action="store_true",
        help="the parts of --within (one video) most worth seeing, with or without a QUERY, by the saliency "
        "of --model (a system that finds windows, such as qd_detr)",
    )


def run(options: argparse.Namespace) -> int | None:
    """Show the highlights of a video, and write their curve; None without the option."""
    if not options.highlights:
        return None
    from whenabouts_systems.highlights import highlights_of

    if options.model is None or len(options.within) != 1:
        raise UsageError(
            "--highlights are of one video, by a trained system: give --within VIDEO --model RUN"
        )
    others = [f"--{name.replace('_', '-')}" for name in _OTHERS if getattr(options, name)]
    if others:
        raise UsageError(f"--highlights are of one whole video and take no {', '.join(others)}")
    if options.out is not None and Path(options.out).suffix.lower() != ".csv":
        raise UsageError(
            f"--out {options.out}: the curve is written as CSV; name a file that ends in .csv (--json "
            "prints it as JSON)"
        )
    if options.out is not None:
        check_free(Path(options.out), force=options.force)
    corpus = open_corpus(options)
    encoded_with(corpus, options.model)
    k = options.best if options.k is None else options.k
    highlights = highlights_of(corpus, options.within[0], options.model, options.query or "", k)
    if options.out is not None:
        highlights.write_csv(Path(options.out))
    print_either(options, highlights.to_json, lambda: _lines(highlights, options.within[0], options.out))
    print_notes(highlights.notes)
    return 0


def _lines(highlights: Highlights, video: str, out: str | None) -> Iterator[str]:
    for rank, moment in enumerate(highlights.moments, 1):
        span = f"{format_time(moment.start)} - {format_time(moment.end)}"
        yield f"{rank:>3}  {video}  {span}  {moment.score:.3f}"
    if out is not None:
        yield f"{out}: the curve, {number_of(len(highlights.start), 'clip')}"
