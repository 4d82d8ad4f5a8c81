"""The moments that `cut` and `export` take: from a search, a file of answers, a collection, or by name."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from whenabouts.cli.opened import add_narrowing, searched
from whenabouts.cli.options import add_corpus, add_places, add_repeated, open_corpus
from whenabouts.export.json import read_moments
from whenabouts.export.moments import (
    FileMoment,
    check_unchanged,
    moment_of_file,
    moment_of_record,
    moments_of_result,
)
from whenabouts.times import parse_moment
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.video.frame_times import frame_rate
from whenabouts.video.objects import source_path

if TYPE_CHECKING:
    from whenabouts.corpus import Corpus
    from whenabouts.index.records import VideoRecord

_TAKE_ALL = "--all-moments takes all"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The moments, and notes for the user, such as why there are none."""

    moments: list[FileMoment]
    notes: tuple[str, ...] = ()


def add_moments(parser: argparse.ArgumentParser, *, k: int) -> None:
    """Add QUERY with search options, --from, --moment and --collection, of which one must be given."""
    parser.add_argument("query", nargs="?", metavar="QUERY", help="what to look for, in your own words")
    add_corpus(parser)
    add_places(parser, k=k)
    parser.add_argument(
        "--from",
        dest="from_",
        metavar="FILE",
        help="take the moments from a file of `whenabouts search --json`",
    )
    what = "this moment of a video of the corpus, or of a file"
    add_repeated(parser, "--moment", "VIDEO@START-END", what)
    parser.add_argument("--collection", metavar="NAME", help="the moments of this collection, in order")
    parser.add_argument(
        "--unsure", action="store_true", help="take the best moments even if the search is unsure of them"
    )
    parser.add_argument(
        "--all-moments",
        action="store_true",
        help="take all moments that the search lists (default: only those that match)",
    )
    add_narrowing(parser)


def chosen_moments(options: argparse.Namespace) -> Chosen:
    """The moments to take. Raises UsageError unless exactly one source is given."""
    ways = [
        options.query is not None or options.like is not None,
        options.from_ is not None,
        bool(options.moment),
        options.collection is not None,
    ]
    if sum(ways) != 1:
        raise UsageError(
            'which moments? Give one of "QUERY" (or --like), --from FILE, --moment VIDEO@START-END or '
            "--collection NAME"
        )
    if options.from_ is not None:
        return _from_file(options)
    if options.moment:
        corpus = open_corpus(options) if options.corpus else None
        return Chosen([_named_moment(corpus, moment, rank) for rank, moment in enumerate(options.moment, 1)])
    return _searched(options) if options.collection is None else _collected(options)


def _searched(options: argparse.Namespace) -> Chosen:
    result = searched(options)
    notes = [*filter(None, [result.understood_line]), *result.notes]
    notes += [f"not sure: {result.doubt}"] if result.doubt else []
    is_all = options.all_moments
    if not result.moments or (result.answer == "no_match" and not is_all):
        closest = f"; `whenabouts search` shows the closest, {_TAKE_ALL}" if result.moments else ""
        return Chosen([], (*notes, f"no match, so nothing was written{closest}"))
    if result.answer == "unsure" and not (options.unsure or is_all):
        remedy = f"see `whenabouts search`; --unsure takes the best anyway, {_TAKE_ALL}"
        return Chosen([], (*notes, f"so nothing was written; {remedy}"))
    chosen = result.moments if is_all else result.matched
    if len(chosen) < len(result.moments):
        notes.append(f"{len(chosen)} of {len(result.moments)} moments matched; {_TAKE_ALL}")
    check_unchanged(*(result.videos[scored.moment.video_id] for scored in chosen))
    return Chosen(moments_of_result(result, all_moments=is_all), tuple(notes))


def _from_file(options: argparse.Namespace) -> Chosen:
    moments = read_moments(options.from_, all_moments=options.all_moments)
    if not moments:
        return Chosen([], (f"{options.from_}: no match, so nothing was written; {_TAKE_ALL}",))
    if options.corpus:
        corpus = open_corpus(options)
        records = []
        for moment in moments:
            with contextlib.suppress(UsageError):  # from another corpus, or a plain file
                records.append(corpus.resolve(moment.path))
        check_unchanged(*records)
    return Chosen(moments)


def _collected(options: argparse.Namespace) -> Chosen:
    corpus = open_corpus(options)
    items = corpus.collections.get(options.collection).items
    moments, missing = corpus.moments_of(items)
    check_unchanged(*corpus.resolve_all(moment.video_id for moment in moments))
    empty = () if moments else (f"{options.collection!r} has no moment to take",)
    return Chosen(moments, (*missing, *empty))


def _named_moment(corpus: Corpus | None, moment: str, rank: int) -> FileMoment:
    def rate_of(video: str) -> Fraction | None:
        place = _video(corpus, video)
        return frame_rate(place if isinstance(place, Path) else source_path(place.path))

    name, start, end = parse_moment(moment, rate_of)
    video = _video(corpus, name)
    if isinstance(video, Path):
        return moment_of_file(video, start, end, rank)
    video.check_start(start)
    check_unchanged(video)
    return moment_of_record(video, start, end, rank)


def _video(corpus: Corpus | None, name: str) -> VideoRecord | Path:
    """A video of the corpus, or a file outside it."""
    place = source_path(name)
    if corpus is not None:
        try:
            return corpus.resolve(name)
        except WhenaboutsError:
            if not place.is_file():
                raise
    elif not place.exists():
        raise UsageError(
            f"{name!r}: there is no such file; check the path, or give --corpus DIR if it is a video there"
        )
    return place
