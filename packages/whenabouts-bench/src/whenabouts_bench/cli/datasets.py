"""`whenabouts datasets`: list the known data sets, show one, and verify their files in a folder."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.options import add_format, add_verb, keep_outer
from whenabouts.cli.terminal import print_either, print_json, print_lines, wants_json
from whenabouts_bench.datasets import declarations, open_dataset
from whenabouts_bench.datasets.doctor import examine


def add_parser(verbs: Any) -> None:
    """Declare `datasets` with `list`, `show` and `doctor`."""
    parser = add_verb(
        verbs,
        "datasets",
        run_list,
        description="The published data sets that whenabouts reads.",
    )
    add_format(parser)
    kinds = parser.add_subparsers(dest="kind", metavar="list|show|doctor")
    listing = kinds.add_parser(
        "list",
        help="list the known data sets (the default)",
        description="Names, tasks and splits; as JSON also citations, licences, files and how to get them.",
    )
    show = kinds.add_parser(
        "show",
        help="the numbers of a data set in a folder",
        description="Counts and means of each split beside the published ones; first, tenth and last query.",
    )
    doctor = kinds.add_parser(
        "doctor",
        help="list found and missing files, and how to get the missing ones",
        description=(
            "Looks for the files of all known data sets, and verifies them. "
            "Exit codes: 0 what was found is complete and right, 1 nothing was found or a file is missing, "
            "differs or cannot be verified, 2 a file is broken."
        ),
    )
    for inner, run in ((listing, run_list), (show, run_show), (doctor, run_doctor)):
        add_format(inner)
        keep_outer(inner)
        inner.set_defaults(run=run)
    show.add_argument("name", metavar="NAME", help="as `whenabouts datasets` lists it")
    show.add_argument("folder", metavar="DIR", help="the folder that holds its files, at any depth")
    show.add_argument("--split", help="only this split (default: every split found)")
    doctor.add_argument("folder", metavar="DIR", help="the folder to look through")


def run_list(options: argparse.Namespace) -> int:
    """Print the known data sets."""
    if wants_json(options):
        print_json([dataset.to_json() for dataset in declarations()])
        return 0
    rows = [(each.name, each.title, "/".join(each.tasks)) for each in declarations()]
    wide = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    for dataset, row in zip(declarations(), rows, strict=True):
        cells = "".join(f"{cell:{width}}" for cell, width in zip(row, wide, strict=True))
        print_lines([cells + ", ".join(split.name for split in dataset.splits)])
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Print the card of each split."""
    dataset = open_dataset(options.name, options.folder)
    cards = [dataset.card(split) for split in ([options.split] if options.split else dataset.splits)]
    if wants_json(options):
        print_json([card.to_json() for card in cards])
        return 0
    for number, card in enumerate(cards):
        print_lines([""] * (number > 0))
        print_lines(card.lines())
    return 0


def run_doctor(options: argparse.Namespace) -> int:
    """Print what a folder holds; return the exit code that --help describes."""
    report = examine(options.folder)
    print_either(options, report.to_json, report.lines)
    return report.exit_code
