"""Options that several verbs share."""

from __future__ import annotations

import argparse
import os
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import whenabouts  # whose names import their modules when they are used: `--help` stays quick
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
        help="decode pictures of at most N pixels (default 35389440; also $WHENABOUTS_MAX_PIXELS)",
    )


def allow_pixels(options: argparse.Namespace) -> None:
    """Let this process and the readers that it starts decode pictures as large as the options say."""
    if options.max_pixels is not None:
        os.environ[MAX_PIXELS] = str(options.max_pixels)
    most_pixels()


def add_force(parser: argparse._ActionsContainer) -> None:
    """Add --force, for verbs whose files took long to make or may stand in the place of others."""
    parser.add_argument("--force", action="store_true", help="replace what is there already")


def add_access(parser: argparse._ActionsContainer) -> None:
    """Where a server listens, what its clients must send, and how long a search may take."""
    add_host(parser)
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


def add_host(parser: argparse._ActionsContainer) -> None:
    """Add --host, for verbs that serve."""
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default 127.0.0.1: this machine only)"
    )


def add_guests(parser: argparse._ActionsContainer) -> None:
    """Add --guests, for verbs that serve."""
    parser.add_argument(
        "--guests",
        metavar="FILE",
        type=Path,
        help="let people of this file in with tokens of their own (`whenabouts guests FILE add NAME`)",
    )


def add_allow(parser: argparse._ActionsContainer) -> None:
    """Add --allow, for verbs whose clients can fill the corpus."""
    parser.add_argument(
        "--allow",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="let clients list this folder and change what is indexed of it (repeat for more)",
    )


def page_address(option: str, given: str | None) -> str:
    """The address of a page with a slash at its end, "" for none. Raises UsageError for anything else."""
    if given is None:
        return ""
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise UsageError(f"{option} {given}: give the address of the page, such as https://example.org/")
    return given if given.endswith("/") else f"{given}/"


def add_dry_run(parser: argparse._ActionsContainer) -> None:
    """Add --dry-run, for verbs that write to a corpus."""
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")


def add_proxy(parser: argparse._ActionsContainer) -> None:
    """Add --base-path and --trust-proxy, for verbs whose pages may lie behind a reverse proxy."""
    parser.add_argument(
        "--base-path",
        metavar="PATH",
        default="",
        help="the address below which a reverse proxy shows the server, such as /moments",
    )
    parser.add_argument(
        "--trust-proxy",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="believe X-Forwarded-Host and X-Forwarded-Proto of this proxy (an address or network; repeat "
        "for more)",
    )


def proxy_settings(options: argparse.Namespace) -> dict[str, Any]:
    """What `add_proxy` was given, as fields of a server's settings."""
    return {"base_path": options.base_path.rstrip("/"), "proxies": tuple(options.trust_proxy)}


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


def corpus_name(options: argparse.Namespace) -> str:
    """The corpus that was named, or an error that says how to name one."""
    if not options.corpus:
        raise UsageError("which corpus? Give --corpus DIR or set WHENABOUTS_CORPUS")
    return str(options.corpus)


def open_corpus(options: argparse.Namespace) -> Corpus:
    """The corpus of a command (or several, searched side by side). Raises NotACorpus where there is none."""
    named = corpus_name(options)
    return whenabouts.Corpus(getattr(options, "corpora", None) or named, create=False)


def open_or_new_corpus(options: argparse.Namespace) -> Corpus:
    """As `open_corpus`; with --allow an empty corpus is made, because clients can fill it."""
    from whenabouts.index.records import NotACorpus

    try:
        return open_corpus(options)
    except NotACorpus:
        if not options.allow or len(options.corpora) > 1:
            raise
        return whenabouts.Corpus(corpus_name(options), create=True)


def add_where(parser: argparse._ActionsContainer) -> None:
    """Which facts a video must have."""
    parser.add_argument(
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
        help=f"at most N moments (default {k}; with --all: all of them)",
    )
    parser.set_defaults(best=k)
    add(
        "--all",
        action="store_true",
        help="list every place, by video and time, where all words (in any ending) and all quoted phrases "
        "are said within a minute",
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


def add_rerank(parser: argparse._ActionsContainer, what: str) -> None:
    """A model that puts moments in order."""
    parser.add_argument(
        "--rerank",
        metavar="MODEL",
        help=f"{what}: a CrossEncoder or MultiVectorEncoder of sentence-transformers by folder or hub name, "
        "or tokens: and a sentence encoder, such as tokens:minilm",
    )


def add_rewrite(parser: argparse._ActionsContainer, what: str) -> None:
    """A model that says a query in other words."""
    parser.add_argument(
        "--rewrite",
        metavar="ADDRESS#MODEL",
        help=f"{what}: an OpenAI-compatible address with the model behind a '#' (a key is taken from "
        "$WHENABOUTS_CHAT_KEY)",
    )
    parser.add_argument(
        "--send-query",
        action="store_true",
        help="yes, my queries may be sent to the address of --rewrite though it is another machine",
    )


def add_segments(parser: argparse._ActionsContainer) -> None:
    """Long videos by segments."""
    parser.add_argument(
        "--segments",
        metavar="SECONDS",
        type=float,
        help="for long videos: the retriever chooses segments of so many seconds (such as 4), and --model "
        "looks into these with some seconds on both sides",
    )
