"""`whenabouts serve`: the page and REST API of a corpus. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from whenabouts.cli.opened import encoded_with
from whenabouts.cli.options import (
    add_access,
    add_allow,
    add_cache,
    add_check,
    add_corpus,
    add_guests,
    add_max_pixels,
    add_proxy,
    add_repeated,
    add_rerank,
    add_rewrite,
    add_verb,
    allow_pixels,
    open_or_new_corpus,
    proxy_settings,
)
from whenabouts.cli.terminal import for_terminal
from whenabouts.intake.lacks import check_files, check_room
from whenabouts.intake.opening import read_regular
from whenabouts.server.settings import Limits, Settings, named_models
from whenabouts.types import UsageError
from whenabouts.video.files import with_home
from whenabouts.workplace.cached import default_cache

_MOST_TOKEN_BYTES = 4096
_ROOM_BYTES, _FILES = 2 << 30, 64
"""Memory and open files that a server needs to start; threads and connections need more."""
_EPILOG = """\
examples:
  whenabouts serve --corpus my.corpus
  whenabouts serve --corpus my.corpus --allow ~/Videos      (a page that can add videos)
  whenabouts serve --corpus my.corpus --model runs/xml
  WHENABOUTS_TOKEN=$(openssl rand -hex 16) whenabouts serve --corpus my.corpus --host 0.0.0.0"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "serve",
        run,
        description="Search in a browser: results with pictures, a player, and curves of how well each part "
        "of a video fits. Programs use REST (/openapi.json). Only this machine can reach it, unless "
        "--host and a token say otherwise.",
        epilog=_EPILOG,
    )
    add_corpus(parser, several=True)
    _add_access(parser)
    add_cache(parser, "folder for thumbnails and clips")
    parser.add_argument(
        "--cache-size",
        metavar="MB",
        type=int,
        default=2048,
        help="largest size of that folder (default 2048)",
    )
    _add_limits(parser)
    what = "serve only videos under this folder; default: the folders that were indexed"
    add_repeated(parser, "--files", "PATH", what, type=Path)
    add_allow(parser)
    parser.add_argument(
        "--show-paths",
        action=argparse.BooleanOptionalAction,
        help="whether clients see where files lie (default: only at a local address without a token)",
    )
    parser.add_argument(
        "--change-people",
        action=argparse.BooleanOptionalAction,
        help="whether clients may name, merge and forget people (default: only at a local address without a "
        "token)",
    )
    what = "let people search with this trained system as well: a folder, or owner/name on a hub"
    add_repeated(parser, "--model", "RUN", what)
    add_check(parser, "let clients have the best moments checked by this model, and by no other")
    add_rerank(parser, "let people have the first forty moments put in order by this model")
    add_rewrite(parser, "let people search also in other words")


def _add_access(parser: argparse.ArgumentParser) -> None:
    """Add the options for address, token and guests."""
    secret = add_access(parser)
    parser.add_argument("--port", type=int, default=8765, help="port (default 8765; 0: any that is free)")
    secret.add_argument(
        "--token-file",
        metavar="FILE",
        type=with_home,
        help="read that secret from a file, as systemd, Compose and Kubernetes hand secrets over",
    )
    add_guests(parser)
    add_proxy(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the options for processes, memory and sizes."""
    parser.add_argument(
        "--processes",
        metavar="N",
        type=int,
        default=1,
        help="processes that serve many clients at once (default 1); each takes a core and memory of its own",
    )
    parser.add_argument(
        "--memory",
        metavar="MB",
        type=int,
        help="how much memory the server may have, decoding included; requests that could exceed it are "
        "refused (default: three quarters of the machine's)",
    )
    add_max_pixels(parser)


def _token(options: argparse.Namespace) -> str:
    """The token: from the command line, else a file, else the environment."""
    if options.token_file is None:
        return os.environ.get("WHENABOUTS_TOKEN", "") if options.token is None else str(options.token)
    try:
        token = read_regular(options.token_file, _MOST_TOKEN_BYTES).decode("ascii", "replace").strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"--token-file {options.token_file}: {error}") from error
    if not token:
        raise UsageError(f"--token-file {options.token_file} is empty; `openssl rand -hex 16` makes a token")
    return token


def run(options: argparse.Namespace) -> int:
    """Serve until stopped."""
    check_room(_ROOM_BYTES)
    check_files(_FILES)
    allow_pixels(options)
    from whenabouts.server.run import serve

    memory = {} if options.memory is None else {"memory_bytes": options.memory << 20}
    same = ["host", "port", "show_paths", "change_people", "send_frames", "send_query", "guests"]
    settings = Settings(
        **{name: getattr(options, name) for name in same},
        token=_token(options),
        cache=options.cache or default_cache(),
        cache_bytes=options.cache_size << 20,
        models=named_models(options.model),
        files=tuple(options.files),
        allow=tuple(options.allow),
        check=options.check or "",
        rerank=options.rerank or "",
        rewrite=options.rewrite or "",
        limits=Limits(job_seconds=options.time_limit, **memory),
        **proxy_settings(options),
    )
    corpus = open_or_new_corpus(options)
    for model in options.model:
        encoded_with(corpus, model)
    serve(corpus, settings, lambda line: print(for_terminal(line), flush=True), options.processes)
    return 0
