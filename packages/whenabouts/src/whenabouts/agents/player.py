"""The player of a moment as an MCP App, for clients that show one beside the conversation.

A client declares the extension `io.modelcontextprotocol/ui` and the type `text/html;profile=mcp-app`; only
such clients get the tools. `play` gives the moment with pictures around it. `player.html` shows them with
borders to drag, and calls `film` for the video with sound. Source: MCP Apps (SEP-1865, 2026-01-26).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp.server.apps import Apps, client_supports_apps
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.types import ToolAnnotations

from whenabouts.types import Moment

URI = "ui://whenabouts/player"
LONGEST_FILM = 60.0
"""Most seconds of a film; longer moments are shown only as pictures."""
PICTURES = 12
_LEAST_MARGIN = 2.0
_NAMES = ("play", "film")


def window(moment: Moment, duration: float | None) -> tuple[float, float]:
    """The time range to show: the moment, and on each side half its length, at least 2 s.

    Clipped to the video. Margins shrink to keep the window within `LONGEST_FILM`, for longer moments to 0.

    >>> window(Moment("friday", 4.0, 6.0), 7.0)
    (2.0, 7.0)
    """
    length = moment.end - moment.start
    margin = min(max(_LEAST_MARGIN, length / 2), max(0.0, (LONGEST_FILM - length) / 2))
    last = moment.end + margin
    return max(0.0, moment.start - margin), last if duration is None else max(moment.end, min(last, duration))


def player(play: Callable[..., Any], film: Callable[..., Any], annotations: ToolAnnotations) -> Apps:
    """The player as an extension of the MCP server: its document and its two tools."""
    apps = Apps()
    apps.tool(resource_uri=URI, annotations=annotations)(play)
    apps.tool(resource_uri=URI, annotations=annotations, visibility=["app"])(film)
    apps.add_html_resource(
        URI,
        Path(__file__).with_name("player.html").read_text(encoding="utf-8"),
        title="A moment with its borders",
        prefers_border=True,
    )
    return apps


async def offer_player_where_shown(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Hide the player's tools from clients that did not declare the extension."""
    result = await call_next(ctx)
    if ctx.method == "tools/list" and isinstance(result, dict) and not client_supports_apps(ctx):
        return result | {"tools": [each for each in result["tools"] if each["name"] not in _NAMES]}
    return result
