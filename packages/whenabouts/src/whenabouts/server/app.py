"""The server's application: the routes, behind a guard and a counter."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whenabouts import plugins
from whenabouts.corpus import Corpus
from whenabouts.server import (
    collection_routes,
    export_routes,
    job_routes,
    library_routes,
    people_routes,
    search_routes,
    service_routes,
    video_routes,
)
from whenabouts.server.errors import handle_errors
from whenabouts.server.metrics import Metrics
from whenabouts.server.proxied import Proxied
from whenabouts.server.security import SCOPES, Guard, scope_of
from whenabouts.server.service import Service
from whenabouts.server.settings import Settings
from whenabouts.version import __version__

_ABOUT = (
    "Moments in your own videos: send a sentence, get ranked moments (video, start, end). Times are seconds, "
    "spans half-open [start, end)."
)


class Application:
    """The ASGI application. `service` is what it serves, `api` the routes without guard and counters."""

    def __init__(self, corpus: Corpus, settings: Settings) -> None:
        self.service = Service(corpus, settings)
        self.api = _routes(self.service)
        guard = Guard(AnsweringHead(self.api), settings, memory=lambda: self.service.memory)
        self._guarded = Proxied(Counted(guard, self.service.metrics), settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guarded(scope, receive, send)


class Counted:
    """Counts and times requests by route; by address there would be unboundedly many counters."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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


class AnsweringHead:
    """Answers HEAD wherever GET is answered: same status and headers, no body.

    Routes with their own HEAD handler keep it, because it need not read a file.
    """

    def __init__(self, api: FastAPI) -> None:
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        if not is_head or any(route.matches(scope)[0] is Match.FULL for route in self._api.routes):
            await self._api(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        as_get = {**scope, "method": "GET"}
        try:
            await self._api(as_get, receive, send_head)
        finally:
            if "route" in as_get:
                scope["route"] = as_get["route"]


def _routes(service: Service) -> FastAPI:
    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        if service.runner is not None:
            service.runner.start()
        yield
        service.close()

    modules = (
        search_routes,
        export_routes,
        library_routes,
        video_routes,
        people_routes,
        collection_routes,
        job_routes,
        service_routes,
    )
    routers = (*plugins.loaded("routes").values(), *(routes.router for routes in modules))
    api = FastAPI(
        title="whenabouts",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=life,
        redirect_slashes=False,
        # Not by `include_router`, which makes each route anew for every application, at its first request.
        routes=[route for router in routers for route in router.routes],
    )
    # Compresses lists, answers and the page. Pictures and videos are compressed already; unknown bytes may be
    # large.
    uncompressed = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream")
    api.add_middleware(GZipMiddleware, exclude_content_types=uncompressed)
    api.state.service = service
    handle_errors(api, service.paths)
    described = api.openapi

    def openapi() -> dict[str, Any]:
        return _described(described(), service.settings.base_path)

    api.openapi = openapi  # type: ignore[method-assign]
    return api


def _described(schema: dict[str, Any], base_path: str) -> dict[str, Any]:
    """Correct the OpenAPI description: no 422, paths below the base path, the scope each route needs."""
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            operation["responses"].pop("422", None)
            scope = scope_of(SCOPES, method.upper(), path)
            if scope is not None:
                operation["security"] = [{"token": [scope]}, {}]
    if base_path:
        schema["servers"] = [{"url": base_path}]
    components = schema["components"]
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"token": []}, {}]
    return schema
