"""`whenabouts calibrate`: measure how often a corpus's answers are wrong. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from whenabouts.cli.opened import opened_checker
from whenabouts.cli.options import add_check, add_corpus, add_format, add_verb, add_wait, open_corpus
from whenabouts.cli.terminal import print_either, share_bar
from whenabouts.intake.lacks import check_room
from whenabouts.types import UsageError

# OpenBLAS ends a process that lacks memory with exit code 1, which means "no match".
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
        description="Measure how often the answers of a corpus are wrong, and store the result with it. "
        "Uses unrelated sentences, and questions with known answers, asked with and without their video in "
        "the corpus. With --checkpoint instead: measure a trained system with the queries of a split, in "
        "pools with and without their answer, and store how sure its answers are with the checkpoint.",
        epilog=_EPILOG,
    )
    add_corpus(parser)
    parser.add_argument(
        "--queries",
        metavar="FILE",
        help="questions with their answers, as JSON lines (default: made from the spoken words)",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="write diagrams (SVG, PNG) and numbers (JSON) to this folder"
    )
    add_check(
        parser, "measure how often this model, which looks a second time, is wrong (instead of the answers)"
    )
    parser.add_argument(
        "--check-questions",
        metavar="N",
        type=int,
        default=60,
        help="without --queries: how many questions to make for --check (default 60; two looks each)",
    )
    add_wait(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Measure, print the result, and write the figures."""
    check_room(_ROOM_BYTES)
    if options.check is not None:
        return _run_check(options)
    from whenabouts.calibration.measuring import calibrate

    corpus = open_corpus(options)
    with share_bar("asking") as show:
        report = calibrate(corpus, options.queries, wait=options.wait, progress=show)
    written = report.write(Path(options.out)) if options.out else []
    print_either(
        options,
        lambda: {**report.to_json(), "files": [str(path) for path in written]},
        lambda: [*report.lines(), *(f"written: {path}" for path in written)],
    )
    return 0


def _run_check(options: argparse.Namespace) -> int:
    """Measure a checker on a corpus, store the result and print it."""
    from whenabouts.calibration.checks import calibrate_checker, lines_of

    if options.out:
        raise UsageError("--out writes diagrams of answers, which --check does not measure; leave it out")
    corpus, checker = open_corpus(options), opened_checker(options)
    assert checker is not None  # it was named
    with share_bar("asking") as show:
        rates, notes = calibrate_checker(
            corpus,
            checker,
            options.queries,
            count=options.check_questions,
            wait=options.wait,
            progress=show,
        )
    print_either(
        options,
        lambda: {"check": checker.name, **rates.to_json(), "notes": notes},
        lambda: [*lines_of(checker, rates), *(f"note: {note}" for note in notes)],
    )
    return 0
