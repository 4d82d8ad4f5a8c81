"""`whenabouts export`: moments as a list for editors, players and scripts."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from whenabouts.cli.moments import add_moments, chosen_moments
from whenabouts.cli.options import add_force, add_verb, for_terminal, print_notes
from whenabouts.types import number_of

_EPILOG = """\
examples:
  whenabouts export "a red flower opens" --corpus my.corpus -k 5 --out flowers.edl
  whenabouts export --from results.json --format fcpxml --out film.fcpxml
  whenabouts export --moment friday.mp4@0:01-0:03.5 --corpus my.corpus --format csv
  whenabouts export "sunset" --corpus my.corpus --out sunset.edl --start-timecode '10:00:00;00'"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    from whenabouts.export import format_names

    parser = add_verb(
        verbs,
        "export",
        run,
        description="Write moments as a list for editors, players and scripts, exact to the frame.",
        epilog=_EPILOG,
    )
    add_moments(parser, k=5)
    parser.add_argument(
        "--format",
        metavar="NAME",
        help=f"{', '.join(format_names())} (default: the suffix of --out tells)",
    )
    parser.add_argument("--out", metavar="FILE", help="file to write (default: standard output)")
    add_force(parser)
    parser.add_argument(
        "--rate", metavar="FPS", help="frames a second of the time line (default: the first moment's file)"
    )
    parser.add_argument(
        "--start-timecode",
        metavar="HH:MM:SS:FF",
        help="where the time line begins (default 01:00:00:00); ; before the frames means drop-frame",
    )
    drop = parser.add_mutually_exclusive_group()
    drop.add_argument(
        "--drop-frame",
        action="store_true",
        default=None,
        help="count 29.97 so that the clock is right (default)",
    )
    drop.add_argument(
        "--non-drop-frame", dest="drop_frame", action="store_false", help="count every number at 29.97"
    )
    parser.add_argument("--title", metavar="TEXT", help="name of the list (default: the question)")


def run(options: argparse.Namespace) -> int:
    """Write the list; 0 with moments, 1 without."""
    from whenabouts import export

    out = None if options.out in (None, "-") else options.out
    export.format_of(options.format, out)  # an unknown format is refused before anything is searched
    chosen = chosen_moments(options)
    if not chosen.moments:
        print_notes(chosen.notes)
        return 1
    how = _options(options, chosen.moments[0].query)
    if out is None:
        data, notes = export.render(chosen.moments, options.format, how)
        _to_standard_output(data)
    else:
        notes = export.write(chosen.moments, out, options.format, how, force=options.force)
        count = len(chosen.moments)
        print(for_terminal(f"{out}: {number_of(count, 'moment')}"), file=sys.stderr)
    print_notes([*chosen.notes, *notes])
    return 0


def _options(options: argparse.Namespace, query: str) -> Any:
    from whenabouts.export.options import DEFAULT_TITLE, Options
    from whenabouts.video.timecode import parse_rate

    return Options(
        title=options.title or options.collection or query or DEFAULT_TITLE,
        rate=parse_rate(options.rate) if options.rate else None,
        start_timecode=options.start_timecode,
        drop_frame=options.drop_frame,
    )


def _to_standard_output(data: bytes) -> None:
    """Bytes as they are: names of files need not be text in any encoding."""
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(data.decode("utf-8", "replace"))
        return
    sys.stdout.flush()
    binary.write(data)
