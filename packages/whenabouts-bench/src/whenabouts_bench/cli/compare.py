"""`whenabouts compare`: are differences between runs more than chance?"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from whenabouts.cli.options import add_format, add_seed, add_verb
from whenabouts.cli.terminal import print_either
from whenabouts.types import UsageError
from whenabouts_bench.cli.options import add_judged, add_judged_iou, add_relevant_from, file_formats
from whenabouts_bench.evaluation.compared import Settings
from whenabouts_bench.evaluation.comparison import compare_files

_EPILOG = """\
Queries about one video are not independent. So intervals resample whole videos, and tests exchange the
answers of whole videos; with --trainings both use Student's t. For each metric, the p-values of all compared
pairs are corrected together.

  whenabouts compare --truth val.jsonl old.jsonl new.jsonl --metric "R@1,IoU=0.7"
  whenabouts compare --truth val.jsonl a.jsonl b.jsonl c.jsonl --baseline each-pair --latex > table.tex
  whenabouts compare --truth val.jsonl xml-*/run.jsonl new-*/run.jsonl --trainings 3"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "compare",
        run,
        description="Compare runs over the same queries: means with intervals, differences, p-values.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="files of answers, two or more; the first is the default baseline",
    )
    add_judged(parser)
    parser.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        help='such as "nDCG@20,IoU=0.7"; may be given again (default: those of the protocol)',
    )
    add_judged_iou(parser)
    add_relevant_from(parser)
    _add_statistics(parser)
    add_format(parser)
    parser.add_argument("--latex", action="store_true", help="a booktabs table for a paper")


def _add_statistics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--baseline",
        choices=("first", "each-pair"),
        default="first",
        help="compare every other run with the first, or each with each (default: first)",
    )
    parser.add_argument(
        "--trainings",
        type=int,
        default=1,
        metavar="N",
        help="the first N runs are trainings of one system with different seeds, the next N of another, "
        "and so on; tests and intervals then account for the variance of trainings and of videos",
    )
    parser.add_argument(
        "--correction",
        choices=("holm", "bonferroni", "none"),
        default="holm",
        help="correction of p-values where several pairs are compared (default: holm)",
    )
    parser.add_argument(
        "--resamples",
        type=int,
        default=10_000,
        metavar="N",
        help="random draws of each test and interval (default: 10000)",
    )
    add_seed(parser)
    parser.add_argument(
        "--alpha",
        type=float,
        default=0.05,
        metavar="ALPHA",
        help="significance level; intervals have confidence 1 - ALPHA (default: 0.05)",
    )


def run(options: argparse.Namespace) -> int:
    """Compare the runs and print the table, as text, JSON or LaTeX."""
    if options.latex and (options.json or options.table):
        raise UsageError("--latex, --json and --table: choose one")
    truth_format, run_format = file_formats(options)
    comparison = compare_files(
        options.truth,
        options.runs,
        options.protocol,
        options.metric,
        truth_format=truth_format,
        run_format=run_format,
        judged_iou=options.judged_iou,
        relevant_from=options.relevant_from,
        settings=Settings(
            baseline=options.baseline,
            trainings=options.trainings,
            correction=options.correction,
            resamples=options.resamples,
            seed=options.seed,
            alpha=options.alpha,
        ),
    )
    if options.latex:
        sys.stdout.write(comparison.to_latex())
    else:
        print_either(options, comparison.to_json, comparison.table)
    return 0
