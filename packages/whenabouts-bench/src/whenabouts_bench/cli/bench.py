"""`whenabouts bench`: run a system on a task, and show results as a leaderboard."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from whenabouts.cli.options import add_force, add_format, add_verb, keep_outer
from whenabouts.cli.terminal import print_either, print_json, print_lines, wants_json
from whenabouts.types import UsageError
from whenabouts.video.aside import check_free
from whenabouts_bench.cli.options import add_data, make_folder
from whenabouts_bench.harness.results import Results, results_in
from whenabouts_bench.harness.running import default_out, facts_of, run_task
from whenabouts_bench.harness.system import open_system, parse_settings, systems
from whenabouts_bench.harness.table import boards_of, check_ending, text_of, write_boards
from whenabouts_bench.harness.task import task_named, tasks

_LONG = ("answers", "per_query", "clip_scores", "probability")
_EPILOG = """\
  whenabouts bench run --system bm25 --task tvr --data data/tvr
  whenabouts bench run --system mine.py:make --set size=large --task charades-sta --data data
  whenabouts bench table results --write board.md --write board.html --write board.tex

docs/bench.md says how to write a system and a task."""


def add_parser(verbs: Any) -> None:
    """Declare `bench` with `list`, `run` and `table`."""
    parser = add_verb(
        verbs, "bench", run_list, description="Measure any system on published tasks.", epilog=_EPILOG
    )
    add_format(parser)
    kinds = parser.add_subparsers(dest="kind", metavar="list|run|table")
    listing = kinds.add_parser(
        "list",
        help="list the known tasks and systems (also without this word)",
        description="Names, files and licences of tasks; systems with their settings.",
    )
    running = kinds.add_parser(
        "run",
        help="run a system on a task and write its results",
        description="Index the task's videos, ask its queries, and measure the answers.",
    )
    table = kinds.add_parser(
        "table",
        help="the leaderboard of results in files and folders",
        description="A table for each task: means, intervals, share unjudged, cost.",
    )
    for inner, run in ((listing, run_list), (running, run_run), (table, run_table)):
        add_format(inner)
        keep_outer(inner)
        inner.set_defaults(run=run)
    _add_run(running)
    table.add_argument("places", nargs="+", metavar="FOLDER", help="folders or files of results")
    table.add_argument(
        "--write",
        metavar="FILE",
        action="append",
        default=[],
        help="write it, too: .md, .html or .tex; may be given again",
    )


def _add_run(running: argparse.ArgumentParser) -> None:
    add = running.add_argument
    add(
        "--system", metavar="NAME", required=True, help="one of the list, PACKAGE:FACTORY, or FILE.py:FACTORY"
    )
    add("--task", metavar="NAME", required=True, help="a task of the list")
    add_data(running)
    add(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="an argument of the system's factory; may be given again",
    )
    add(
        "--out",
        metavar="FILE",
        help="file of the results, .json or .json.gz (default: results/SYSTEM/REVISION/TASK.json)",
    )
    add_force(running)


def run_list(options: argparse.Namespace) -> int:
    """Show the tasks and systems."""
    listed_tasks, ships = tasks(), systems()
    if wants_json(options):
        values = {"tasks": [task.to_json() for task in listed_tasks]}
        print_json({**values, "systems": {name: module.SUMMARY for name, module in ships.items()}})
        return 0
    print_lines(["tasks"])
    print_lines(
        [f"  {task.name:26}{task.title}, {task.split}: {', '.join(task.headline)}" for task in listed_tasks]
    )
    print_lines(["", "systems (yours: PACKAGE:FACTORY or FILE.py:FACTORY)"])
    print_lines([f"  {name:26}{module.SUMMARY}" for name, module in ships.items()])
    return 0


def run_run(options: argparse.Namespace) -> int:
    """Run the system on the task, write the results and print them."""
    task, settings = task_named(options.task), parse_settings(options.settings)
    system = open_system(options.system, settings)
    out = Path(options.out) if options.out else default_out(facts_of(system, options.system), task)
    if not out.name.endswith((".json", ".json.gz")):
        raise UsageError(f"--out {out}: accepted: a name that ends in .json or .json.gz")
    check_free(out, force=options.force)
    make_folder(out.parent)  # before a run that may take hours
    results = run_task(task, system, Path(options.data), factory=options.system, settings=settings)
    if options.out and out.parent.parent.name and out.name.partition(".json")[0] == task.name:
        _name_by_place(results, system, out)
    results.write(out)
    facts = {name: value for name, value in msgspec.to_builtins(results).items() if name not in _LONG}
    print_either(options, lambda: {"out": str(out)} | facts, lambda: _lines(results, out))
    return 0


def _name_by_place(results: Results, system: Any, out: Path) -> None:
    """Take a missing name and revision of the system from a path FOLDER/NAME/REVISION/TASK.json."""
    if not getattr(system, "name", ""):
        results.system.name = out.parent.parent.name
    if not getattr(system, "revision", ""):
        results.system.revision = out.parent.name


def _lines(results: Results, out: Path) -> list[str]:
    lines = [f"{results.system.name} ({results.system.revision}) on {results.task.task}"]
    for name, values in results.metrics.items():
        if values.mean is not None:
            low, high = (100 * (end or 0.0) for end in (values.low, values.high))
            lines.append(f"  {name:28}{100 * values.mean:6.2f}  [{low:.2f}, {high:.2f}]")
    for name, of_name in (results.rejection.metrics if results.rejection else {}).items():
        if of_name is not None and of_name.mean is not None:
            lines.append(f"  {name:28}{100 * of_name.mean:6.2f}")
    lines += [f"  {name:40}{value:,.4g}" for name, value in results.cost.items() if value is not None]
    if results.missing:
        lines.append(f"{results.missing:,} queries without an answer count as 0")
    if results.not_honoured:
        lines.append(f"not measured, for the system has no method for it: {', '.join(results.not_honoured)}")
    return [*lines, *results.notes, f"written: {out}"]


def run_table(options: argparse.Namespace) -> int:
    """Print a leaderboard for each task, and write all of them to each --write file."""
    files = [Path(name) for name in options.write]
    for file in files:
        check_ending(file)
    boards = boards_of(results_in(options.places))
    for file in files:
        write_boards(boards, file)
    print_either(options, lambda: [board.to_json() for board in boards], lambda: text_of(boards))
    return 0
