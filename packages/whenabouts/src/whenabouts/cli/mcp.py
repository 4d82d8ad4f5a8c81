"""`whenabouts mcp`: serve a corpus to agents by the Model Context Protocol. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts import agents
from whenabouts.cli.options import (
    add_allow,
    add_corpus,
    add_guests,
    add_verb,
    corpus_name,
    open_or_new_corpus,
    page_address,
)
from whenabouts.times import whole_number
from whenabouts.types import UsageError
from whenabouts.video.files import with_home
from whenabouts.workplace.guests import READ, SCOPES

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from whenabouts.corpus import Corpus

_EPILOG = """\
examples:
  whenabouts mcp --corpus my.corpus --print config      (for the settings file of a client)
  whenabouts mcp --corpus my.corpus --print skill > SKILL.md
  whenabouts mcp --corpus my.corpus --out ~/clips       (a client starts this itself)
  whenabouts mcp --corpus my.corpus --allow ~/Videos    (it may add videos, once the user has seen the plan)
  WHENABOUTS_TOKEN=$(openssl rand -hex 16) whenabouts mcp --corpus my.corpus --http 127.0.0.1:8766"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "mcp",
        run,
        description="Let an AI assistant search a corpus, look at moments, collect and cut them (Model "
        "Context Protocol). The assistant's program starts this command itself: `--print config` prints the "
        "settings it needs.",
        epilog=_EPILOG,
    )
    add_corpus(parser, several=True)
    parser.add_argument(
        "--print",
        choices=("config", "skill"),
        help="print settings for a client (mcpServers), or a skill file that teaches an assistant",
    )
    parser.add_argument(
        "--out", metavar="DIR", type=with_home, help="folder for the clips it cuts (default: it may not cut)"
    )
    add_allow(parser)
    parser.add_argument(
        "--page",
        metavar="URL",
        help="address of this corpus's page (`whenabouts serve`), for links in answers",
    )
    parser.add_argument(
        "--read-only",
        action="store_true",
        help="let it only search and look, not collect, export, cut or add",
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="serve over HTTP at /mcp (port 0: any); clients send the token of $WHENABOUTS_TOKEN",
    )
    add_guests(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until the client or the user ends it, or print."""
    if options.print == "config":
        print(json.dumps(_configuration(options), indent=2))
        return 0
    if options.print == "skill":
        print(Path(agents.__file__).with_name("SKILL.md").read_text(encoding="utf-8"), end="")
        return 0
    from whenabouts.agents.tools import agent_server  # needs the extra mcp

    if options.allow and options.read_only:
        raise UsageError("--allow and --read-only contradict each other; give one of them")
    if options.guests and not options.http:
        raise UsageError("--guests needs --http, because over standard input and output nobody sends a token")
    page = page_address("--page", options.page)
    corpus = open_or_new_corpus(options)
    adding = None
    if options.allow:
        from whenabouts.agents.adding import AddingTools

        adding = AddingTools(corpus, options.allow)
    else:
        corpus.check_filled()

    def opened() -> Corpus:
        # A handle per call, because calls may run in parallel.
        handle = corpus.beside()
        handle.refresh()
        return handle

    def server(scopes: Collection[str] = SCOPES) -> MCPServer:
        scopes = (READ,) if options.read_only else scopes
        return agent_server(opened, out=options.out, page=page, adding=adding, scopes=scopes)

    with contextlib.nullcontext() if adding is None else contextlib.closing(adding.runner):
        if adding is not None:
            adding.runner.start()
        if options.http:
            _serve_http(server, options)
        else:
            server().run("stdio")
    return 0


def _serve_http(server: Callable[[Collection[str]], MCPServer], options: argparse.Namespace) -> None:
    from whenabouts.agents.over_http import serve_agents
    from whenabouts.server.settings import Settings

    host, _, port = options.http.rpartition(":")
    if not host or (number := whole_number(port)) is None:
        raise UsageError(f"--http {options.http}: give HOST:PORT, such as 127.0.0.1:8766")
    token = os.environ.get("WHENABOUTS_TOKEN", "")
    serve_agents(server, Settings(host=host, port=number, token=token, guests=options.guests))


def _configuration(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that common clients read: how to start this server for this corpus."""
    program = shutil.which("whenabouts")
    start = [program] if program else [sys.executable, "-m", "whenabouts"]
    arguments = ["mcp"]
    for place in getattr(options, "corpora", None) or [corpus_name(options)]:
        arguments += ["--corpus", place if "://" in place else str(with_home(place).absolute())]
    if options.out is not None:
        arguments += ["--out", str(options.out.absolute())]
    for folder in options.allow:
        arguments += ["--allow", str(with_home(folder).absolute())]
    if options.page is not None:
        arguments += ["--page", page_address("--page", options.page)]
    if options.read_only:
        arguments.append("--read-only")
    return {"mcpServers": {"whenabouts": {"command": start[0], "args": [*start[1:], *arguments]}}}
