"""The MCP server over HTTP, behind the page's guard: tokens, host names, size limits for bodies."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable

from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from whenabouts.server.run import Server, link, listen
from whenabouts.server.security import Guard, Scopes
from whenabouts.server.settings import Settings
from whenabouts.workplace.guests import COLLECT, INDEX, READ

SCOPES: Scopes = {"/mcp": {"GET": READ, "POST": READ, "DELETE": READ}}


def serve_agents(server_of: Callable[[frozenset[str]], MCPServer], settings: Settings) -> None:
    """Serve at /mcp until stopped. `server_of` gives the server for a set of scopes.

    Raises UsageError if the address is unavailable.
    """
    bound = listen(settings)
    try:
        app = Guard(_by_scope(server_of, settings.host), settings, scopes=SCOPES)
        address = f"{link(settings, bound, '')}mcp"
        started = Server(app, settings, lambda: print(f"agents at {address}", file=sys.stderr))
        started.run(sockets=[bound])
    finally:
        bound.close()


def _by_scope(server_of: Callable[[frozenset[str]], MCPServer], host: str) -> ASGIApp:
    """One application of several servers, chosen by the token's scopes."""
    # Stateless, so that a client may reach any process with its next request.
    apps = {
        scopes: server_of(scopes).streamable_http_app(stateless_http=True, json_response=True, host=host)
        for scopes in map(frozenset, ((), (COLLECT,), (INDEX,), (COLLECT, INDEX)))
    }

    @contextlib.asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for app in apps.values():
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        await apps[scope["guest"].scopes & {COLLECT, INDEX}](scope, receive, send)

    return Starlette(routes=[Mount("/", app=choose)], lifespan=life)
