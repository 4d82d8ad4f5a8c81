"""The MCP server over HTTP, behind the same guard as the page: tokens, host names, bounds on bodies."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import MCPServer

from whenabouts.server.run import Server, link, listen
from whenabouts.server.security import Guard
from whenabouts.server.settings import Settings


def serve_agents(server: MCPServer, host: str, port: int, token: str) -> None:
    """Serve at /mcp until stopped. Raises UsageError for an address that cannot be had."""
    settings = Settings(host=host, port=port, token=token)
    bound = listen(settings)
    try:
        # Each request stands for itself: any client may come back to any process.
        app = server.streamable_http_app(stateless_http=True, json_response=True, host=host)
        address = f"{link(settings, bound, '')}mcp"
        started = Server(
            Guard(app, settings), settings, lambda: print(f"agents at {address}", file=sys.stderr)
        )
        started.run(sockets=[bound])
    finally:
        bound.close()
