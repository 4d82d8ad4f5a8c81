"""A server behind a reverse proxy: under a base path and the proxy's host name."""

from __future__ import annotations

import ipaddress
import re
from contextvars import ContextVar
from typing import Annotated

from pydantic import PlainSerializer
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from whenabouts.server.errors import ServerError
from whenabouts.server.security import HEADERS
from whenabouts.server.settings import Settings

_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]{1,253}")
_base_path: ContextVar[str] = ContextVar("base path", default="")


def _below(address: str) -> str:
    """An address of this server as a client must request it."""
    return _base_path.get() + address


Address = Annotated[str, PlainSerializer(_below, return_type=str)]
"""An address of this server in an answer, such as "/api/videos"; the base path is added when it is sent."""


class Proxied:
    """Removes the base path from requests, and takes host and scheme from trusted proxies.

    A proxy may forward the base path or strip it; both reach the same routes.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._base, self._networks = app, settings.base_path, settings.proxy_networks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        raw = scope["raw_path"].split(b"?")[0]
        if self._base and raw == self._base.encode():
            query = scope["query_string"].decode("latin-1")
            # The page's addresses are relative: without the slash they would lead out of the base path.
            beneath = f"{self._base}/{'?' * bool(query)}{query}"
            await RedirectResponse(beneath, 307, headers=HEADERS)(scope, receive, send)
            return
        if self._base and raw.startswith(f"{self._base}/".encode()):
            scope["raw_path"], scope["path"] = raw[len(self._base) :], scope["path"][len(self._base) :]
        try:
            if self._is_trusted(scope):
                _take_forwarded(scope)
        except ServerError as error:
            error.headers.update(HEADERS)
            await error.response()(scope, receive, send)
            return
        token = _base_path.set(self._base)
        try:
            await self._app(scope, receive, send)
        finally:
            _base_path.reset(token)

    def _is_trusted(self, scope: Scope) -> bool:
        if not self._networks or not scope.get("client"):
            return False
        try:
            address = ipaddress.ip_address(scope["client"][0])
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._networks)


def _take_forwarded(scope: Scope) -> None:
    """Take the host and scheme that a trusted proxy reports. Raises ServerError 400."""
    host, scheme = (_last(scope, name) for name in (b"x-forwarded-host", b"x-forwarded-proto"))
    if (host and not _HOST.fullmatch(host)) or scheme not in ("", "http", "https"):
        raise ServerError(400, "bad_forwarded", "X-Forwarded-Host or X-Forwarded-Proto makes no sense")
    if scheme:
        scope["scheme"] = scheme
    if host:
        headers = [pair for pair in scope["headers"] if pair[0] != b"host"]
        scope["headers"] = [(b"host", host.encode("latin-1")), *headers]
    scope["forwarded"] = True


def _last(scope: Scope, name: bytes) -> str:
    """The value from the nearest proxy, which comes last; a client may have sent the same header."""
    values = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    return values[-1].rpartition(",")[2].strip() if values else ""
