"""`whenabouts calibrate`: how often the answers are wrong, of a corpus."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from whenabouts.cli.opened import opened_checker
from whenabouts.cli.options import add_check, add_corpus, add_format, add_verb, add_wait, open_corpus
from whenabouts.cli.terminal import print_either
from whenabouts.intake.lacks import check_room
from whenabouts.types import UsageError

# OpenBLAS ends the process, with the exit code of "no match", if it gets no memory.
_ROOM_BYTES = 3 << 29
_EPILOG = """\
examples:
  whenabouts calibrate --corpus my.corpus
  whenabouts calibrate --corpus my.corpus --queries known.jsonl --out figures
a line of --queries: {"query": "a red flower opens", "video": "flower.webm", "start": 1.5, "end": 4.0}
  whenabouts calibrate --corpus my.corpus --queries known.jsonl --check http://127.0.0.1:8000/v1#qwen3-vl
"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "calibrate",
        run,
        description="Measure how often the answers of a corpus are wrong, and keep the result with it: by\n"
        "unrelated sentences, and by questions whose answer is known, with and without their video in\n"
        "the corpus. Or, with --checkpoint: measure a trained system by the queries of a split, in pools\n"
        "with their answer and without, and keep with the checkpoint how sure its answers are.",
        epilog=_EPILOG,
    )
    add_corpus(parser)
    parser.add_argument(
        "--queries",
        metavar="FILE",
        help="questions and where their answers are, as JSON lines (default: made of what is said)",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="write the diagrams (SVG, PNG) and the numbers (JSON) into this folder"
    )
    add_check(
        parser, "in place of the answers, measure how often this model is wrong that looks a second time"
    )
    parser.add_argument(
        "--check-questions",
        metavar="N",
        type=int,
        default=60,
        help="without --queries: questions that are made for --check (default 60; two looks each)",
    )
    add_wait(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Measure, show, and write the figures."""
    check_room(_ROOM_BYTES)
    if options.check is not None:
        return _run_check(options)
    from whenabouts.calibration.measuring import calibrate

    corpus = open_corpus(options)
    report = calibrate(corpus, options.queries, wait=options.wait, progress=progress_shown())
    written = report.write(Path(options.out)) if options.out else []
    print_either(
        options,
        lambda: {**report.to_json(), "files": [str(path) for path in written]},
        lambda: [*report.lines(), *(f"written: {path}" for path in written)],
    )
    return 0


def _run_check(options: argparse.Namespace) -> int:
    """Measure a checker on a corpus, keep and show what came of it."""
    from whenabouts.calibration.checks import calibrate_checker, lines_of

    if options.out:
        raise UsageError("--out writes the diagrams of answers; --check has none, leave it out")
    corpus, checker = open_corpus(options), opened_checker(options)
    assert checker is not None  # it was named
    rates, notes = calibrate_checker(
        corpus,
        checker,
        options.queries,
        count=options.check_questions,
        wait=options.wait,
        progress=progress_shown(),
    )
    print_either(
        options,
        lambda: {"check": checker.name, **rates.to_json(), "notes": notes},
        lambda: [*lines_of(checker, rates), *(f"note: {note}" for note in notes)],
    )
    return 0


def progress_shown() -> Any:
    """What tells people how far it is; nothing where nobody looks."""
    if not sys.stderr.isatty():
        return lambda share: None

    def tell(share: float) -> None:
        end = "\r\x1b[K" if share >= 1.0 else ""
        sys.stderr.write(f"\rasking {share:4.0%}{end}")
        sys.stderr.flush()

    return tell
