"""`whenabouts explain`: show a trained system's weights of words, its start and end, its best moments."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from whenabouts.cli.options import add_corpus, add_force, add_format, add_retriever, add_verb
from whenabouts_systems.cli.options import add_split

_EPILOG = """\
examples:
  whenabouts explain --checkpoint runs/xml --features features --query-id 12409 --out why.png
  whenabouts explain "the person puts down the bag." --checkpoint runs/xml --features features
  whenabouts explain --checkpoint runs/xml --other runs/pr --features features --query-id 12409 --out two.png
  whenabouts explain "a red flower opens" --corpus my.corpus --model runs/xml --out why.svg
  whenabouts explain "a red flower opens" --corpus my.corpus --model runs/xml --moment garden.mp4@12-20
  whenabouts explain --checkpoint runs/prem --features features --query-id 12409 --out prem.png

docs/explaining.md says how to read it. exit codes: 0 explained, 2 wrong use or bad input"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "explain",
        run,
        description="For one query: which words count in each stream, how probable start and end are along "
        "a video, and the best moments of one or two trained systems; as text, JSON and a picture. For your "
        "own videos also the frames and spoken words.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("query", metavar="QUERY", nargs="?", help="the query; optional with --query-id")
    add("--out", metavar="FILE", type=Path, help="draw it: a file whose name ends in .png, .svg or .pdf")
    add_force(parser)
    add(
        "--video",
        metavar="ID",
        help="show start and end along this video (default: the true one, else the best)",
    )
    add("--other", metavar="RUN", help="another trained system, shown side by side")
    add("-k", type=int, default=5, metavar="N", help="show at most N moments (default 5)")
    add_retriever(parser)
    split = parser.add_argument_group("a query of a data set")
    add = split.add_argument
    add("--checkpoint", metavar="RUN", help="folder of a trained system, or owner/name on a hub")
    add_split(split)
    add("--query-id", metavar="ID", help="the query, by its id")
    add("--other-features", metavar="DIR", help="the feature files of --other (default: --features)")
    corpus = parser.add_argument_group("a query to your own videos")
    add_corpus(corpus)
    add = corpus.add_argument
    add("--model", metavar="RUN", help="folder of a trained system, or owner/name on a hub")
    add("--moment", metavar="VIDEO@START-END", help="the moment that should be found")
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Explain, print and draw."""
    from whenabouts_systems.cli.work import explain  # imports PyTorch

    return explain.run(options)
