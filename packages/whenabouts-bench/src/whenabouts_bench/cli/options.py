"""Command-line options that verbs on judgements, runs and data sets share."""

from __future__ import annotations

import argparse
from pathlib import Path

from whenabouts.types import UsageError
from whenabouts_bench.datasets import open_dataset
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.formats.annotations import Annotations


def add_judged(parser: argparse._ActionsContainer) -> None:
    """Options for the judgements of an evaluation, their protocol, and file formats."""
    parser.add_argument("--truth", metavar="FILE", required=True, help="the judgements, in any known format")
    parser.add_argument(
        "--protocol",
        metavar="NAME",
        help="a protocol of `whenabouts evaluate` (default: the judgements choose)",
    )
    add_file_formats(parser)


def add_judged_iou(parser: argparse._ActionsContainer) -> None:
    """An option for judgements from pools: which answers count as judged."""
    parser.add_argument(
        "--judged-iou",
        type=float,
        metavar="IOU",
        help="the judgements come from pools: report unjudged answers, whose IoU with every judged moment is "
        "below this (default: 0.5 if the judgements say that they come from pools)",
    )


def add_relevant_from(parser: argparse._ActionsContainer) -> None:
    """An option for the lowest grade of a right moment."""
    parser.add_argument(
        "--relevant-from",
        type=float,
        metavar="GRADE",
        help="the lowest grade of a right moment, like trec_eval's -l; nDCG keeps every grade "
        "(default: any grade above 0)",
    )


def add_file_formats(parser: argparse._ActionsContainer) -> None:
    """Options for file formats that the content does not show."""
    parser.add_argument(
        "--format", metavar="NAME", help="format of all files (default: recognised by content)"
    )
    parser.add_argument("--truth-format", metavar="NAME", help="format of only the judgements")
    parser.add_argument("--run-format", metavar="NAME", help="format of only the runs")


def file_formats(options: argparse.Namespace) -> tuple[str | None, str | None]:
    """The chosen formats of judgements and of runs; None means that the content decides."""
    return options.truth_format or options.format, options.run_format or options.format


def add_data(parser: argparse.ArgumentParser) -> None:
    """An option for the folder of a data set."""
    parser.add_argument(
        "--data",
        metavar="DIR",
        default=".",
        help="the folder that holds the data set's files (default: here)",
    )


def add_dataset(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Declare --dataset and --data; add alternatives to --dataset to the returned group."""
    add_data(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--dataset", metavar="NAME", help="a data set that `whenabouts datasets` lists")
    return source


def add_split(parser: argparse.ArgumentParser, alternative: str, split: str) -> None:
    """A split of a data set, `split` by default, or judgements by the option `alternative`."""
    add_dataset(parser).add_argument(
        alternative, metavar="FILE", help="or: judgements with texts, in any known format"
    )
    parser.add_argument(
        "--split", metavar="NAME", default=split, help=f"split of the data set (default: {split})"
    )


def split_file(options: argparse.Namespace, alternative: str | None) -> Path:
    """The file that `read_split` reads, before it is read."""
    return Path(alternative or open_dataset(options.dataset, options.data).file(options.split).path)


def read_split(options: argparse.Namespace, alternative: str | None) -> Annotations:
    """The judgements that `add_split` names; `alternative` is its second option's value."""
    if alternative:
        return read_annotations(alternative)
    return open_dataset(options.dataset, options.data).annotations(options.split)


def add_sentence_encoder(parser: argparse._ActionsContainer) -> None:
    """An option for the encoder of sentences."""
    parser.add_argument(
        "--encoder",
        metavar="NAME",
        help="sentence encoder: a name, a hub name (princeton-nlp/sup-simcse-roberta-large) or a folder "
        "(default: one that needs no download)",
    )


def make_folder(folder: Path) -> None:
    """Make an output folder. Raises UsageError if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}; name another") from error
