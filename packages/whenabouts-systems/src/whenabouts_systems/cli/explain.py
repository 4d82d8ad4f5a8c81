"""`whenabouts explain`: the words a trained system heeded, where it sees start and end, its best moments."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.cli.options import (
    add_corpus,
    add_data,
    add_device,
    add_format,
    add_retriever,
    add_verb,
    encoded_with,
    encoding_bar,
    open_corpus,
    print_either,
)
from whenabouts.types import UsageError
from whenabouts_systems.cli.splits import SplitOptions, stages_named

if TYPE_CHECKING:
    from whenabouts_systems.explain import Explanation
    from whenabouts_systems.explain.split import InSplit

_EPILOG = """\
examples:
  whenabouts explain --checkpoint runs/xml --features features --query-id 12409 --out why.png
  whenabouts explain "the person puts down the bag." --checkpoint runs/xml --features features
  whenabouts explain --checkpoint runs/xml --other runs/pr --features features --query-id 12409 --out two.png
  whenabouts explain "a red flower opens" --corpus my.corpus --model runs/xml --out why.svg
  whenabouts explain "a red flower opens" --corpus my.corpus --model runs/xml --moment garden.mp4@12-20
  whenabouts explain --checkpoint runs/prem --features features --query-id 12409 --out prem.png

docs/explaining.md says how to read it. exit codes: 0 explained, 2 wrong use or bad input"""
_OF_A_SPLIT = ("features", "split", "data", "experiment", "query_id", "other_features")


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "explain",
        run,
        description="For one query: which words count in each stream, how probable start and end are along "
        "a video, and the best moments of one or two trained systems; as text, JSON and a picture. Of your "
        "own videos with the frames and the words of that video.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("query", metavar="QUERY", nargs="?", help="the query; with --query-id it may be left out")
    add("--out", metavar="FILE", type=Path, help="draw it: a file whose name ends in .png, .svg or .pdf")
    add(
        "--video",
        metavar="ID",
        help="show start and end along this video (default: the true one, else the best)",
    )
    add("--other", metavar="RUN", help="another trained system, shown side by side")
    add("-k", type=int, default=5, metavar="N", help="show at most so many moments (default 5)")
    add_retriever(parser)
    split = parser.add_argument_group("a query of a data set")
    add = split.add_argument
    add("--checkpoint", metavar="RUN", help="folder of a trained system, or owner/name on a hub")
    add("--features", metavar="DIR", help="folder of the feature files")
    add("--split", metavar="NAME", help="train, validation or test (default: test if there is one)")
    add("--query-id", metavar="ID", help="the query, by its id")
    add_data(split)
    add("--experiment", metavar="FILE", help="names the files (default: the experiment in --checkpoint)")
    add("--other-features", metavar="DIR", help="the feature files of --other (default: --features)")
    add_device(split)
    corpus = parser.add_argument_group("a query to your own videos")
    add_corpus(corpus)
    add = corpus.add_argument
    add("--model", metavar="RUN", help="folder of a trained system, or owner/name on a hub")
    add("--moment", metavar="VIDEO@START-END", help="the moment that should be found")
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Ask, tell, draw."""
    if (options.checkpoint is None) == (options.model is None):
        raise UsageError(
            "which system? Give --checkpoint RUN --features DIR for a query of a data set, "
            "or --model RUN --corpus DIR for your own videos"
        )
    if options.out is not None:
        from whenabouts.drawing import check_picture

        check_picture(options.out)
    explanation = _of_a_split(options) if options.model is None else _of_a_corpus(options)
    if options.out is not None:
        from whenabouts_systems.explain.picture import draw

        draw(explanation, options.out)
    print_either(
        options,
        explanation.to_json,
        lambda: [*explanation.lines(), *(["", f"drawn: {options.out}"] if options.out else [])],
    )
    return 0


def _of_a_split(options: argparse.Namespace) -> Explanation:
    from whenabouts_systems.explain.split import explain

    if options.features is None:
        raise UsageError("which features? Give --features DIR, as in `whenabouts run`")
    if options.moment is not None:
        raise UsageError("--moment is for --corpus; the truth of a data set's query is known")
    with ExitStack() as files:
        systems = [_opened(files, options, options.checkpoint, options.features)]
        if options.other is not None:
            features = options.other_features or options.features
            systems.append(_opened(files, options, options.other, features))
        with encoding_bar(systems[0].name) as progress:
            return explain(
                systems,
                query_id=options.query_id,
                text=options.query,
                video_id=options.video,
                k=options.k,
                progress=progress,
            )


def _opened(files: ExitStack, options: argparse.Namespace, checkpoint: str, features: str) -> InSplit:
    from whenabouts_systems.explain.split import InSplit
    from whenabouts_systems.training.devices import open_device

    own = checkpoint == options.checkpoint
    chooser, localizer = stages_named(checkpoint, options.retriever if own else None)
    device = open_device(options.device).device
    how = SplitOptions(options.split, features, options.data, device)
    system = how.opened(files, localizer, options.experiment if own else None)
    retriever = None
    if chooser is not None:
        opened = how.retriever(files, chooser, system)
        retriever = InSplit(Path(chooser).name or chooser, opened.trained, opened.split)
    return InSplit(Path(checkpoint).name or checkpoint, system.trained, system.split, retriever)


def _of_a_corpus(options: argparse.Namespace) -> Explanation:
    from whenabouts_systems.explain.film import with_film

    given = [name for name in _OF_A_SPLIT if getattr(options, name) is not None]
    if given:
        option = "--" + given[0].replace("_", "-")
        raise UsageError(f"{option} is for --checkpoint; with --model the videos of --corpus are searched")
    if options.query is None:
        raise UsageError("which query? Say in a few words what to look for")
    corpus = open_corpus(options)
    encoded_with(corpus, options.model, options.retriever)
    if options.other is not None:
        encoded_with(corpus, options.other)
    from whenabouts_systems.explain.answer import explain

    explanation = explain(
        corpus,
        options.query,
        options.model,
        other=options.other,
        retriever=options.retriever,
        video=options.video,
        moment=options.moment,
        k=options.k,
    )
    # Frames are drawn only; without a picture no video is opened.
    return with_film(corpus, explanation, frames=options.out is not None)
