"""Opens the corpus and the models that a command names, and runs its search."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from whenabouts.cli.options import add_repeated, add_where, open_corpus
from whenabouts.cli.terminal import counting_bar, for_terminal, print_notes
from whenabouts.index.lock import CorpusBusy
from whenabouts.search.options import SearchOptions
from whenabouts.streams import all_streams

if TYPE_CHECKING:
    from whenabouts.checkers import Checker, Rewriter
    from whenabouts.corpus import Corpus
    from whenabouts.search.search_result import SearchResult

# Options of models, which only `search` has.
_OF_MODELS = ("model", "retriever", "segments", "check_best", "check_seconds", "rerank", "rerank_seconds")
_TOGETHER = "first it is measured how often answers of these corpora together are right, which takes a while"
_KEPT = "the next search is quicker"
_NOT_KEPT = "it cannot be kept, so each search measures again: set XDG_STATE_HOME to a writable folder"


def searched(options: argparse.Namespace) -> SearchResult:
    """The answer to a command's query, narrowed by its options."""
    corpus, search_options = corpus_and_search(options)
    return corpus.search(options.query or "", options=search_options)


def corpus_and_search(options: argparse.Namespace) -> tuple[Corpus, SearchOptions]:
    """The corpus and search options of a command that searches; encodes new videos first for --model."""
    corpus = open_corpus(options)
    models = {name: getattr(options, name) for name in _OF_MODELS if hasattr(options, name)}
    if models.get("rerank") is not None:  # a wrong name fails before videos are encoded
        from whenabouts.checkers import open_reranker

        models["rerank"] = open_reranker(options.rerank)
    search_options = SearchOptions(
        k=options.k,
        best=options.best,
        within=options.within,
        streams=options.stream,
        min_confidence=options.min_confidence,
        after=options.after,
        before=options.before,
        where=options.where,
        all=options.all,
        skip=options.skip,
        check=opened_checker(options),
        rewrite=_opened_rewriter(options),
        like=options.like,
        literal="all" if options.literal else (),
        **models,
    )
    if search_options.model is not None:
        encoded_with(corpus, options.model, options.retriever, options.segments)
    elif len(corpus.places) > 1:
        from whenabouts.calibration.together import NOTES, is_measured

        if not is_measured(corpus.store):
            print_notes([f"{_TOGETHER}; {_KEPT if NOTES.can_add() else _NOT_KEPT}"])
    return corpus, search_options


def opened_checker(options: argparse.Namespace) -> Checker | None:
    """The checker of --check, opened; None without the option."""
    if getattr(options, "check", None) is None:
        return None
    from whenabouts.checkers import open_checker

    return open_checker(options.check, send_frames=options.send_frames)


def _opened_rewriter(options: argparse.Namespace) -> Rewriter | str | None:
    """Open the rewriter that --rewrite names. None: not given."""
    if getattr(options, "rewrite", None) is None:
        return None
    from whenabouts.search.sounds_alike import opened_rewriter

    return opened_rewriter(options.rewrite, send_query=options.send_query)


def add_narrowing(parser: argparse._ActionsContainer) -> None:
    """Add the options that narrow which moments may answer."""
    add = parser.add_argument
    add_repeated(parser, "--within", "VIDEO", "only in this video")
    add_repeated(parser, "--stream", "NAME", f"search only this stream: {', '.join(all_streams())}")
    add(
        "--like",
        metavar="FILE|VIDEO@T",
        help="moments like a picture, or like a moment of the corpus (VIDEO@TIME, VIDEO@START-END); may be"
        " combined with words",
    )
    what = "leave out less probable moments (0 to 1)"
    add("--min-confidence", type=float, default=0.0, metavar="C", help=what)
    add("--after", metavar="DATE", help="videos recorded at or after this date")
    add("--before", metavar="DATE", help="videos recorded before this date")
    add_where(parser)
    add(
        "--literal",
        action="store_true",
        help='search the words literally: do not interpret "the first time ...", "in the video called ..."',
    )


def encoded_with(
    corpus: Corpus,
    model: str,
    retriever: str | None = None,
    segments: float | None = None,
    *,
    wait: bool | None = None,
) -> int:
    """Let a trained system encode new videos of a corpus, with a bar on standard error.

    Returns how many videos are then encoded; 0 if another indexer runs and `wait` is None.
    """
    with counting_bar(f"encoding videos with {for_terminal(model)}") as show:
        try:
            return corpus.encode(model, retriever, segments=segments, wait=bool(wait), progress=show)
        except CorpusBusy:
            if wait is None:
                return 0
            raise
