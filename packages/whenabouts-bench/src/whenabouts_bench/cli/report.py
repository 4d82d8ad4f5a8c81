"""`whenabouts report`: write an HTML page that shows where a run fails."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.options import add_format, add_verb
from whenabouts.cli.terminal import print_either
from whenabouts_bench.cli.options import add_judged, add_relevant_from, file_formats
from whenabouts_bench.report import write_report

_EPILOG = """\
  whenabouts report --truth val.jsonl --run mine.jsonl --out report
  whenabouts report --truth val.jsonl --run old.jsonl --run new.jsonl --name old --name new --out report"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "report",
        run,
        description="Write one self-contained HTML page: where a run fails, what changed between two.",
        epilog=_EPILOG,
    )
    add_judged(parser)
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
    add_relevant_from(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Write the page and print its summary."""
    truth_format, run_format = file_formats(options)
    written = write_report(
        options.truth,
        options.runs,
        options.out,
        protocol=options.protocol,
        names=options.name,
        truth_format=truth_format,
        run_format=run_format,
        relevant_from=options.relevant_from,
    )
    print_either(options, written.to_json, written.lines)
    return 0
