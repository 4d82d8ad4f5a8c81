"""Which moments a command takes away: those of a search, of a file of answers, or named one by one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whenabouts.cli.options import add_corpus, console, for_terminal, open_corpus, searched
from whenabouts.types import UsageError, WhenaboutsError

if TYPE_CHECKING:
    from whenabouts.corpus import Corpus
    from whenabouts.export.clip import Clip


@dataclass(frozen=True, slots=True)
class Chosen:
    """The moments, and what is to be told of how they were found; none of them means no match."""

    clips: list[Clip]
    notes: tuple[str, ...] = ()


def add_moments(parser: argparse.ArgumentParser, *, k: int) -> None:
    """QUERY with the options of a search, --from and --moment: one of the three."""
    parser.add_argument("query", nargs="?", metavar="QUERY", help="what to look for, in your own words")
    add_corpus(parser)
    parser.add_argument("-k", type=int, default=k, metavar="N", help=f"at most so many moments (default {k})")
    parser.add_argument(
        "--from", dest="from_", metavar="FILE", help="the moments that `whenabouts search --json` printed"
    )
    parser.add_argument(
        "--moment",
        action="append",
        default=[],
        metavar="VIDEO@START-END",
        help="this moment of a video of the corpus or of a file (repeat for more)",
    )
    parser.add_argument("--within", action="append", default=[], metavar="VIDEO", help="as in search")
    parser.add_argument("--stream", action="append", default=[], metavar="NAME", help="as in search")
    parser.add_argument("--min-confidence", type=float, default=0.0, metavar="C", help="as in search")
    parser.add_argument("--after", metavar="DATE", help="as in search")
    parser.add_argument("--before", metavar="DATE", help="as in search")
    parser.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help="as in search")


def chosen_moments(options: argparse.Namespace) -> Chosen:
    """The moments that were asked for. Raises UsageError unless exactly one way was used."""
    ways = [options.query is not None, options.from_ is not None, bool(options.moment)]
    if sum(ways) != 1:
        raise UsageError('which moments? Give one of "QUERY", --from FILE, or --moment VIDEO@START-END')
    if options.from_ is not None:
        return _from_file(options)
    if options.moment:
        return Chosen(_named(options))
    return _searched(options)


def _searched(options: argparse.Namespace) -> Chosen:
    from whenabouts.export.gather import check_unchanged, clips_of_result

    result = searched(options)
    notes = [*result.notes, *([f"not sure: {result.doubt}"] if result.doubt else [])]
    if result.answer == "no_match":
        closest = "; `whenabouts search` shows the closest" if result.moments else ""
        return Chosen([], (*notes, f"no match, so nothing was written{closest}"))
    for found in result.moments:
        check_unchanged(result.videos[found.moment.video_id])
    return Chosen(clips_of_result(result), tuple(notes))


def _from_file(options: argparse.Namespace) -> Chosen:
    from whenabouts.export.gather import check_unchanged, clips_of_json

    clips = clips_of_json(options.from_)
    if options.corpus:
        corpus = open_corpus(options)
        for clip in clips:
            try:
                record = corpus.resolve(clip.path)
            except UsageError:
                continue  # of another corpus, or of none
            check_unchanged(record)
    return Chosen(clips)


def _named(options: argparse.Namespace) -> list[Clip]:
    corpus = open_corpus(options) if options.corpus else None
    return [_one(corpus, moment, rank) for rank, moment in enumerate(options.moment, 1)]


def _one(corpus: Corpus | None, moment: str, rank: int) -> Clip:
    from whenabouts.export.gather import check_unchanged, clip_of_file, clip_of_moment
    from whenabouts.times import parse_moment

    video, start, end = parse_moment(moment)
    if corpus is None:
        if not Path(video).exists():
            raise UsageError(
                f"{video!r}: there is no such file; check the path, "
                "or give --corpus DIR to name a video of it"
            )
        return clip_of_file(video, start, end, rank)
    try:
        record = corpus.resolve(video)
    except WhenaboutsError:
        if Path(video).is_file():
            return clip_of_file(video, start, end, rank)
        raise
    check_unchanged(record)
    return clip_of_moment(record, start, end, rank)


def tell_notes(notes: Iterable[str]) -> None:
    """Say each note once, on standard error."""
    out = console(sys.stderr)
    for note in dict.fromkeys(notes):
        out.print(for_terminal(f"note: {note}"), style="dim", markup=False, soft_wrap=True)
