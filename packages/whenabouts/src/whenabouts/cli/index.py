"""`whenabouts index`: put videos, sound files and transcripts into a corpus. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import whenabouts
from whenabouts.cli.encoder_offer import offer_encoder
from whenabouts.cli.opened import encoded_with
from whenabouts.cli.options import (
    WORDS_OPTIONS,
    add_corpus,
    add_dry_run,
    add_format,
    add_max_pixels,
    add_repeated,
    add_retriever,
    add_segments,
    add_verb,
    add_wait,
    add_words,
    allow_pixels,
    corpus_name,
    open_corpus,
)
from whenabouts.cli.terminal import console, for_terminal, print_either, print_lines, wants_json
from whenabouts.index.lance import folder_of
from whenabouts.index.lock import uninterrupted
from whenabouts.index.records import NotACorpus
from whenabouts.intake.lacks import check_room
from whenabouts.streams import index_options
from whenabouts.types import UsageError, WhenaboutsError, number_of
from whenabouts.video.files import printable
from whenabouts.video.objects import source_path

if TYPE_CHECKING:
    from whenabouts.corpus import Corpus
    from whenabouts.index.lock import Holder
    from whenabouts.index.plan import Plan
    from whenabouts.index.progress import Progress

# Without memory LanceDB ends the process; with the sentence encoder it reserves over 2 GB of address space.
_ROOM_BYTES = 2 << 30

_EPILOG = """\
Running it again takes only new or changed files, follows renamed ones, and continues where an earlier run
was stopped. The corpus can be searched while it runs.

examples:
  whenabouts index ~/Videos --corpus my.corpus --dry-run
  whenabouts index ~/Videos --corpus my.corpus
  whenabouts index ~/Videos --corpus my.corpus --vision openai/clip-vit-base-patch32
  whenabouts index talks/ --corpus my.corpus --transcribe
  whenabouts index talks/ --corpus my.corpus --transcribe small --meta speaker="Ada L."
  whenabouts index --corpus my.corpus --retry
  whenabouts index --corpus my.corpus --model runs/xml
  whenabouts index --corpus my.corpus --model runs/xml --segments 4"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "index",
        run,
        description="Find videos, sound files and transcripts under PATH and make them searchable.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="files, or folders with all their subfolders"
    )
    add_corpus(parser)
    add_dry_run(parser)
    parser.add_argument("--retry", action="store_true", help="take only files that failed before")
    _add_choice_of_files(parser)
    _add_streams(parser)
    add_repeated(parser, "--meta", "KEY=VALUE", "a fact about these videos, for search --where")
    add_words(parser)
    parser.add_argument(
        "--processes", type=int, metavar="N", help="reader processes (default: one per core, at most 8)"
    )
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="read and encode on a Ray cluster: HOST:PORT of its head, auto for the one this machine "
        "belongs to, or local to start one here",
    )
    add_max_pixels(parser)
    parser.add_argument(
        "--model",
        metavar="RUN",
        help="also encode the videos with this trained system, for search --model (without PATH: only that)",
    )
    add_retriever(parser)
    add_segments(parser)
    add_wait(parser)
    add_format(parser)


def _add_streams(parser: argparse.ArgumentParser) -> None:
    """Add the options for streams and their models."""
    for option in index_options():
        takes: dict[str, Any] = {"metavar": option.metavar, "type": option.type}
        if option.metavar is None:
            takes = {"action": "store_const", "const": True}
        elif option.is_optional:
            takes |= {"metavar": option.metavar.strip("[]"), "nargs": "?", "const": True}
        parser.add_argument(option.flag, help=option.help, **takes)
    parser.add_argument(
        "--or-without",
        action="store_true",
        help="if a model cannot be loaded, continue without it, with a note",
    )
    what = "skip a stream of the corpus in this run, such as screen_text; its indexed part stays"
    add_repeated(parser, "--without", "STREAM", what)
    parser.add_argument(
        "--shots",
        metavar="FINDER",
        nargs="?",
        const=True,
        default=False,
        help="find shots (ranges without a cut) even if frames are not searched; FINDER is used from now on: "
        "built-in (default), or transnetv2, a slow network (pip install 'whenabouts[shots]')",
    )


def _add_choice_of_files(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose, ignore and prune files."""
    what = "ignore files like '*.tmp' or drafts/, as a .whenaboutsignore file does for its folder"
    add_repeated(parser, "--exclude", "PATTERN", what)
    parser.add_argument(
        "--follow", action=argparse.BooleanOptionalAction, default=True, help="follow links in folders"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="also take files that were removed from the corpus, and subtitles without their recording",
    )
    parser.add_argument("--prune", action="store_true", help="remove videos whose files are gone from PATH")


def run(options: argparse.Namespace) -> int:
    """Plan, print the plan, index, and print the result."""
    allow_pixels(options)
    if not options.paths and not options.retry:
        if options.model:
            return _encode(open_corpus(options), options)
        named = (("MODEL", "transcribe"), ("FINDER", "shots"))
        given = [(what, name, getattr(options, name)) for what, name in named]
        raise UsageError(
            "what should be indexed? Give files or folders, or --retry for files that failed before"
            + "".join(
                f"; {value} was read as the {what} of --{name}: put it before that option"
                for what, name, value in given
                if isinstance(value, str)
            )
        )
    if options.processes is not None and options.processes < 1:
        raise UsageError(f"--processes {options.processes}: give 1 or more")
    if options.retriever and not options.model:
        raise UsageError("--retriever chooses videos for a trained system; also name that with --model")
    if options.segments is not None and not options.model:
        raise UsageError("--segments are for a trained system; also name that with --model")
    with _corpus(options) as (corpus, is_new):
        if options.dry_run:
            return _dry_run(corpus, options)
        # Planned under the writer's lock, so that the plan is still valid when it is carried out.
        with corpus.writing(wait=options.wait, on_wait=_say_holder):
            try:
                code = _run(corpus, options)
            finally:
                if is_new:
                    with uninterrupted():
                        _take_back_untouched(corpus)
            if options.model and not code:
                encoded_with(corpus, options.model, options.retriever, options.segments, wait=options.wait)
            return code


def _encode(corpus: Corpus, options: argparse.Namespace) -> int:
    """Only let a trained system encode the indexed videos."""
    if options.dry_run:
        raise UsageError("--dry-run needs PATH; without it --model only encodes indexed videos")
    segments = options.segments
    videos = encoded_with(corpus, options.model, options.retriever, segments, wait=options.wait)
    facts = {"model": options.model, "videos": videos}
    how = "" if segments is None else f", by segments of {segments:g} s"
    line = f"{number_of(videos, 'video')} can be searched with {options.model}{how}"
    print_either(options, lambda: facts | ({"segments": segments} if how else {}), lambda: [line])
    return 0


@contextlib.contextmanager
def _corpus(options: argparse.Namespace) -> Iterator[tuple[Corpus, bool]]:
    """The corpus to write to, and whether its folder was created for this run.

    Without a corpus, a dry run plans against a temporary empty one.
    """
    check_room(_ROOM_BYTES)
    try:
        corpus = whenabouts.Corpus(corpus_name(options))
    except NotACorpus:
        if options.retry:
            raise
    else:
        yield corpus, False
        return
    if not options.dry_run:
        is_new = not folder_of(corpus_name(options)).exists()
        yield whenabouts.Corpus(corpus_name(options), create=True), is_new
        return
    with tempfile.TemporaryDirectory() as folder:
        yield whenabouts.Corpus(folder, create=True), False


def _take_back_untouched(corpus: Corpus) -> None:
    """Remove a new corpus that stayed empty because options were wrong or nothing was found."""
    with contextlib.suppress(WhenaboutsError):
        corpus.store.refresh()  # another run may have written while this one waited
        if not corpus.store.streams and not corpus.store.videos():
            shutil.rmtree(folder_of(corpus.location), ignore_errors=True)


def _plan(corpus: Corpus, options: argparse.Namespace) -> Plan:
    from whenabouts.index.plan import parse_metadata
    from whenabouts.indexing import plan_index

    names = "shots retry exclude follow again prune or_without without"
    given = [*names.split(), *WORDS_OPTIONS, *(option.keyword for option in index_options())]
    return plan_index(
        corpus,
        options.paths,
        metadata=parse_metadata(options.meta),
        **{name: getattr(options, name) for name in given},
    )


def _dry_run(corpus: Corpus, options: argparse.Namespace) -> int:
    plan = _plan(corpus, options)
    print_either(options, plan.to_json, plan.lines)
    return _nothing(plan, options) or _unruled(plan)


def _run(corpus: Corpus, options: argparse.Namespace) -> int:
    from whenabouts.indexing import run_index

    is_quiet = wants_json(options)
    if options.text is None and not corpus.store.streams and not is_quiet:
        offer_encoder()
    with _Display("looking at the files"):
        plan = _plan(corpus, options)
    if not is_quiet:
        print_lines(plan.lines(), sys.stderr)
    if code := _nothing(plan, options):
        return code
    with _Display() as display:
        summary = run_index(corpus, plan, processes=options.processes, ray=options.ray, progress=display.show)
    shown = set(plan.lines())
    print_either(options, summary.to_json, lambda: (line for line in summary.lines() if line not in shown))
    if summary.interrupted:
        return 130
    if summary.lack:
        print(for_terminal(f"whenabouts: {summary.lack}"), file=sys.stderr)
        return 2
    # Failed files are in the summary. The command itself fails only if nothing can be searched.
    if (summary.failed or summary.failed_before) and not summary.searchable:
        return 2
    return _unruled(plan) or (1 if summary.again else 0)


def _unruled(plan: Plan) -> int:
    """Report folders that were not read, and return 2 if there are any, else 0."""
    if not plan.unruled:
        return 0
    folders = number_of(len(plan.unruled), "folder was", "folders were")
    line = (
        f"whenabouts: {folders} not read, because of an unusable .whenaboutsignore; what the corpus "
        "has of them stays"
    )
    print(for_terminal(line), file=sys.stderr)
    return 2


def _nothing(plan: Plan, options: argparse.Namespace) -> int:
    """Report paths without anything to index, and return 2 if so, else 0."""
    if plan.files or plan.gone or options.retry:
        return 0
    where = ", ".join(printable(source_path(path)) for path in options.paths)
    reason = "; ".join(why for _, why in plan.problems) or (
        "there is no video, sound or subtitle file (subfolders are searched; names with a leading dot"
        " are skipped)"
    )
    print(for_terminal(f"whenabouts: nothing to index in {where}: {reason}"), file=sys.stderr)
    return 2


def _say_holder(holder: Holder | None) -> None:
    line = f"waiting for another indexer ({holder or 'unknown'}) to finish …"
    print(for_terminal(line), file=sys.stderr)


class _Display:
    """A progress bar with rate and time left on standard error, if that is a terminal."""

    def __init__(self, doing: str = "starting") -> None:
        self._enabled, self._doing = sys.stderr.isatty(), doing
        self._bar: Any = None
        self._job: Any = None
        self._step = ""

    def __enter__(self) -> _Display:
        if self._enabled:
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                SpinnerColumn("line"),
                TextColumn("{task.fields[files]}"),
                BarColumn(),
                TextColumn("{task.fields[share]}  {task.fields[rate]}  {task.fields[left]}"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[name]}", style="dim", markup=False),
                console=console(sys.stderr),
                transient=True,
            )
            self._bar.start()
            self._job = self._bar.add_task(
                "", total=1.0, files=self._doing, share="", rate="", left="", name=""
            )
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, progress: Progress) -> None:
        if self._bar is None:
            return
        if progress.step != self._step:
            self._step = progress.step
            self._bar.reset(self._job)
        self._bar.update(
            self._job,
            completed=progress.fraction,
            # A step that cannot measure its progress shows only its name.
            share="" if progress.step and not progress.fraction else f"{100 * progress.fraction:>4.1f} %",
            files=progress.step or f"{progress.files_done}/{progress.files_total} files",
            rate=progress.rate_text,
            left=progress.left_text,
            name=progress.name[-40:],
        )
