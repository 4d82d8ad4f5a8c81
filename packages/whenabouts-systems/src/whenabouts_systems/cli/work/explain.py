"""Runs `whenabouts explain`: explains and draws trained systems' answers to a query of a split or corpus."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from whenabouts.cli.opened import encoded_with
from whenabouts.cli.options import open_corpus
from whenabouts.cli.terminal import counting_bar, for_terminal, print_either
from whenabouts.drawing import check_picture
from whenabouts.types import UsageError
from whenabouts.video.aside import check_free
from whenabouts_systems.cli.splits import SplitOptions, stages_named
from whenabouts_systems.explain import Explanation
from whenabouts_systems.explain.answer import explain
from whenabouts_systems.explain.film import with_film
from whenabouts_systems.explain.picture import draw
from whenabouts_systems.explain.split import InSplit
from whenabouts_systems.explain.split import explain as explain_in_split
from whenabouts_systems.training.devices import open_device

_OF_A_SPLIT = ("features", "split", "data", "experiment", "query_id", "other_features")


def run(options: argparse.Namespace) -> int:
    """Explain the answer of a system, and of a second one (`--other`); print it, and draw it to `--out`."""
    if (options.checkpoint is None) == (options.model is None):
        raise UsageError(
            "give one system: --checkpoint RUN with --features DIR for a query of a data set, "
            "or --model RUN with --corpus DIR for your own videos"
        )
    if options.out is not None:
        check_picture(options.out)
        check_free(options.out, force=options.force)
    explanation = _of_a_split(options) if options.model is None else _of_a_corpus(options)
    if options.out is not None:
        draw(explanation, options.out)
    print_either(
        options,
        explanation.to_json,
        lambda: [*explanation.lines(), *(["", f"drawn: {options.out}"] if options.out else [])],
    )
    return 0


def _of_a_split(options: argparse.Namespace) -> Explanation:
    if options.features is None:
        raise UsageError("--checkpoint needs --features DIR, the folder of features as for `whenabouts run`")
    if options.moment is not None:
        raise UsageError("--moment is for --model; leave it out, since the annotations have the true moment")
    if options.other is None and options.other_features is not None:
        raise UsageError("--other-features is for --other RUN, which is missing; give both, or neither")
    with ExitStack() as files:
        systems = [_opened(files, options, options.checkpoint, options.features, options.retriever)]
        if options.other is not None:
            systems.append(_opened(files, options, options.other, options.other_features or options.features))
        with counting_bar(f"encoding videos with {for_terminal(systems[0].name)}") as progress:
            return explain_in_split(
                systems,
                query_id=options.query_id,
                text=options.query,
                video_id=options.video,
                k=options.k,
                progress=progress,
            )


def _opened(
    files: ExitStack,
    options: argparse.Namespace,
    checkpoint: str,
    features: str,
    chosen_by: str | None = None,
) -> InSplit:
    chooser, localizer = stages_named(checkpoint, chosen_by)
    split_options = SplitOptions(options.split, features, options.data, open_device(options.device).device)
    experiment = options.experiment if checkpoint == options.checkpoint else None
    system = split_options.opened(files, localizer, experiment)
    retriever = None
    if chooser is not None:
        opened = split_options.retriever(files, chooser, system)
        retriever = InSplit(Path(chooser).name or chooser, opened.trained, opened.split)
    return InSplit(Path(checkpoint).name or checkpoint, system.trained, system.split, retriever)


def _of_a_corpus(options: argparse.Namespace) -> Explanation:
    if given := [name.replace("_", "-") for name in _OF_A_SPLIT if getattr(options, name) is not None]:
        raise UsageError(f"--{given[0]} is for --checkpoint; leave it out, since --model searches --corpus")
    if options.query is None:
        raise UsageError('--model needs a query in words, such as "a red flower opens"')
    corpus = open_corpus(options)
    encoded_with(corpus, options.model, options.retriever)
    if options.other is not None:
        encoded_with(corpus, options.other)
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
    # Only the picture shows frames; without --out no video is opened.
    return with_film(corpus, explanation, frames=options.out is not None)
