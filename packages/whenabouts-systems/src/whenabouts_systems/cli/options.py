"""Options that verbs of trained systems share."""

from __future__ import annotations

import argparse


def add_split(
    parser: argparse._ActionsContainer, *, required: bool = False, usual: str | None = None
) -> None:
    """Options for the split that a trained system reads, and for the device of its network.

    `required`: --features must be given. `usual`: the default split (None: test, if there is one).
    """
    add = parser.add_argument
    add("--features", metavar="DIR", required=required, help="folder of the feature files")
    add(
        "--split",
        metavar="NAME",
        default=usual,
        help=f"train, validation or test (default: {usual or 'test if there is one'})",
    )
    add("--data", metavar="DIR", help="folder of the annotations (default: as in the training)")
    add("--experiment", metavar="FILE", help="names the files (default: the experiment in --checkpoint)")
    add_device(parser)


def add_device(parser: argparse._ActionsContainer) -> None:
    """An option for the device of a network."""
    parser.add_argument(
        "--device", metavar="NAME", default="auto", help="cpu, cuda, cuda:1 (default: a GPU if there is one)"
    )
