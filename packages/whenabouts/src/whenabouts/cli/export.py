"""`whenabouts export`: moments as a list for editors, players and scripts."""

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
        help=f"{', '.join(format_names())} (default: the suffix of --out tells); {RESOLVE_SCRIPT}: "
        "in place of moments, the script that reads json in DaVinci Resolve",
    )
    parser.add_argument("--out", metavar="FILE", help="file to write (default: standard output)")
    add_force(parser)
    parser.add_argument(
        "--rate", metavar="FPS", help="frames per second of the timeline (default: those of the first file)"
    )
    parser.add_argument(
        "--start-timecode",
        metavar="HH:MM:SS:FF",
        help="timecode of the timeline's first frame (default 01:00:00:00; written 01:00:00;00 it means "
        "drop-frame)",
    )
    drop = parser.add_mutually_exclusive_group()
    drop.add_argument(
        "--drop-frame",
        action="store_true",
        default=None,
        help="at 29.97 frames per second and its multiples, skip numbers so that the timecode agrees with "
        "the clock (default)",
    )
    drop.add_argument(
        "--non-drop-frame",
        dest="drop_frame",
        action="store_false",
        help="at 29.97 frames per second and its multiples, skip no number",
    )
    parser.add_argument("--title", metavar="TEXT", help="name of the list (default: the question)")


def run(options: argparse.Namespace) -> int:
    """Write the list, or the script for Resolve; 0 with moments, 1 without."""
    out = None if options.out in (None, "-") else options.out
    if options.format == RESOLVE_SCRIPT:
        return _write_script(options, out)
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


def _write_script(options: argparse.Namespace, out: str | None) -> int:
    if options.query or options.like or options.from_ or options.moment or options.collection:
        raise UsageError(
            f"--format {RESOLVE_SCRIPT} takes no moments: it is the script that reads them; write them with "
            "--format json"
        )
    script = Path(export.__file__).with_name("resolve_script.py").read_bytes()
    if out is None:
        _to_standard_output(script)
        return 0
    with written_aside(Path(out), force=options.force) as aside:
        aside.write_bytes(script)
    print(for_terminal(f"{out}: the script; Resolve shows it in Workspace, Scripts"), file=sys.stderr)
    return 0


def _options(options: argparse.Namespace, query: str) -> Any:
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
