"""Options that verbs on judgements, runs and data sets share."""

from __future__ import annotations

import argparse


def add_judged(parser: argparse._ActionsContainer) -> None:
    """The judgements that runs are held against, their protocol, and the formats of both."""
    parser.add_argument("--truth", metavar="FILE", required=True, help="the judgements, in any known format")
    parser.add_argument(
        "--protocol",
        metavar="NAME",
        help="as `whenabouts evaluate` takes it (default: the judgements choose)",
    )
    add_file_formats(parser)


def add_judged_iou(parser: argparse._ActionsContainer) -> None:
    """That judgements come from pools, and which answers count as judged."""
    parser.add_argument(
        "--judged-iou",
        type=float,
        metavar="IOU",
        help="the judgements come from pools: report what was not judged, which is what shares less than "
        "this with every judged moment (default: 0.5 where the judgements say that they do)",
    )


def add_relevant_from(parser: argparse._ActionsContainer) -> None:
    """From which grade on a moment is right."""
    parser.add_argument(
        "--relevant-from",
        type=float,
        metavar="GRADE",
        help="a moment is right from this grade on, as trec_eval's -l; nDCG keeps every grade "
        "(default: any grade above 0)",
    )


def add_file_formats(parser: argparse._ActionsContainer) -> None:
    """What the files are, where their content does not tell."""
    parser.add_argument(
        "--format", metavar="NAME", help="format of all files (default: recognised by content)"
    )
    parser.add_argument("--truth-format", metavar="NAME", help="format of the judgements alone")
    parser.add_argument("--run-format", metavar="NAME", help="format of the runs alone")


def file_formats(options: argparse.Namespace) -> tuple[str | None, str | None]:
    """The formats named for judgements and for runs; None is for the content to tell."""
    return options.truth_format or options.format, options.run_format or options.format


def add_dataset(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Declare --dataset and --data; an option that stands in the place of --dataset goes into the group."""
    parser.add_argument(
        "--data",
        metavar="DIR",
        default=".",
        help="the folder that holds the data set's files (default: here)",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--dataset", metavar="NAME", help="a data set that `whenabouts datasets` lists")
    return source


def add_sentence_encoder(parser: argparse._ActionsContainer) -> None:
    """Which encoder compares sentences."""
    parser.add_argument(
        "--encoder",
        metavar="NAME",
        help="sentence encoder: a name, a hub name (princeton-nlp/sup-simcse-roberta-large) or a folder "
        "(default: the one that needs no download)",
    )
