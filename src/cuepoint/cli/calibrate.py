"""`cuepoint calibrate`: how often "match" and "no match" are wrong on a corpus."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from cuepoint.cli.options import add_corpus, add_format, open_corpus, print_json, print_lines, wants_json

_EPILOG = """\
examples:
  cuepoint calibrate --corpus my.corpus
  cuepoint calibrate --corpus my.corpus --queries known.jsonl --out figures
a line of --queries: {"query": "a red flower opens", "video": "flower.webm", "start": 1.5, "end": 4.0}"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "calibrate",
        help="measure how often the answers are wrong",
        description="Ask a corpus unrelated questions and questions whose answer is known, with their true "
        "video in and taken out; say how often the answers are wrong, and keep it with the corpus.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_corpus(parser)
    parser.add_argument(
        "--queries",
        metavar="FILE",
        help="questions and where their answers are, as JSON lines (default: made of what is said)",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="folder for the diagrams (SVG, PNG) and calibration.json"
    )
    parser.add_argument("--wait", action="store_true", help="wait while another command writes to the corpus")
    add_format(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, show, and write the figures."""
    corpus = open_corpus(options)
    report = corpus.calibrate(options.queries, wait=options.wait, progress=_progress())
    written = report.write(Path(options.out)) if options.out else []
    if wants_json(options):
        print_json({**report.to_json(), "files": [str(path) for path in written]})
    else:
        print_lines([*report.lines(), *(f"written: {path}" for path in written)])
    return 0


def _progress() -> Any:
    """What tells people how far it is; nothing where nobody looks."""
    if not sys.stderr.isatty():
        return lambda share: None

    def tell(share: float) -> None:
        end = "\r\x1b[K" if share >= 1.0 else ""
        sys.stderr.write(f"\rasking {share:4.0%}{end}")
        sys.stderr.flush()

    return tell
