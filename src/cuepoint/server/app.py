"""The server's application: routes behind a guard, every answer counted."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import cuepoint
from cuepoint.corpus import Corpus
from cuepoint.server import export_routes, search_routes, service_routes, video_routes
from cuepoint.server.errors import handle_errors
from cuepoint.server.page_files import PageFiles
from cuepoint.server.security import Guard
from cuepoint.server.service import Service
from cuepoint.server.settings import Settings

_ABOUT = (
    "Moments in your own videos: a sentence in, ranked moments (video, start, end) out. Times are seconds, "
    "spans half-open [start, end)."
)


class Application:
    """An ASGI application; `service` is what it serves, `api` the routes without guard and counters."""

    def __init__(self, corpus: Corpus, settings: Settings) -> None:
        self.service = Service(corpus, settings)
        self.api = _routes(self.service)
        self._guarded = Counted(Guard(self.api, settings), self.service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        await self._guarded(scope, receive, send)


class Counted:
    """Counts requests by route (never by address, of which there are endless ones) and times them."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._metrics = app, service.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
            await send(message)

        began = time.perf_counter()
        self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, send_counted)
        finally:
            self._metrics.in_flight.dec()
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "other"
            self._metrics.requests.labels(route, method, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - began)


def _routes(service: Service) -> FastAPI:
    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    api = FastAPI(
        title="cuepoint",
        version=cuepoint.__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=life,
        redirect_slashes=False,
    )
    api.state.service = service
    api.state.page_files = PageFiles()
    handle_errors(api, service.location)
    for routes in (search_routes, export_routes, video_routes, service_routes):
        api.include_router(routes.router)
    described = api.openapi

    def openapi() -> dict[str, Any]:
        return _described(described())

    api.openapi = openapi  # type: ignore[method-assign]
    return api


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI description as it is true here: no 422, and a token where one was asked for."""
    for path in schema["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    components = schema["components"]
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"token": []}, {}]
    return schema
