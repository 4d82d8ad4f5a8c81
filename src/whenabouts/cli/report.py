"""`whenabouts report`: a page that shows where a run fails."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.options import (
    add_file_formats,
    add_format,
    file_formats,
    print_json,
    print_lines,
    wants_json,
)

_EPILOG = """\
  whenabouts report --truth val.jsonl --run mine.jsonl --out report
  whenabouts report --truth val.jsonl --run old.jsonl --run new.jsonl --name old --name new --out report"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "report",
        help="write a page that shows where a run fails",
        description="Write one self-contained HTML page: where a run fails, what changed between two.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--truth", metavar="FILE", required=True, help="the judgements")
    parser.add_argument(
        "--run",
        metavar="FILE",
        dest="runs",
        action="append",
        required=True,
        help="a file of answers; given twice, the second is compared with the first",
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the page, index.html")
    parser.add_argument(
        "--name",
        metavar="NAME",
        action="append",
        default=[],
        help="what to call each run (default: its file)",
    )
    parser.add_argument(
        "--protocol",
        metavar="NAME",
        help="as `whenabouts evaluate` takes it (default: the judgements choose)",
    )
    add_file_formats(parser)
    add_format(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the page and say what it says."""
    from whenabouts.evaluation.report import write_report

    truth_format, run_format = file_formats(options)
    written = write_report(
        options.truth,
        options.runs,
        options.out,
        protocol=options.protocol,
        names=options.name,
        truth_format=truth_format,
        run_format=run_format,
    )
    if wants_json(options):
        print_json(written.to_json())
    else:
        print_lines(written.lines())
    return 0
