"""`whenabouts evaluate`: measure a run against judgements under a named protocol."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from whenabouts.cli.options import add_format, add_verb
from whenabouts.cli.terminal import console, for_terminal, print_json, wants_json
from whenabouts.intake.files import refuse_overwriting
from whenabouts.types import UsageError, number_of
from whenabouts_bench import formats
from whenabouts_bench.cli.options import add_file_formats, add_judged_iou, add_relevant_from, file_formats
from whenabouts_bench.evaluation.drop_figure import check_name, write_drop
from whenabouts_bench.evaluation.evaluate import Evaluation, annotations_of, evaluate
from whenabouts_bench.evaluation.overconfidence import Drop, drop_of
from whenabouts_bench.evaluation.protocols import PROTOCOLS, find_protocol
from whenabouts_bench.formats.json_writing import write_lines
from whenabouts_bench.formats.jsonl import files_of

_MOST_LABELS = 8
"""More kinds of queries would leave no room for the means in a terminal."""
_EPILOG = """\
protocols:
{protocols}

metrics:
  R@10,IoU=0.5          recall of moments: a right one among the first 10
  R@1,IoU=0.5,grade>=3  the same, where only grades of 3 and more are right
  SVMR R@1,IoU=0.7      the same inside the video of the first positive judgement
  VR R@100              recall of videos
  nDCG@20,IoU=0.7       ranked moments with grades
  mAP                   over IoU 0.5 to 0.95; mAP,IoU=0.5; mAP,length=short
  mIoU                  overlap of the first moment

  whenabouts evaluate tvr --truth tvr_val_release.jsonl --run submission.json
  whenabouts evaluate rvmr --truth qrels.jsonl --run run.jsonl --metric "nDCG@5,IoU=0.5" --json

the same queries with their video given and in a pool, and the drop between (docs/evaluation.md):
  whenabouts evaluate mvmr --truth pools.json --run mvmr.jsonl --given vmr.jsonl --figure drop.svg
  several systems: --run and --given again for each, in the same order"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "evaluate",
        run,
        description="Measure a run against judgements under a named protocol.",
        epilog=_EPILOG.format(
            protocols="\n".join(f"  {name:<22}{protocol.summary}" for name, protocol in PROTOCOLS.items())
        ),
    )
    parser.add_argument("protocol", metavar="PROTOCOL", help="a name from the list below, or name@version")
    parser.add_argument("--truth", metavar="FILE", required=True, help="the judgements, in any known format")
    parser.add_argument(
        "--run",
        metavar="FILE",
        required=True,
        action="append",
        dest="answers",
        help="the answers of a system, in any known format",
    )
    parser.add_argument(
        "--given",
        metavar="FILE",
        action="append",
        default=[],
        help="its answers with the true video given (`whenabouts run --task svmr`): shows how much is lost "
        "from there to the pools",
    )
    parser.add_argument(
        "--figure",
        metavar="FILE.svg",
        help="with --given: draw the drop, as FILE.svg and FILE.png",
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        help="measure this in place of what the protocol measures (names below); may be given again",
    )
    parser.add_argument("--per-query", metavar="FILE", help="write each query's values, one JSON line each")
    parser.add_argument(
        "--as-released", action="store_true", help="with the faults of the protocol's released program"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse a run that names queries or videos without a judgement",
    )
    add_judged_iou(parser)
    add_relevant_from(parser)
    add_file_formats(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Evaluate the run and print the means; with --given, print the drop instead."""
    truth_format, run_format = file_formats(options)
    if options.given or options.figure or len(options.answers) > 1:
        return _run_drop(options, truth_format, run_format)
    (answers,) = options.answers
    if options.per_query:
        refuse_overwriting(Path(options.per_query), *files_of(Path(options.truth)), answers)
    result = evaluate(
        options.truth,
        answers,
        options.metric,
        protocol=options.protocol,
        truth_format=truth_format,
        run_format=run_format,
        as_released=options.as_released,
        strict=options.strict,
        judged_iou=options.judged_iou,
        relevant_from=options.relevant_from,
    )
    if options.per_query:
        write_lines(Path(options.per_query), result.per_query())
    if wants_json(options):
        print_json(result.to_json())
    else:
        _show(result)
    return 0


def _run_drop(options: argparse.Namespace, truth_format: str | None, run_format: str | None) -> int:
    """Evaluate with the video given and in the pool, and show the drop."""
    _check_drop(options)
    protocol = find_protocol(options.protocol, as_released=options.as_released)
    truth = annotations_of(options.truth, protocol, truth_format)
    drops = [
        drop_of(
            truth, *(formats.open_run(run, run_format, truth) for run in (pool, given)), protocol=protocol
        )
        for pool, given in zip(options.answers, options.given, strict=True)
    ]
    files = write_drop(drops, Path(options.figure)) if options.figure else []
    if wants_json(options):
        systems = [drop.to_json() for drop in drops]
        print_json({"protocol": protocol.label, "systems": systems, "files": [str(path) for path in files]})
        return 0
    for drop in drops:
        _show_drop(drop)
    for path in files:
        console().print(for_terminal(f"written: {path}"), style="dim", soft_wrap=True)
    return 0


def _check_drop(options: argparse.Namespace) -> None:
    if len(options.given) != len(options.answers):
        raise UsageError(
            f"{len(options.answers)} --run and {len(options.given)} --given; the drop needs one --given "
            "(answers with the golden video given, `whenabouts run --task svmr`) for each --run. To hold "
            "two runs against each other, use `whenabouts compare`"
        )
    refused = {"--metric": options.metric, "--per-query": options.per_query, "--strict": options.strict}
    refused |= {"--judged-iou": options.judged_iou, "--relevant-from": options.relevant_from}
    for name, value in refused.items():
        if value:
            raise UsageError(f"{name} does not go with --given; leave one out")
    if options.figure:
        check_name(Path(options.figure))


def _show_drop(drop: Drop) -> None:
    from rich.table import Table

    out = console()
    out.print(for_terminal(f"{drop.name}: {number_of(drop.queries, 'query')}"), style="bold")
    table = Table("metric", box=None, pad_edge=False)
    for column in ("VMR, %", "MVMR, %", "drop", "of VMR, %"):
        table.add_column(column, justify="right")
    for metric in drop.pool:
        cells = (drop.given[metric], drop.pool[metric], drop.points(metric), drop.share(metric))
        table.add_row(metric, *map(_percent, cells))
    out.print(table)
    for note in drop.notes:
        out.print(for_terminal(note), style="dim", soft_wrap=True)


def _show(result: Evaluation) -> None:
    from rich.table import Column, Table

    out = console()
    out.print(for_terminal(f"{result.run} under {result.protocol}"), style="bold")
    every = {name: result.means_by(name) for name in result.groups}
    groups = {name: labels for name, labels in every.items() if len(labels) <= _MOST_LABELS}
    table = Table(Column("metric", no_wrap=True), box=None, pad_edge=False)
    table.add_column("mean, %", justify="right", no_wrap=True)
    for group, labels in groups.items():
        for label in labels:
            table.add_column(for_terminal(f"{group} {label}"), justify="right", style="dim")
    if result.unjudged is not None:
        for name in ("not judged", "without these, %", "possible, %"):
            table.add_column(name, justify="right")
    unjudged = {} if result.unjudged is None else result.unjudged.means(result.metrics)
    for metric, mean in result.means().items():
        by = [means[metric] for labels in groups.values() for means in labels.values()]
        cells = [*map(_percent, (mean, *by))]
        if of_pools := unjudged.get(metric):
            cells += [f"{of_pools['unjudged']:,} of {of_pools['answers']:,}", _percent(of_pools["condensed"])]
            cells.append(f"{_percent(of_pools['lower'])} to {_percent(of_pools['upper'])}")
        table.add_row(metric, *cells)
    out.print(table)
    too_many = [f"{name}: {len(every[name]):,} kinds; --json has each" for name in every.keys() - groups]
    for line in [*too_many, *result.lines()]:
        out.print(for_terminal(line), style="dim", soft_wrap=True)


def _percent(value: float) -> str:
    return f"{100 * value:.2f}" if value == value else "-"
