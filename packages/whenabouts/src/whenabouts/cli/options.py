"""Options that several verbs share: each `add_…` function adds one or a few to a parser."""

from __future__ import annotations

import argparse
import os
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import whenabouts  # imports its submodules on first use, which keeps `--help` quick
from whenabouts.times import whole_number
from whenabouts.types import UsageError
from whenabouts.video.opened import MAX_PIXELS, most_pixels

if TYPE_CHECKING:
    from whenabouts.corpus import Corpus


def add_verb(
    verbs: Any,
    name: str,
    run: Callable[[argparse.Namespace], int] | None = None,
    *,
    description: str,
    epilog: str | None = None,
) -> argparse.ArgumentParser:
    """Add the parser of a verb. `run` is called with its options; None if the verb has verbs of its own.

    An epilog (examples) keeps its line breaks; the description is filled to the terminal's width.
    """
    width = max(40, shutil.get_terminal_size().columns - 2)
    formatter = argparse.HelpFormatter if epilog is None else argparse.RawDescriptionHelpFormatter
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, description=textwrap.fill(description, width), epilog=epilog, formatter_class=formatter
    )
    if run is not None:
        parser.set_defaults(run=run)
    return parser


def add_repeated(parser: argparse._ActionsContainer, flag: str, metavar: str, what: str, **more: Any) -> None:
    """Add an option that may be given several times; its value is a list."""
    what = f"{what} (repeat for more)"
    parser.add_argument(flag, metavar=metavar, action="append", default=[], help=what, **more)


class _SingleCorpus(argparse.Action):
    """Stores the corpus; raises UsageError for a second one, unless the verb takes several."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        corpora = getattr(namespace, "corpora", None)
        if corpora is not None:
            corpora = namespace.corpora = [*corpora, values]
        # argparse gives an inner verb a namespace of its own and copies that over the outer one.
        name = "inner_corpus" if self.default is argparse.SUPPRESS else "named_corpus"
        if corpora is None:
            _check_same(getattr(namespace, name, None), values)
        setattr(namespace, name, values)
        setattr(namespace, self.dest, values)


def _check_same(before: str | None, now: str | None) -> None:
    if before and now and before != now:
        raise UsageError(
            f"--corpus {now}: this command works on one corpus, and {before} was named before; call it once "
            "for each (`search`, `serve` and `mcp` take several side by side)"
        )


def add_corpus(parser: argparse._ActionsContainer, *, several: bool = False) -> None:
    """Add --corpus. With `several` it may be repeated; the corpora are searched side by side."""
    if several:
        parser.set_defaults(corpora=[])
    parser.add_argument(
        "--corpus",
        metavar="DIR",
        action=_SingleCorpus,
        default=os.environ.get("WHENABOUTS_CORPUS"),
        help="corpus folder, or s3://bucket/prefix (default: $WHENABOUTS_CORPUS)"
        + ("; repeat it to search several side by side" if several else ""),
    )


def add_max_pixels(parser: argparse._ActionsContainer) -> None:
    """Add --max-pixels, the largest picture to decode; `allow_pixels` applies it."""
    parser.add_argument(
        "--max-pixels",
        type=int,
        metavar="N",
        help="decode pictures of at most N pixels (default 35389440; also $WHENABOUTS_MAX_PIXELS)",
    )


def allow_pixels(options: argparse.Namespace) -> None:
    """Apply --max-pixels to this process and the readers that it starts."""
    if options.max_pixels is not None:
        os.environ[MAX_PIXELS] = str(options.max_pixels)
    most_pixels()


def add_force(parser: argparse._ActionsContainer) -> None:
    """Add --force, for verbs that could overwrite files which took long to make."""
    parser.add_argument("--force", action="store_true", help="replace existing files")


def add_access(parser: argparse._ActionsContainer) -> argparse._MutuallyExclusiveGroup:
    """Add --host, --token and --time-limit; returns the group of --token, for other ways to give it."""
    add_host(parser)
    secret = parser.add_mutually_exclusive_group()
    secret.add_argument(
        "--token",
        default=None,
        help="secret that clients must send (default: $WHENABOUTS_TOKEN, hidden from other users' `ps`)",
    )
    parser.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="stop searches that take longer (default 60)",
    )
    return secret


def add_host(parser: argparse._ActionsContainer) -> None:
    """Add --host, for verbs that serve."""
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine only)"
    )


def add_cache(parser: argparse._ActionsContainer, what: str) -> None:
    """Add `--cache`; `what` describes the folder."""
    what += " (default: ~/.cache/whenabouts/serve)"
    parser.add_argument("--cache", metavar="DIR", type=Path, help=what)


def add_guests(parser: argparse._ActionsContainer) -> None:
    """Add --guests, the file of users with their own tokens."""
    parser.add_argument(
        "--guests",
        metavar="FILE",
        type=Path,
        help="also accept the tokens of the users in this file (`whenabouts guests FILE add NAME`)",
    )


def add_allow(parser: argparse._ActionsContainer) -> None:
    """Add --allow, for verbs whose clients may add videos."""
    what = "let clients list this folder and change what is indexed from it"
    add_repeated(parser, "--allow", "DIR", what, type=Path)


def page_address(option: str, given: str | None) -> str:
    """A page's address, ending in a slash; "" if none was given. Raises UsageError for anything else."""
    if given is None:
        return ""
    try:
        parts = urlsplit(given)
        is_page = parts.scheme in ("http", "https") and parts.netloc and not (parts.query or parts.fragment)
    except ValueError:
        is_page = False
    if not is_page:
        raise UsageError(f"{option} {given}: give the address of the page, such as https://example.org/")
    return given if given.endswith("/") else f"{given}/"


def add_dry_run(parser: argparse._ActionsContainer) -> None:
    """Add --dry-run, for verbs that write to a corpus."""
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")


def add_proxy(parser: argparse._ActionsContainer) -> None:
    """Add --base-path and --trust-proxy, for verbs that may run behind a reverse proxy."""
    parser.add_argument(
        "--base-path",
        metavar="PATH",
        default="",
        help="path under which a reverse proxy shows the server, such as /moments",
    )
    what = "believe X-Forwarded-Host and X-Forwarded-Proto from this proxy, an address or network"
    add_repeated(parser, "--trust-proxy", "ADDRESS", what)


def proxy_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The options of `add_proxy` as fields of the server's settings."""
    return {"base_path": options.base_path.rstrip("/"), "proxies": tuple(options.trust_proxy)}


def add_wait(parser: argparse._ActionsContainer) -> None:
    """Add --wait, for verbs that write to a corpus."""
    parser.add_argument(
        "--wait", action="store_true", help="wait while another command writes to this corpus"
    )


def add_seed(parser: argparse._ActionsContainer) -> None:
    """Add --seed, for verbs that draw random samples."""
    parser.add_argument(
        "--seed", type=_seed, default=0, metavar="N", help="seed of the random draws (default: 0)"
    )


def _seed(text: str) -> int:
    if (number := whole_number(text)) is None:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, 0 or more")
    return number


def keep_outer(parser: argparse.ArgumentParser) -> None:
    """Drop the defaults of a parser's options, so an inner verb keeps values given before its name."""
    for option in parser._actions:
        option.default = argparse.SUPPRESS


def add_format(parser: argparse._ActionsContainer) -> None:
    """Add --json and --table."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help="print JSON (the default in a pipe or a file)")
    group.add_argument("--table", action="store_true", help="print a table (the default on a terminal)")


def corpus_name(options: argparse.Namespace) -> str:
    """The corpus of --corpus. Raises UsageError if none was named."""
    if not options.corpus:
        raise UsageError("which corpus? Give --corpus DIR or set WHENABOUTS_CORPUS")
    _check_same(getattr(options, "named_corpus", None), getattr(options, "inner_corpus", None))
    return str(options.corpus)


def open_corpus(options: argparse.Namespace) -> Corpus:
    """Open the corpus, or several side by side. Raises NotACorpus for a folder without one."""
    named = corpus_name(options)
    return whenabouts.Corpus(getattr(options, "corpora", None) or named, create=False)


def open_or_new_corpus(options: argparse.Namespace) -> Corpus:
    """Like `open_corpus`; with --allow a missing corpus is created, because clients can fill it."""
    from whenabouts.index.records import NotACorpus

    try:
        return open_corpus(options)
    except NotACorpus:
        if not options.allow or len(options.corpora) > 1:
            raise
        return whenabouts.Corpus(corpus_name(options), create=True)


WORDS_OPTIONS = ("transcribe", "language", "sound_track", "metadata_file")


def add_words(parser: argparse._ActionsContainer) -> None:
    """Add `WORDS_OPTIONS`: how speech, subtitles and metadata are read."""
    add = parser.add_argument
    add(
        "--transcribe",
        metavar="MODEL",
        nargs="?",
        const=True,
        help="recognise speech where there are no subtitles, with a faster-whisper model: its name (after "
        "`whenabouts models get`) or folder; without MODEL the one from the package (offline, English)",
    )
    add(
        "--language",
        metavar="CODE",
        help="search subtitles in this language from now on, such as en, where there are several (default:"
        " a file without a language, else the language of the sound, else English)",
    )
    add(
        "--sound-track",
        metavar="N|CODE",
        help="use this sound track from now on where there are several: its number, from 1, or its "
        "language, such as de (default: the first)",
    )
    what = 'JSON lines: {"path": "talk.mp4", "title": "…", any key}'
    add("--meta-file", dest="metadata_file", metavar="FILE", help=what)


def add_where(parser: argparse._ActionsContainer) -> None:
    """Add --where, the facts a video must have."""
    what = "only videos with this fact; also KEY!=VALUE, KEY>=N, KEY<=N; the value may contain *"
    add_repeated(parser, "--where", "KEY=VALUE", what)


def add_places(parser: argparse._ActionsContainer, *, k: int) -> None:
    """Add -k (default `k`), --all and --skip: how many moments to list."""
    add = parser.add_argument
    add("-k", type=int, metavar="N", help=f"at most N moments (default {k}; with --all: all of them)")
    parser.set_defaults(best=k)
    add(
        "--all",
        action="store_true",
        help="list, by video and time, every place that has all words (in any form) and all quoted phrases "
        "within a minute",
    )
    add("--skip", type=int, default=0, metavar="N", help="with --all: skip the first N places")


def add_retriever(parser: argparse._ActionsContainer) -> None:
    """Add --retriever, the system that chooses the videos for --model."""
    parser.add_argument(
        "--retriever",
        metavar="RUN",
        help="trained system that chooses the videos (default: the one that a staged run names)",
    )


def add_check(parser: argparse._ActionsContainer, what: str) -> None:
    """Add --check and --send-frames: a model that looks at moments a second time."""
    parser.add_argument(
        "--check",
        metavar="MODEL",
        help=f"{what}: a vision-language model by folder or hub name, run on this machine; or an "
        "OpenAI-compatible address with the model after '#', such as http://127.0.0.1:8000/v1#MODEL (its key "
        "is read from $WHENABOUTS_CHAT_KEY)",
    )
    parser.add_argument(
        "--send-frames",
        action="store_true",
        help="yes, send frames of my videos, the words said in them and my queries to the address of "
        "--check, even if it is another machine",
    )


def add_rerank(parser: argparse._ActionsContainer, what: str) -> None:
    """Add --rerank: a model that puts moments in order."""
    parser.add_argument(
        "--rerank",
        metavar="MODEL",
        help=f"{what}: a CrossEncoder or MultiVectorEncoder of sentence-transformers by folder or hub name, "
        "or tokens: and a sentence encoder, such as tokens:minilm",
    )


def add_rewrite(parser: argparse._ActionsContainer, what: str) -> None:
    """Add --rewrite and --send-query: a model that words a query in other ways."""
    parser.add_argument(
        "--rewrite",
        metavar="sound|ADDRESS#MODEL",
        help=f"{what}: `sound`, those of the corpus that sound like the query, or those of a model, named by "
        "an OpenAI-compatible address with the model after '#' (its key is read from $WHENABOUTS_CHAT_KEY)",
    )
    parser.add_argument(
        "--send-query",
        action="store_true",
        help="yes, send my queries to the address of --rewrite, even if it is another machine",
    )


def add_segments(parser: argparse._ActionsContainer) -> None:
    """Add --segments: a search by parts of long videos."""
    parser.add_argument(
        "--segments",
        metavar="SECONDS",
        type=float,
        help="for long videos: let the retriever choose segments of this length (such as 4), and --model "
        "search only these and a few seconds around them",
    )
