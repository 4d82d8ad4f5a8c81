"""`whenabouts mcp`: a corpus for agents, by the Model Context Protocol."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from whenabouts.cli.options import add_corpus, add_verb, corpus_name, open_corpus
from whenabouts.extras import lacking
from whenabouts.types import UsageError

_EPILOG = """\
examples:
  whenabouts mcp --corpus my.corpus --print config      (for the settings file of a client)
  whenabouts mcp --corpus my.corpus --print skill > SKILL.md
  whenabouts mcp --corpus my.corpus --out ~/clips       (a client starts this itself)
  WHENABOUTS_TOKEN=$(openssl rand -hex 16) whenabouts mcp --corpus my.corpus --http 127.0.0.1:8766"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "mcp",
        run,
        description="Let an assistant search, look, collect and cut (Model Context Protocol). Without --http "
        "it speaks over standard input and output, as clients start it.",
        epilog=_EPILOG,
    )
    add_corpus(parser, several=True)
    parser.add_argument(
        "--print",
        choices=("config", "skill"),
        help="print what a client's settings need (mcpServers), or a skill file that teaches an assistant",
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="folder in which it may cut clips (default: it may cut none)"
    )
    parser.add_argument("--read-only", action="store_true", help="let it collect and export nothing")
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="serve over HTTP at /mcp (port 0: any); clients send the token of $WHENABOUTS_TOKEN",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until the client or the user ends it, or print."""
    if options.print == "config":
        print(json.dumps(_configuration(options), indent=2))
        return 0
    if options.print == "skill":
        from whenabouts import agents

        print(Path(agents.__file__).with_name("SKILL.md").read_text(encoding="utf-8"), end="")
        return 0
    try:
        from whenabouts.agents.tools import agent_server
    except ModuleNotFoundError as error:
        raise UsageError(lacking(error) or str(error)) from error
    corpus = open_corpus(options)
    corpus.check_filled()
    # A handle for one call: calls may come at once.
    server = agent_server(corpus.beside, out=options.out, read_only=options.read_only)
    if options.http:
        from whenabouts.agents.over_http import serve_agents

        host, _, port = options.http.rpartition(":")
        if not host or not port.isdecimal():
            raise UsageError(f"--http {options.http}: give HOST:PORT, such as 127.0.0.1:8766")
        serve_agents(server, host, int(port), os.environ.get("WHENABOUTS_TOKEN", ""))
    else:
        server.run("stdio")
    return 0


def _configuration(options: argparse.Namespace) -> dict[str, Any]:
    """What the usual clients read: how to start this server for this corpus."""
    program = shutil.which("whenabouts")
    start = [program] if program else [sys.executable, "-m", "whenabouts"]
    arguments = ["mcp"]
    for place in getattr(options, "corpora", None) or [corpus_name(options)]:
        arguments += ["--corpus", place if "://" in place else str(Path(place).absolute())]
    if options.out is not None:
        arguments += ["--out", str(options.out.absolute())]
    if options.read_only:
        arguments.append("--read-only")
    return {"mcpServers": {"whenabouts": {"command": start[0], "args": [*start[1:], *arguments]}}}
