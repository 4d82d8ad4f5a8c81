"""`whenabouts export`: write moments as a list for editors, players and scripts. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from whenabouts import export
from whenabouts.cli.moments import add_moments, chosen_moments
from whenabouts.cli.options import add_force, add_verb
from whenabouts.cli.terminal import for_terminal, print_notes
from whenabouts.export import format_names
from whenabouts.export.options import DEFAULT_TITLE, Options
from whenabouts.types import UsageError, number_of
from whenabouts.video.aside import written_aside
from whenabouts.video.timecode import parse_rate

RESOLVE_SCRIPT = "resolve-script"

_EPILOG = """\
examples:
  whenabouts export "a red flower opens" --corpus my.corpus -k 5 --out flowers.edl
  whenabouts export --from results.json --format fcpxml --out film.fcpxml
  whenabouts export --moment friday.mp4@0:01-0:03.5 --corpus my.corpus --format csv
  whenabouts export "sunset" --corpus my.corpus --out sunset.edl --start-timecode '10:00:00;00'
  whenabouts export --format resolve-script --out whenabouts.py     (for DaVinci Resolve's menu of scripts)"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
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
        help=f"{', '.join(format_names())} (default: by the suffix of --out); {RESOLVE_SCRIPT}: write the "
        "script that reads the json format in DaVinci Resolve",
    )
    parser.add_argument("--out", metavar="FILE", help="file to write (default: standard output)")
    add_force(parser)
    parser.add_argument(
        "--rate",
        metavar="FPS",
        help="frames per second of your project, such as 25 or 29.97: of the timeline in edl, fcpxml, otio "
        "and premiere (default: the standard rate that fits the first file), of the frame numbers in csv and "
        "json (default: each file's own)",
    )
    parser.add_argument(
        "--start-timecode",
        metavar="HH:MM:SS:FF",
        help="timecode of the timeline's first frame (default 01:00:00:00; with a semicolon, 01:00:00;00, "
        "it is drop-frame)",
    )
    drop = parser.add_mutually_exclusive_group()
    drop.add_argument(
        "--drop-frame",
        action="store_true",
        default=None,
        help="at 29.97 frames per second and its multiples, skip frame numbers so that the timecode agrees"
        " with the clock (default)",
    )
    drop.add_argument(
        "--non-drop-frame",
        dest="drop_frame",
        action="store_false",
        help="at 29.97 frames per second and its multiples, skip no frame numbers",
    )
    parser.add_argument("--title", metavar="TEXT", help="name of the list (default: the query)")


def run(options: argparse.Namespace) -> int:
    """Write the list, or the script for Resolve. Returns 1 if there were no moments."""
    out = None if options.out in (None, "-") else options.out
    if options.format == RESOLVE_SCRIPT:
        return _write_script(options, out)
    export.format_of(options.format, out)  # refuses an unknown format before the search
    chosen = chosen_moments(options)
    if not chosen.moments:
        print_notes(chosen.notes)
        return 1
    how = Options(
        title=options.title or options.collection or chosen.moments[0].query or DEFAULT_TITLE,
        rate=parse_rate(options.rate) if options.rate else None,
        start_timecode=options.start_timecode,
        drop_frame=options.drop_frame,
    )
    if out is None:
        data, notes = export.render(chosen.moments, options.format, how)
        _to_standard_output(data)
    else:
        notes = export.write(chosen.moments, out, options.format, how, force=options.force)
        count = len(chosen.moments)
        print(for_terminal(f"{out}: {number_of(count, 'moment')}"), file=sys.stderr)
    print_notes([*chosen.notes, *notes])
    return 0


def _write_script(options: argparse.Namespace, out: str | None) -> int:
    if options.query or options.like or options.from_ or options.moment or options.collection:
        raise UsageError(
            f"--format {RESOLVE_SCRIPT} writes the script that reads moments and takes none; write "
            "moments with --format json"
        )
    script = Path(export.__file__).with_name("resolve_script.py").read_bytes()
    if out is None:
        _to_standard_output(script)
        return 0
    with written_aside(Path(out), force=options.force) as aside:
        aside.write_bytes(script)
    print(for_terminal(f"wrote the script {out}; Resolve lists it under Workspace, Scripts"), file=sys.stderr)
    return 0


def _to_standard_output(data: bytes) -> None:
    """Write bytes unchanged, because file names need not be valid text."""
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(data.decode("utf-8", "replace"))
        return
    sys.stdout.flush()
    binary.write(data)
