"""Options that several verbs share, and how a command chooses between table and JSON."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from whenabouts.types import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from whenabouts.checkers import Checker
    from whenabouts.corpus import Corpus
    from whenabouts.search.options import SearchOptions
    from whenabouts.search.search_result import SearchResult


def add_verb(
    verbs: Any,
    name: str,
    run: Callable[[argparse.Namespace], int] | None = None,
    *,
    description: str,
    epilog: str | None = None,
) -> argparse.ArgumentParser:
    """The parser of a verb; `run` is called with its options (None: each of its own verbs has another).

    With an epilog (examples), that keeps its line breaks; the description is filled to the terminal's width.
    """
    width = max(40, shutil.get_terminal_size().columns - 2)
    formatter = argparse.HelpFormatter if epilog is None else argparse.RawDescriptionHelpFormatter
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, description=textwrap.fill(description, width), epilog=epilog, formatter_class=formatter
    )
    if run is not None:
        parser.set_defaults(run=run)
    return parser


def add_device(parser: argparse._ActionsContainer) -> None:
    """Where a network runs."""
    parser.add_argument(
        "--device", metavar="NAME", default="auto", help="cpu, cuda, cuda:1 (default: a GPU if there is one)"
    )


def add_data(parser: argparse._ActionsContainer) -> None:
    """The annotations of a trained system's split."""
    parser.add_argument(
        "--data", metavar="DIR", help="folder of the annotations (default: as in the training)"
    )


def add_sentence_encoder(parser: argparse._ActionsContainer) -> None:
    """Which encoder compares sentences."""
    parser.add_argument(
        "--encoder",
        metavar="NAME",
        help="sentence encoder: a name, a hub name (princeton-nlp/sup-simcse-roberta-large) or a folder "
        "(default: the one that needs no download)",
    )


class _SingleCorpus(argparse.Action):
    """Stores the corpus; a second one would silently take the place of the first, so it is refused."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        """Take a value."""
        corpora = getattr(namespace, "corpora", None)
        if corpora is not None:
            corpora = namespace.corpora = [*corpora, values]
        elif getattr(namespace, "named_corpus", values) != values:
            raise UsageError(
                f"--corpus {values}: this command works on one corpus, and {namespace.named_corpus} was "
                "named before; call it once for each (`search` and `serve` take several side by side)"
            )
        namespace.named_corpus = values
        setattr(namespace, self.dest, values)


def add_corpus(parser: argparse._ActionsContainer, *, several: bool = False) -> None:
    """The corpus a command works on; `several`: more than one may be named, to search side by side."""
    if several:
        parser.set_defaults(corpora=[])
    parser.add_argument(
        "--corpus",
        metavar="DIR",
        action=_SingleCorpus,
        default=os.environ.get("WHENABOUTS_CORPUS"),
        help="folder of the corpus, or s3://bucket/prefix (default: $WHENABOUTS_CORPUS)"
        + ("; repeat it to search several side by side" if several else ""),
    )


def add_max_pixels(parser: argparse._ActionsContainer) -> None:
    """How large pictures may be to be decoded; `allow_pixels` makes it so."""
    parser.add_argument(
        "--max-pixels",
        type=int,
        metavar="N",
        help="decode pictures of up to so many pixels (default 35389440; also $WHENABOUTS_MAX_PIXELS)",
    )


def allow_pixels(options: argparse.Namespace) -> None:
    """Let this process and the readers that it starts decode pictures as large as the options say."""
    from whenabouts.video.opened import MAX_PIXELS, most_pixels

    if options.max_pixels is not None:
        os.environ[MAX_PIXELS] = str(options.max_pixels)
    most_pixels()


def add_force(parser: argparse._ActionsContainer) -> None:
    """Add --force, for verbs whose files took long to make or may stand in the place of others."""
    parser.add_argument("--force", action="store_true", help="replace what is there already")


def add_access(parser: argparse._ActionsContainer) -> None:
    """Where a server listens, what its clients must send, and how long a search may take."""
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default 127.0.0.1; others need a token)"
    )
    parser.add_argument(
        "--token",
        default=None,
        help="secret that clients must send (default: $WHENABOUTS_TOKEN, which `ps` does not show to others)",
    )
    parser.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="end a search that takes longer (default 60)",
    )


def add_wait(parser: argparse._ActionsContainer) -> None:
    """Add --wait, for verbs that write to a corpus."""
    parser.add_argument(
        "--wait", action="store_true", help="wait while another command writes to this corpus"
    )


def add_seed(parser: argparse._ActionsContainer) -> None:
    """Add --seed, for verbs that draw at random."""
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="the same seed, the same random draws (default: 0)"
    )


def keep_outer(parser: argparse.ArgumentParser) -> None:
    """Let the values given before an inner verb stand: its options so far get no default."""
    for option in parser._actions:
        option.default = argparse.SUPPRESS


def add_format(parser: argparse._ActionsContainer) -> None:
    """Table or JSON."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help="print JSON (the default in a pipe or a file)")
    group.add_argument("--table", action="store_true", help="print a table (the default on a terminal)")


def add_judged(parser: argparse._ActionsContainer) -> None:
    """The judgements that runs are held against, and the formats of both."""
    parser.add_argument("--truth", metavar="FILE", required=True, help="the judgements, in any known format")
    parser.add_argument(
        "--protocol",
        metavar="NAME",
        help="as `whenabouts evaluate` takes it (default: the judgements choose)",
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        help='such as "nDCG@20,IoU=0.7"; may be given again (default: those of the protocol)',
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


def corpus_name(options: argparse.Namespace) -> str:
    """The corpus that was named, or an error that says how to name one."""
    if not options.corpus:
        raise UsageError("which corpus? Give --corpus DIR or set WHENABOUTS_CORPUS")
    return str(options.corpus)


def open_corpus(options: argparse.Namespace) -> Corpus:
    """An existing corpus."""
    from whenabouts.corpus import Corpus

    named = corpus_name(options)
    return Corpus(getattr(options, "corpora", None) or named, create=False)


def searched(options: argparse.Namespace) -> SearchResult:
    """The answer to the query of a command that searches, narrowed as its options say."""
    corpus, search_options = corpus_and_search(options)
    return corpus.search(options.query or "", options=search_options)


def corpus_and_search(options: argparse.Namespace) -> tuple[Corpus, SearchOptions]:
    """The corpus of a command that searches, and the options of its searches; what is new is encoded."""
    from whenabouts.search.options import SearchOptions

    corpus, model = open_corpus(options), getattr(options, "model", None)
    retriever, segments = getattr(options, "retriever", None), getattr(options, "segments", None)
    search_options = SearchOptions(
        k=getattr(options, "best", None) if options.k is None and not options.all else options.k,
        within=options.within,
        streams=options.stream,
        min_confidence=options.min_confidence,
        after=options.after,
        before=options.before,
        where=options.where,
        model=model,
        retriever=retriever,
        segments=segments,
        all=options.all,
        skip=options.skip,
        check=opened_checker(options),
        check_best=getattr(options, "check_best", 5),
        check_seconds=getattr(options, "check_seconds", 60.0),
        like=options.like,
    )
    if model is not None:
        encoded_with(corpus, model, retriever, segments)
    return corpus, search_options


def add_narrowing(parser: argparse._ActionsContainer) -> None:
    """Which moments may answer a query."""
    from whenabouts.streams import all_streams

    add = parser.add_argument
    add("--within", action="append", default=[], metavar="VIDEO", help="only in this video (repeat for more)")
    add(
        "--stream",
        action="append",
        default=[],
        metavar="NAME",
        help=f"only by this stream: {', '.join(all_streams())}",
    )
    add(
        "--like",
        metavar="FILE|VIDEO@T",
        help="what is like a picture, or like a moment of the corpus (VIDEO@TIME, VIDEO@START-END), with or "
        "without words",
    )
    add(
        "--min-confidence",
        type=float,
        default=0.0,
        metavar="C",
        help="leave out moments that are less probable (0 to 1)",
    )
    add("--after", metavar="DATE", help="videos recorded at or after this date")
    add("--before", metavar="DATE", help="videos recorded before this date")
    add(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only videos with this fact; also KEY!=VALUE, KEY>=N, KEY<=N, and * in the value",
    )


def add_places(parser: argparse._ActionsContainer, *, k: int) -> None:
    """How many moments: the best `k`, or every place where all is said."""
    add = parser.add_argument
    add(
        "-k",
        type=int,
        metavar="N",
        help=f"at most so many moments (default {k}; with --all no less than all)",
    )
    parser.set_defaults(best=k)
    add(
        "--all",
        action="store_true",
        help="every place where all words (in their endings) and all quoted phrases are said, within a "
        "minute, by video and time",
    )
    add("--skip", type=int, default=0, metavar="N", help="with --all: leave out the first N places")


def add_retriever(parser: argparse._ActionsContainer) -> None:
    """What chooses the videos for a trained system."""
    parser.add_argument(
        "--retriever",
        metavar="RUN",
        help="let this trained system choose the videos (default: the one that a staged run names)",
    )


def add_check(parser: argparse._ActionsContainer, what: str) -> None:
    """A model that looks at moments a second time."""
    parser.add_argument(
        "--check",
        metavar="MODEL",
        help=f"{what}: a vision-language model by folder or hub name (it computes on this machine), or an "
        "OpenAI-compatible address with the model behind a '#', such as http://127.0.0.1:8000/v1#MODEL (a "
        "key is "
        "taken from $WHENABOUTS_CHAT_KEY)",
    )
    parser.add_argument(
        "--send-frames",
        action="store_true",
        help="yes, frames of my videos, words that are said in them and my queries may be sent to the "
        "address of --check though it is another machine",
    )


def opened_checker(options: argparse.Namespace) -> Checker | None:
    """The checker that was named, opened; None where none was."""
    if getattr(options, "check", None) is None:
        return None
    from whenabouts.checkers import open_checker

    return open_checker(options.check, send_frames=options.send_frames)


def add_segments(parser: argparse._ActionsContainer) -> None:
    """Long videos by segments."""
    parser.add_argument(
        "--segments",
        metavar="SECONDS",
        type=float,
        help="for long videos: the retriever chooses segments of so many seconds (such as 4), and --model "
        "looks into these with some seconds on both sides",
    )


def encoded_with(
    corpus: Corpus,
    model: str,
    retriever: str | None = None,
    segments: float | None = None,
    *,
    wait: bool | None = None,
) -> int:
    """Let a trained system encode what is new in a corpus, with a bar on standard error.

    How many videos it holds then. `wait` None: where another indexer is at work, it is left at that (0).
    """
    from whenabouts.index.lock import CorpusBusy

    with encoding_bar(model) as show:
        try:
            return corpus.encode(model, retriever, segments=segments, wait=bool(wait), progress=show)
        except CorpusBusy:
            if wait is None:
                return 0
            raise


@contextlib.contextmanager
def encoding_bar(model: str) -> Iterator[Callable[[int, int], None]]:
    """What shows how many videos are encoded; silent where nobody looks."""
    with counting_bar(f"encoding videos with {for_terminal(model)}") as show:
        yield show


@contextlib.contextmanager
def counting_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """What shows how much is done, and of how much; silent where nobody looks."""
    if not sys.stderr.isatty():
        yield lambda done, of: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn(what, markup=False)
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        job = bar.add_task("", total=None)
        yield lambda done, of: bar.update(job, completed=done, total=of)


def wants_json(options: argparse.Namespace) -> bool:
    """JSON when it is asked for or when a program reads."""
    return bool(options.json) or not (options.table or sys.stdout.isatty())


def print_either(
    options: argparse.Namespace, document: Callable[[], Any], lines: Callable[[], Iterable[str]]
) -> None:
    """The JSON document or the lines for people, as the options and the output say."""
    if wants_json(options):
        print_json(document())
    else:
        print_lines(lines())


def print_json(value: Any) -> None:
    """One JSON document on standard output; text that is no valid Unicode is escaped."""
    # What an output cannot encode must be escaped as JSON does it, or the document is none.
    in_ascii = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=in_ascii, indent=2 if sys.stdout.isatty() else None)
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Lines for people on standard output."""
    for line in lines:
        print(for_terminal(line))


def print_notes(notes: Iterable[str]) -> None:
    """Each note once, on standard error."""
    out = console(sys.stderr)
    for note in dict.fromkeys(notes):
        out.print(for_terminal(f"note: {note}"), style="dim", markup=False, soft_wrap=True)


def for_terminal(text: str) -> str:
    """Text on one line that cannot command a terminal: names of files and subtitles come from anywhere.

    >>> for_terminal("two\\nlines \\x1b[31mred")
    'two\\\\nlines \\\\x1b[31mred'
    """
    shown = text.encode("utf-8", "backslashreplace").decode()
    return "".join(
        repr(letter)[1:-1] if unicodedata.category(letter) in ("Cc", "Zl", "Zp") else letter
        for letter in shown
    )


def encode_anything() -> None:
    """Let output that a terminal's encoding lacks be escaped; an answer is worth more than its accents."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def console(stream: TextIO | None = None) -> Console:
    """Where tables go; None is standard output.

    A pipe that is closed early is left to `main`, for rich would exit with the code of "no match".
    """
    from rich.console import Console

    class PipeConsole(Console):
        """A console that does not end the program."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return PipeConsole(file=stream, highlight=False)
